"""The session loop: order of replies, back-pressure, fairness, and every way to end a connection."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import weakref
from collections.abc import Callable

import pytest
from server.scripted import IDLE_MS, LOOPS, Peer, ScriptedFrontEnd, Served, run

from trimq.protocols.contract import SessionControl
from trimq.server.connection.limits import SessionLimits
from trimq.server.connection.send_queue import BYTES_PER_PASS, SLICE_BYTES, supports_gather_write

both_loops = pytest.mark.parametrize("loop", LOOPS)

# --- the order of replies ---------------------------------------------------------------------------------------------


def test_replies_of_one_lane_leave_in_the_order_of_their_requests() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now a", "pass 1 b", "now c", "pass 2 d", "now e")
        assert await peer.listen() == ["a"]
        peer.progress.advance(2, 1)
        assert await peer.listen() == ["b", "c"]
        peer.progress.advance(2, 2)
        assert await peer.listen() == ["d", "e"]

    run(main)


def test_a_reply_is_held_until_its_pass_is_durable_and_a_volatile_one_until_it_is_written() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("1|pass 3 durable", "2|written 3 written")
        peer.progress.advance(2, 2)
        assert await peer.listen() == []
        peer.progress.advance(3, 2)
        assert await peer.listen() == ["written"]
        peer.progress.advance(3, 3)
        assert await peer.listen() == ["durable"]
        peer.say("pass 3 at once")
        assert await peer.listen() == ["at once"]

    run(main)


def test_lanes_do_not_wait_for_each_other_and_without_a_lane_each_leaves_when_it_is_ready() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("1|pass 9 a1", "1|now a2", "2|now b", "|pass 5 c1", "|now c2", "|pass 4 c3", "|later c4")
        assert await peer.listen() == ["b", "c2"]
        peer.progress.advance(4, 4)
        assert await peer.listen() == ["c3"]
        peer.front_end.deferred["c4"].resolve([b"c4\n"])
        assert await peer.listen() == ["c4"]
        peer.progress.advance(9, 9)
        assert await peer.listen() == ["a1", "a2", "c1"]

    run(main)


def test_a_deferred_reply_that_turns_out_to_wait_for_a_pass_leaves_with_it() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("1|pass 3 a1", "1|later a2", "1|pass 4 a3", "|later b")
        deferred = peer.front_end.deferred
        deferred["a2"].resolve_when_durable(6, lambda: [b"a2\n"])
        deferred["b"].resolve_when_durable(5, lambda: [b"b\n"])
        peer.progress.advance(4, 4)
        assert await peer.listen() == ["a1"]
        peer.progress.advance(5, 5)
        assert await peer.listen() == ["b"]
        peer.progress.advance(6, 6)
        assert await peer.listen() == ["a2", "a3"]
        assert len(peer.progress) == 0

    run(main)


def test_a_deferred_reply_holds_back_those_after_it() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("later first", "now second", "pass 1 third")
        peer.progress.advance(1, 1)
        assert await peer.listen() == []
        peer.front_end.deferred["first"].resolve([b"first\n"])
        assert await peer.listen() == ["first", "second", "third"]

    run(main)


def test_a_deferred_reply_may_turn_out_to_wait_for_a_pass() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("later first", "now second")
        peer.front_end.deferred["first"].resolve_when_durable(4, lambda: [b"first\n"])
        peer.progress.advance(3, 3)
        assert await peer.listen() == []
        peer.progress.advance(4, 4)
        assert await peer.listen() == ["first", "second"]

    run(main)


def test_a_request_that_wants_no_answer_gets_none() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("quiet", "now a", "quiet")
        assert await peer.listen() == ["a"]
        assert peer.metrics.requests.value == 3

    run(main)


# --- one write per pass -----------------------------------------------------------------------------------------------


def test_replies_of_one_pass_are_sent_in_one_write() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say(*(f"now {number}" for number in range(50)), "big 30000", "now last", "send sent")
        await peer.settle()
        assert len(peer.pipe.writes) == 1
        peer.say(*(f"pass 1 {number}" for number in range(500)))
        await peer.settle()
        peer.progress.advance(1, 1)
        await peer.settle()
        assert len(peer.pipe.writes) == 2
        assert peer.metrics.sent_bytes.value == sum(peer.pipe.writes)

    run(main)


def test_a_long_answer_gives_the_others_their_turn_between_its_slices() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("big 20000000")
        per_pass = []
        while sum(peer.pipe.writes) < 20_000_001:
            before = len(peer.pipe.writes)
            await asyncio.sleep(0)
            per_pass.append(sum(peer.pipe.writes[before:]))
        assert max(per_pass) <= 4 * SLICE_BYTES
        assert max(peer.pipe.writes) <= SLICE_BYTES
        assert [len(line) for line in await peer.listen()] == [20_000_000]

    run(main)


# --- back-pressure ----------------------------------------------------------------------------------------------------


def test_a_peer_that_does_not_read_is_not_read_and_costs_bounded_memory() -> None:
    async def main() -> None:
        limits = SessionLimits(pending_replies=1000, held_replies=1000, unsent_bytes=100_000, idle_ms=IDLE_MS)
        peer = Peer(limits, room=0)
        asked = 0
        while peer.pipe.reads:
            peer.say("big 5000")
            asked += 1
            assert asked < 1000, "reading was never paused"
            await peer.settle()
        # after the limit is reached, a turn adds one answer at most
        assert peer.session._send_queue.unsent_bytes <= 100_000 + 5001
        assert peer.pipe.max_waiting <= SLICE_BYTES
        assert peer.pipe.steered == ["pause"]
        while len(peer.pipe.sent) < asked * 5001:
            peer.pipe.make_room(10_000)
            await peer.settle()
        assert peer.pipe.steered == ["pause", "resume"]
        peer.pipe.make_room(1 << 20)
        peer.say("now again")
        assert (await peer.listen())[-1] == "again"

    run(main)


def test_requests_that_arrived_together_are_all_answered_though_each_answer_is_over_the_limit() -> None:
    """The requests are in the conversation's buffer: no further bytes would wake the session."""

    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=1000, held_replies=1000, unsent_bytes=1024, idle_ms=IDLE_MS))
        peer.say(*["big 5000"] * 20)
        assert [len(line) for line in await peer.listen()] == [5000] * 20

    run(main)


def test_an_answer_over_the_limit_stops_the_turn_in_which_it_was_made() -> None:
    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=1000, held_replies=1000, unsent_bytes=1024, idle_ms=IDLE_MS))
        peer.say(*["big 5000"] * 20)
        assert len(peer.conversation.handled) == 1
        assert peer.session._send_queue.unsent_bytes == 5001
        await peer.settle()

    run(main)


def test_a_peer_with_too_many_unanswered_requests_is_not_read_until_some_are_answered() -> None:
    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=10, held_replies=1000, unsent_bytes=1 << 20, idle_ms=IDLE_MS))
        peer.say(*(f"pass {number} {number}" for number in range(1, 31)))
        await peer.settle()
        assert len(peer.conversation.handled) == 10
        assert not peer.pipe.reads
        peer.progress.advance(4, 4)
        assert await peer.listen() == ["1", "2", "3", "4"]
        assert len(peer.conversation.handled) == 14
        assert not peer.pipe.reads
        peer.progress.advance(30, 30)
        assert await peer.listen() == [str(number) for number in range(5, 31)]
        assert peer.pipe.reads

    run(main)


def test_requests_that_wait_for_an_event_do_not_keep_those_behind_them_from_being_read() -> None:
    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=10, held_replies=100, unsent_bytes=1 << 20, idle_ms=IDLE_MS))
        peer.say(*(f"|later {number}?" for number in range(100)), "|now heartbeat")
        assert await peer.listen() == ["heartbeat"]
        assert peer.pipe.reads
        peer.say(*(f"|pass 1 {number}" for number in range(20)))
        await peer.settle()
        assert len(peer.conversation.handled) == 101 + 10
        peer.progress.advance(1, 1)
        assert len(await peer.listen()) == 20
        peer.front_end.deferred["7"].resolve([b"seven\n"])
        peer.front_end.deferred["8"].resolve_when_durable(2, lambda: [b"eight\n"])
        assert await peer.listen() == ["seven"]
        peer.progress.advance(2, 2)
        assert await peer.listen() == ["eight"]

    run(main)


def test_one_more_that_would_wait_for_an_event_than_allowed_is_answered_at_once() -> None:
    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=10, held_replies=3, unsent_bytes=1 << 20, idle_ms=IDLE_MS))
        peer.say(*(f"|later {number}?" for number in range(5)))
        assert await peer.listen() == ["3 turned away", "4 turned away"]
        peer.front_end.deferred["1"].resolve([b"one\n"])
        peer.say("|later 5?", "|later 6?")
        assert await peer.listen() == ["one", "6 turned away"]
        assert peer.pipe.reads

    run(main)


def test_an_ordered_reply_is_counted_though_it_waits_for_an_event() -> None:
    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=10, held_replies=3, unsent_bytes=1 << 20, idle_ms=IDLE_MS))
        peer.say(*(f"later {number}?" for number in range(10)), "|now behind")
        assert await peer.listen() == []
        assert not peer.pipe.reads

    run(main)


def test_deliveries_go_on_when_the_peer_has_read() -> None:
    async def main() -> None:
        peer = Peer(
            SessionLimits(pending_replies=10, held_replies=1000, unsent_bytes=20_000, idle_ms=IDLE_MS), room=5000
        )
        peer.say("deliver 100")
        for _ in range(100):
            await peer.settle()
            assert peer.session._send_queue.unsent_bytes <= 21_000
            peer.pipe.make_room(5000)
        assert len(await peer.listen()) == 100

    run(main)


def test_deliveries_go_on_though_the_socket_was_never_full() -> None:
    """The deliveries are paused by the session's own limit, within one pass."""

    async def main() -> None:
        peer = Peer(SessionLimits(pending_replies=10, held_replies=1000, unsent_bytes=20_000, idle_ms=IDLE_MS))
        peer.say("deliver 100")
        assert len(await peer.listen()) == 100
        assert peer.conversation.times_relieved >= 4

    run(main)


def test_a_conversation_that_was_not_congested_gets_no_congestion_end() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("deliver 3", "now a", "big 500000")
        await peer.settle()
        assert peer.conversation.times_relieved == 0

    run(main)


def test_a_peer_over_its_quota_is_not_read_for_its_throttle_time() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("rest 100", "now a")
        peer.session.throttle_reading(500)
        assert await peer.listen() == []
        peer.time.step(499)
        assert await peer.listen() == []
        while peer.time.step(500):
            pass
        assert await peer.listen() == ["a"]
        assert peer.pipe.reads

    run(main)


def test_a_peer_with_reading_on_hold_is_neither_read_nor_handled_until_it_is_released() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now a", "hold", "now b")
        assert await peer.listen() == ["a"]
        assert not peer.pipe.reads
        peer.session.release_reading()
        assert await peer.listen() == ["b"]
        assert peer.pipe.reads
        peer.session.hold_reading()
        assert not peer.pipe.reads
        peer.session.release_reading()
        peer.session.release_reading()
        await peer.settle()
        assert peer.pipe.reads

    run(main)


def test_a_dismissed_peer_gets_its_answers_and_the_protocols_close() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("remember goodbye", "now a")
        peer.session.close_for_shutdown()
        assert await peer.listen() == ["a", "goodbye"]
        assert peer.pipe.is_closed

    run(main)


def test_a_peer_that_may_be_silent_is_not_closed_for_it() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("hush", "now a")
        assert await peer.listen() == ["a"]
        while peer.time.step(10 * IDLE_MS):
            await peer.settle()
        assert not peer.pipe.is_closing()

    run(main)


def test_a_session_at_rest_does_nothing() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now a", "later key", "pass 9 b")
        peer.feed(b"now half of a requ")
        await peer.settle()
        loop = asyncio.get_running_loop()
        calls: list[object] = []
        call_soon = loop.call_soon
        loop.call_soon = lambda *args, **kwargs: (calls.append(args), call_soon(*args, **kwargs))[1]  # type: ignore
        peer.progress.advance(1, 1)  # a pass without replies of this session
        assert calls == []
        assert peer.pipe.reads
        assert peer.session.is_quiet

    run(main)


def test_reading_is_not_steered_when_nothing_changes() -> None:
    async def main() -> None:
        peer = Peer()
        for number in range(200):
            peer.say(f"now {number}", f"pass {number} {number}")
            peer.progress.advance(number, number)
            await peer.settle()
        assert peer.pipe.steered == []

    run(main)


# --- fairness ---------------------------------------------------------------------------------------------------------


def test_a_turn_ends_after_a_share_of_the_requests_that_have_arrived() -> None:
    async def main() -> None:
        greedy, modest = Peer(), Peer()
        greedy.conversation.received += b"now x\n" * 10_000
        greedy.say("now x")
        greedy_handled = len(greedy.conversation.handled)
        modest.say("now y")
        turns = 0
        while modest.heard() != ["y"]:
            await asyncio.sleep(0)
            turns += 1
            assert turns <= 2
        assert greedy_handled <= 64
        assert len(greedy.conversation.handled) <= 64 * (turns + 1)
        assert len(await greedy.listen()) == 10_001

    run(main)


def test_a_turn_ends_when_a_few_requests_have_taken_their_time() -> None:
    async def main() -> None:
        greedy, modest = Peer(), Peer()
        greedy.front_end.toil = lambda milliseconds: greedy.time.step(greedy.time.now_ms() + milliseconds)
        greedy.say(*["toil 600"] * 40)
        assert len(greedy.conversation.handled) <= 3
        modest.say("now y")
        handled = len(greedy.conversation.handled)
        while modest.heard() != ["y"]:
            await asyncio.sleep(0)
            assert len(greedy.conversation.handled) <= handled + 3
        assert await greedy.listen() == ["done"] * 40

    run(main)


def test_requests_that_take_no_time_share_a_turn() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say(*["now x"] * 40)
        assert len(peer.conversation.handled) == 40
        assert len(await peer.listen()) == 40
        assert len(peer.pipe.writes) == 1

    run(main)


@both_loops
def test_a_flood_of_requests_does_not_keep_others_waiting(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            reader, writer = await asyncio.open_connection(*served.address)
            other_reader, other_writer = await asyncio.open_connection(*served.address)
            flood = b"now x\n" * 20_000
            writer.write(flood)
            other_writer.write(b"now y\n")
            assert await other_reader.readline() == b"y\n"
            assert served.metrics.requests.value < 10_000
            assert await reader.readexactly(40_000) == b"x\n" * 20_000
            for each in (writer, other_writer):
                each.close()
                await each.wait_closed()

    run(main, loop)


@both_loops
def test_a_slow_reader_blocks_no_other_client(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            with connected(served) as slow, connected(served) as other:
                await send(slow, b"big 20000000\n" * 5)
                for number in range(100):
                    await send(other, b"now %d\n" % number)
                    assert await receive_line(other) == b"%d\n" % number
                assert served.metrics.requests.value <= 105

    run(main, loop)


# --- real sockets -----------------------------------------------------------------------------------------------------


def connected(served: Served, **options: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.get("buffer", 65536))
    client.connect(served.address)
    client.setblocking(False)
    return client


async def send(client: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


async def receive(client: socket.socket, most: int = 1 << 20) -> bytes:
    async with asyncio.timeout(20):
        return await asyncio.get_running_loop().sock_recv(client, most)


async def receive_line(client: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        received = await receive(client, 1)
        assert received, f"the connection ended after {line!r}"
        line += received
    return line


async def receive_all(client: socket.socket) -> bytes:
    """Receives until the end of file."""
    received = bytearray()
    while piece := await receive(client):
        received += piece
    return bytes(received)


@both_loops
def test_ten_thousand_requests_at_once_are_answered_in_order(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            with connected(served) as client:
                asked = b"".join(b"now %d\npass 1 %d\n" % (number, number) for number in range(5000))
                sending = asyncio.create_task(send(client, asked))
                received = bytearray()
                served.progress.advance(1, 1)
                while received.count(b"\n") < 10_000:
                    received += await receive(client)
                await sending
                expected = [b"%d" % (number // 2) for number in range(10_000)]
                assert received.splitlines() == expected

    run(main, loop)


@both_loops
def test_a_long_answer_reaches_a_slow_reader_whole_and_is_not_copied_for_it(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            with connected(served, buffer=4096) as client:
                await send(client, b"big 20000000\nnow after\n")
                received, max_copied = 0, 0
                tail = b""
                while not tail.endswith(b"after\n"):
                    piece = await receive(client, 100_000)
                    received += len(piece)
                    tail = (tail + piece)[-6:]
                    copied = served.sessions[0]._transport.get_write_buffer_size()
                    max_copied = max(max_copied, copied)
                assert received == 20_000_001 + 6
                # A transport with gather writes does not copy the data that the socket does not accept.
                is_copied = not supports_gather_write(served.sessions[0]._transport)
                assert max_copied <= (SLICE_BYTES if is_copied else BYTES_PER_PASS)

    run(main, loop)


@both_loops
def test_a_peer_that_ends_its_side_still_gets_its_answers(loop: str) -> None:
    """Half-closed connections, as `nc -N` and some HTTP clients use them."""

    async def main() -> None:
        async with Served() as served:
            with connected(served) as client:
                await send(client, b"now a\npass 1 b\nlater c!\nnow d\n" + b"pass 1 e\n" * 500 + b"now half")
                client.shutdown(socket.SHUT_WR)
                while len(served.front_end.handled) < 504:
                    await asyncio.sleep(0)
                served.progress.advance(1, 1)
                assert await receive_all(client) == b"a\nb\nc hurried\nd\n" + b"e\n" * 500
                await ended(served)
            assert served.front_end.conversations[0].times_closed == 1

    run(main, loop)


@both_loops
def test_a_peer_that_ends_its_side_while_it_is_held_back_still_gets_its_answers(loop: str) -> None:
    async def main() -> None:
        async with Served(
            SessionLimits(pending_replies=1000, held_replies=1000, unsent_bytes=1024, idle_ms=IDLE_MS)
        ) as served:
            with connected(served, buffer=4096) as client:
                await send(client, b"big 100000\n" * 100)
                client.shutdown(socket.SHUT_WR)
                assert await receive_all(client) == (b"x" * 100_000 + b"\n") * 100
                await ended(served)

    run(main, loop)


@both_loops
def test_a_protocol_error_is_sent_after_the_earlier_answers_though_the_peer_still_sends(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            with connected(served) as client:
                await send(client, b"now a\npass 1 b\nbig 3000000\nbad words\nnow never\n")
                sending = asyncio.create_task(send(client, b"now never\n" * 100_000))
                served.progress.advance(1, 1)
                expected = b"a\nb\n" + b"x" * 3_000_000 + b"\nfarewell words\n"
                assert await receive_all(client) == expected
                client.close()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await ended(served)
            assert "now never" not in served.front_end.handled

    run(main, loop)


@both_loops
def test_a_peer_that_still_sends_when_its_front_end_closes_gets_every_answer(loop: str) -> None:
    """amqplib does this: its acknowledgements may follow its connection.close."""

    async def main() -> None:
        async with Served() as served:
            with connected(served) as client:
                await send(client, b"big 3000000\nclose\n")
                sending = asyncio.create_task(send(client, b"now never\n" * 300_000))
                assert await receive_all(client) == b"x" * 3_000_000 + b"\nclosing\n"
                await sending
            await ended(served)
            assert "now never" not in served.front_end.handled

    run(main, loop)


@both_loops
def test_a_connection_that_is_reset_is_ended_once_and_gives_up_its_replies(loop: str) -> None:
    async def main() -> None:
        async with Served() as served:
            client = connected(served)
            await send(client, b"later a\nlater b!\npass 7 c\nnow d\n")
            while len(served.front_end.handled) < 4:
                await asyncio.sleep(0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            await ended(served)
            assert served.front_end.abandoned == ["a", "b"]
            assert served.front_end.conversations[0].times_closed == 1

    run(main, loop)


@both_loops
def test_a_request_that_fails_unexpectedly_costs_only_its_own_connection(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Served() as served:
            with connected(served) as failing, connected(served) as other:
                await send(failing, b"now a\npass 1 b\nraise\nnow never\n")
                served.progress.advance(1, 1)
                assert await receive_all(failing) == b"a\nb\n"
                await send(other, b"now c\n")
                assert await receive_line(other) == b"c\n"
                failing.close()
                await ended(served)

    run(main, loop)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "failed unexpectedly" in caplog.text
    assert "planted" in caplog.text


async def ended(served: Served, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(served.ended) < count:
            await asyncio.sleep(0)


# --- ends of a connection ---------------------------------------------------------------------------------------------


def test_a_farewell_comes_after_the_answers_of_every_lane() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("1|pass 1 a", "|pass 1 b", "|later c!", "|later d", "bad words")
        assert await peer.listen() == ["c hurried"]
        assert peer.front_end.abandoned == ["d"]
        peer.progress.advance(1, 1)
        assert await peer.listen() == ["a", "b", "farewell words"]
        assert peer.pipe.has_sent_end

    run(main)


def test_a_peer_that_broke_the_protocol_is_listened_to_until_it_ends_but_not_for_long() -> None:
    async def main() -> None:
        for ends in (True, False):
            peer = Peer()
            peer.say("bad words")
            await peer.settle()
            assert peer.pipe.has_sent_end
            assert not peer.pipe.is_closed
            peer.feed(b"now never\n" * 1000)
            assert peer.conversation.handled == ["bad words"]
            if ends:
                assert not peer.session.eof_received()
                peer.pipe.close()
            else:
                peer.time.step(1000)
            await peer.settle()
            assert peer.pipe.is_lost
            assert peer.ended == [peer.session]
            assert peer.conversation.times_closed == 1

    run(main)


def test_an_answer_that_cannot_be_made_ends_the_connection_before_the_next_one() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("pass 1 a", "raise-late 1", "pass 1 b", "pass 2 c")
        peer.progress.advance(1, 1)
        assert await peer.listen() == ["a"]
        peer.progress.advance(2, 2)
        assert await peer.listen() == []
        assert peer.pipe.has_sent_end

    run(main)


class Waiter:
    """Another waiter for a pass."""

    is_notified = False

    def pass_reached(self) -> None:
        self.is_notified = True


def test_replies_resolved_in_one_loop_turn_are_written_at_once_together_with_those_of_a_pass() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("|later a", "|later b", "|pass 1 c", "|pass 1 d")
        await peer.settle()
        for name in "ab":
            peer.front_end.deferred[name].resolve([name.encode() + b"\n"])
        peer.progress.advance(1, 1)
        assert await peer.listen() == ["a", "b", "c", "d"]
        assert len(peer.pipe.writes) == 1

    run(main)


def test_a_connection_that_cannot_be_written_to_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        peer = Peer()

        def fail(data: object) -> None:
            raise RuntimeError("planted")

        other = Waiter()
        peer.say("pass 1 a")
        peer.progress.wait(other, 1)
        peer.pipe.write = fail  # type: ignore[method-assign, assignment]
        peer.progress.advance(1, 1)
        assert other.is_notified
        await peer.settle()
        assert peer.ended == [peer.session]
        assert "planted" in caplog.text

    run(main)


def test_an_answer_that_cannot_be_made_at_once_ends_the_connection_after_the_earlier_ones() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now a", "raise-late 0", "now b")
        assert await peer.listen() == ["a"]
        assert peer.pipe.has_sent_end

    run(main)


def test_a_broker_that_stops_answers_pending_requests_with_available_data() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("pass 1 a", "later b!", "pass 1 c", "later d", "pass 1 e")
        peer.session.close_for_shutdown()
        peer.session.close_for_shutdown()
        assert await peer.listen() == []
        assert not peer.pipe.is_closed
        peer.progress.advance(1, 1)
        assert await peer.listen() == ["a", "b hurried", "c"]
        assert peer.front_end.abandoned == ["d"]
        assert peer.pipe.is_closed
        assert peer.ended == [peer.session]

    run(main)


def test_a_conversation_may_close_while_it_handles_a_request() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now a", "close", "now never")
        assert await peer.listen() == ["a", "closing"]
        assert peer.pipe.has_sent_end
        assert not peer.session.eof_received()  # asyncio then closes the transport
        peer.pipe.close()
        await peer.settle()
        assert peer.ended == [peer.session]

    run(main)


def test_a_lingering_connection_goes_on_reading_after_a_long_poll_was_answered() -> None:
    """One read contains a request with an unsent answer, a long poll and a protocol error: the close answers the long
    poll."""

    async def main() -> None:
        peer = Peer()
        peer.say("now a", "later b!", "bad words")
        await peer.settle()
        assert peer.pipe.has_sent_end
        assert peer.pipe.reads

    run(main)


def test_a_closing_connection_waits_for_its_peer_to_read() -> None:
    async def main() -> None:
        peer = Peer(room=1000)
        peer.say("big 1000000")
        await peer.settle()
        peer.session.close()
        await peer.settle()
        assert not peer.pipe.has_sent_end
        while not peer.pipe.has_sent_end:
            peer.pipe.make_room(300_000)
            await peer.settle()
        assert len(peer.pipe.sent) == 1_000_001

    run(main)


class Unconversing(ScriptedFrontEnd):
    def open_conversation(self, address: str, outlet: SessionControl) -> object:  # type: ignore[override]
        raise RuntimeError("planted")


def test_a_front_end_that_cannot_begin_costs_only_that_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        peer = Peer(front_end=Unconversing())
        await peer.settle()
        assert peer.pipe.is_lost
        assert peer.ended == [peer.session]

    run(main)
    assert "could not open it" in caplog.text


def idle(peer: Peer) -> None:
    """Makes no request."""


def half_a_request(peer: Peer) -> None:
    peer.feed(b"now half of a requ")


def waiting(peer: Peer) -> None:
    peer.say("later a", "later b!", "pass 9 c", "|later d")


def answering(peer: Peer) -> None:
    peer.say("now a", "big 5000")


def blocked(peer: Peer) -> None:
    peer.pipe.room = 0
    peer.say("big 5000000", "later a")


def held_back(peer: Peer) -> None:
    peer.say(*["later a"] * 1001)


def taking_turns(peer: Peer) -> None:
    peer.say(*["later a"] * 100)


def over_quota(peer: Peer) -> None:
    peer.say("later a", "rest 1000", "now b")


def closing(peer: Peer) -> None:
    waiting(peer)
    peer.session.close()


def lingering(peer: Peer) -> None:
    peer.say("later a", "bad words")


def half_closed(peer: Peer) -> None:
    waiting(peer)
    assert peer.session.eof_received()


STATES = [
    idle, half_a_request, waiting, answering, blocked, held_back, taking_turns, over_quota, closing, lingering,
    half_closed,
]  # fmt: skip


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("prepare", STATES)
def test_a_connection_that_is_lost_in_any_state_ends_once_and_leaves_nothing(
    prepare: Callable[[Peer], None], settled: bool
) -> None:
    async def main() -> None:
        peer = Peer()
        prepare(peer)
        if settled:
            await peer.settle()
        peer.pipe.abort()
        await peer.settle()
        assert peer.conversation.times_closed == 1
        assert peer.ended == [peer.session]
        assert len(peer.front_end.abandoned) + peer.front_end.hurried == "".join(peer.front_end.handled).count("later")
        assert peer.time.next_due_ms() is None, "a timer is still running"
        peer.session.send([b"too late"])
        peer.session._pending_replies.pass_reached()
        peer.session.close()
        peer.session.abort()
        for key in peer.front_end.deferred:
            peer.front_end.deferred[key].resolve([b"too late"])
        await peer.settle()
        assert peer.conversation.times_closed == 1
        gone = weakref.ref(peer.session)
        progress = peer.progress
        del peer
        gc.collect()
        assert gone() is None, "the session is still referenced"
        progress.advance(99, 99)
        assert len(progress) == 0

    run(main)


def test_a_session_that_is_closed_before_it_is_made_never_converses() -> None:
    async def main() -> None:
        for end in ("close", "abort"):
            peer = Peer(is_made=False)
            getattr(peer.session, end)()
            peer.make()
            await peer.settle()
            assert peer.ended == [peer.session]
            assert peer.front_end.conversations == []

    run(main)


# --- idle connections -------------------------------------------------------------------------------------------------


def pass_time(peer: Peer, until_ms: int) -> None:
    while peer.time.step(until_ms):
        pass


def test_a_connection_that_asks_nothing_is_closed_after_the_limit() -> None:
    async def main() -> None:
        peer = Peer()
        pass_time(peer, IDLE_MS - 1)
        await peer.settle()
        assert not peer.pipe.is_closed
        pass_time(peer, IDLE_MS)
        await peer.settle()
        assert peer.pipe.is_closed
        assert peer.ended == [peer.session]

    run(main)


def test_a_request_keeps_a_connection_open_for_another_limit() -> None:
    async def main() -> None:
        peer = Peer()
        for number in range(1, 8):
            pass_time(peer, number * (IDLE_MS - 1000))
            peer.say("now a")
            await peer.settle()
            assert not peer.pipe.is_closed
        pass_time(peer, 7 * (IDLE_MS - 1000) + IDLE_MS * 5 // 4)
        await peer.settle()
        assert peer.pipe.is_closed

    run(main)


def test_drops_of_a_request_do_not_keep_a_connection_open() -> None:
    async def main() -> None:
        peer = Peer()
        for second in range(IDLE_MS * 5 // 4 // 1000):
            pass_time(peer, second * 1000)
            await peer.settle()
            if peer.pipe.is_closed:
                break
            peer.feed(b"x")
        assert peer.pipe.is_closed

    run(main)


def test_a_long_request_on_its_way_keeps_a_connection_open() -> None:
    async def main() -> None:
        peer = Peer()
        for minute in range(60):
            pass_time(peer, minute * 60_000)
            peer.feed(b"x" * 10_000)
            await peer.settle()
        assert not peer.pipe.is_closed

    run(main)


def test_a_peer_that_waits_for_an_answer_is_not_idle() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("later a")
        pass_time(peer, 10 * IDLE_MS)
        await peer.settle()
        assert not peer.pipe.is_closed
        peer.front_end.deferred["a"].resolve([b"a\n"])
        assert await peer.listen() == ["a"]
        pass_time(peer, 12 * IDLE_MS)
        await peer.settle()
        assert peer.pipe.is_closed

    run(main)


@pytest.mark.parametrize("end", [idle, closing])
def test_a_peer_that_never_reads_is_cut_off(end: Callable[[Peer], None]) -> None:
    async def main() -> None:
        peer = Peer(room=0)
        peer.say("big 500000", "pass 1 b")
        end(peer)
        peer.progress.advance(9, 9)
        await peer.settle()
        pass_time(peer, IDLE_MS * 5 // 4)
        await peer.settle()
        assert peer.pipe.is_lost
        assert peer.ended == [peer.session]

    run(main)


def test_a_peer_that_reads_slowly_is_not_cut_off() -> None:
    async def main() -> None:
        peer = Peer(room=0)
        peer.say("big 5000000")
        for minute in range(20):
            await peer.settle()
            pass_time(peer, minute * 60_000)
            peer.pipe.make_room(SLICE_BYTES)
        assert not peer.pipe.is_lost

    run(main)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_connection_that_received_much_and_rests_gives_its_memory_back() -> None:
    async def main() -> None:
        peer = Peer()
        peer.say("now small")
        assert len(peer.buffer_releaser) == 0
        peer.feed(b"now " + bytes(200_000).replace(b"\0", b"x"))
        peer.conversation.is_restless = True  # the request was received in part
        while peer.time.step(5_000):
            pass
        assert peer.conversation.times_rested > 0
        peer.conversation.is_restless = False
        peer.feed(b"\n")
        while peer.time.step(10_000):
            pass
        assert len(peer.buffer_releaser) == 0
        assert [len(line) for line in await peer.listen()] == [5, 200_000]

    run(main)


def test_a_connection_that_ends_is_no_longer_watched_for_its_rest() -> None:
    async def main() -> None:
        peer = Peer()
        peer.feed(bytes(100_000))
        assert len(peer.buffer_releaser) == 1
        peer.session.abort()
        await peer.settle()
        assert len(peer.buffer_releaser) == 0

    run(main)
