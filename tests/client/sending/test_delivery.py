"""Sends against scripted brokers: tries, time, choice of brokers. Check 5 of the acceptance list, without a stopped
process: the broker is silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from client.scripted import (
    ROUTE,
    SEND,
    SEND_BATCH,
    SILENT,
    UNREGISTER,
    Answer,
    Script,
    Server,
    route_of,
    serving,
    stored,
    storing,
)

from trimq.client import (
    AsyncClient,
    BufferFull,
    Closed,
    ConnectionLost,
    Message,
    MessageQueue,
    NoRoute,
    Refused,
    SendFailed,
    SendStatus,
    SendTimedOut,
    TimedOut,
)
from trimq.clock import monotonic_seconds
from trimq.wire.remoting import Command


def answering(send: Callable[[Server, Command], Answer | None]) -> Script:
    """Returns the script of a server that is its own only broker."""

    def script(server: Server, command: Command) -> Answer | None:
        if command.code in (SEND, SEND_BATCH):
            return send(server, command)
        return route_of({"a": server.address}) if command.code == ROUTE else Answer()

    return script


def silent(server: Server, command: Command) -> Answer | None:
    return SILENT


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_the_status_says_how_safe_a_message_is(code: int, status: SendStatus) -> None:
    async def main() -> None:
        async with (
            serving(answering(lambda server, command: stored(command, 5, code))) as server,
            AsyncClient(server.address) as mq,
        ):
            sent = await mq.send("orders", b"x")
        assert (sent.status, sent.offset) == (status, 5)
        assert len(server.asked(SEND)) == 1

    asyncio.run(main())


def test_a_message_that_is_not_safe_yet_is_sent_again_if_that_is_wanted() -> None:
    async def main() -> None:
        codes = iter((10, 12, 0))
        async with (
            serving(answering(lambda server, command: stored(command, 5, next(codes)))) as server,
            AsyncClient(server.address, retry_not_stored=True) as mq,
        ):
            sent = await mq.send("orders", b"x")
        assert sent.status is SendStatus.OK
        assert len(server.asked(SEND)) == 3

    asyncio.run(main())


def test_a_silent_broker_is_tried_three_times_within_one_timeout() -> None:
    async def main() -> None:
        async with serving(answering(silent)) as server, AsyncClient(server.address) as mq:
            began = monotonic_seconds()
            with pytest.raises(SendTimedOut) as failed:
                await mq.send("orders", b"x", timeout=0.6)
            took = monotonic_seconds() - began
            assert took >= 0.55
            assert isinstance(failed.value, TimedOut)
            assert len(failed.value.attempts) == len(server.asked(SEND)) == 3
            # The same message each time, in different queues.
            assert len({command.fields["i"] for command in server.asked(SEND)}) == 1
            assert len({attempt.queue for attempt in failed.value.attempts[:2]}) == 2

    asyncio.run(main())


def test_the_three_modes_differ_in_their_tries() -> None:
    async def main() -> None:
        async with (
            serving(answering(lambda server, command: Answer(1, remark="disk"))) as server,
            AsyncClient(server.address) as mq,
        ):
            with pytest.raises(Refused, match="disk") as refused:
                await mq.send("orders", b"1")
            assert refused.value.code == 1
            assert len(server.asked(SEND)) == 3
            with pytest.raises(Refused):
                await mq.send_nowait("orders", b"2")
            assert len(server.asked(SEND)) == 6
            assert len({command.fields["e"] for command in server.asked(SEND)[3:]}) == 1
            mq.send_oneway("orders", b"3")
            with pytest.raises(Refused):
                await mq.send("orders", b"4", ordered=True)
            assert [bytes(command.body) for command in server.asked(SEND)[6:]] == [b"3", b"4"]

    asyncio.run(main())


def test_with_two_brokers_the_second_gets_the_message() -> None:
    async def main() -> None:
        async with serving(storing) as good, serving(silent) as bad:

            def script(server: Server, command: Command) -> Answer | None:
                return route_of({"bad": bad.address, "good": good.address}) if command.code == ROUTE else Answer()

            async with serving(script) as names, AsyncClient(names.address) as mq:
                for _ in range(8):
                    sent = await mq.send("orders", b"x", timeout=1)
                    assert sent.queue.broker == "good"
                # It is left out after its first failure.
                assert len(bad.asked(SEND)) <= 1
                assert len(good.asked(SEND)) == 8

    asyncio.run(main())


@pytest.mark.parametrize("code", [13, 29, 3])
def test_codes_that_no_other_try_can_mend_fail_at_once(code: int) -> None:
    async def main() -> None:
        async with (
            serving(answering(lambda server, command: Answer(code))) as server,
            AsyncClient(server.address) as mq,
        ):
            with pytest.raises(Refused) as refused:
                await mq.send("orders", b"x")
        assert refused.value.code == code
        assert len(server.asked(SEND)) == 1

    asyncio.run(main())


def test_a_busy_broker_costs_time_and_no_tries() -> None:
    async def main() -> None:
        busy = iter([2, 14, 2, 2, 2])

        def send(server: Server, command: Command) -> Answer:
            return Answer(code) if (code := next(busy, 0)) else stored(command)

        async with serving(answering(send)) as server, AsyncClient(server.address) as mq:
            assert (await mq.send("orders", b"x", timeout=20)).status is SendStatus.OK
            assert len(server.asked(SEND)) == 6

    asyncio.run(main())


def test_a_lost_connection_is_opened_again() -> None:
    async def main() -> None:
        def send(server: Server, command: Command) -> Answer | None:
            if len(server.asked(SEND)) == 1:
                server.cut()
                return SILENT
            return stored(command)

        async with serving(answering(send)) as server, AsyncClient(server.address) as mq:
            assert (await mq.send("orders", b"x")).status is SendStatus.OK
            assert len(server.asked(SEND)) == 2

    asyncio.run(main())


def test_a_broker_that_is_not_there_is_named() -> None:
    async def main() -> None:
        async with (
            serving(lambda server, command: route_of({"gone": "127.0.0.1:1"})) as names,
            AsyncClient(names.address) as mq,
        ):
            with pytest.raises(SendFailed, match=r"127\.0\.0\.1:1") as failed:
                await mq.send("orders", b"x")
            assert isinstance(failed.value.__cause__, ConnectionLost)

    asyncio.run(main())


def test_a_topic_without_route_is_refused() -> None:
    async def main() -> None:
        async with (
            serving(lambda server, command: Answer(17 if command.code == ROUTE else 0)) as names,
            AsyncClient(names.address) as mq,
        ):
            with pytest.raises(NoRoute, match="orders"):
                await mq.send("orders", b"x")

    asyncio.run(main())


def test_the_next_name_server_is_asked_if_one_is_dead() -> None:
    async def main() -> None:
        async with serving(storing) as server:
            for _ in range(4):  # in whatever order they are asked
                async with AsyncClient(f"127.0.0.1:1;{server.address}") as mq:
                    assert (await mq.send("orders", b"x")).status is SendStatus.OK

    asyncio.run(main())


def test_cached_routes_serve_while_no_name_server_answers() -> None:
    async def main() -> None:
        async with serving(storing) as broker:

            def script(server: Server, command: Command) -> Answer | None:
                return route_of({"a": broker.address}) if command.code == ROUTE else Answer()

            async with serving(script) as names, AsyncClient(names.address) as mq:
                await mq.send("orders", b"x")
                names.script = silent
                names.cut()
                for _ in range(5):
                    await mq.send("orders", b"x")
                names.script = script

    asyncio.run(main())


def test_messages_of_ordered_sends_wait_for_each_other_in_their_queue() -> None:
    async def main() -> None:
        async with serving(storing) as server, AsyncClient(server.address) as mq:
            await mq.send("orders", b"first", key="k", ordered=True)
            under_way = []

            def send(server: Server, command: Command) -> Answer | None:
                under_way.append(len(mq._opened().links.find(server.address).pending))  # type: ignore[union-attr]
                return stored(command)

            server.script = answering(send)
            futures = [mq.send_nowait("orders", b"%d" % number, key="k", ordered=True) for number in range(20)]
            await asyncio.gather(*futures)
            assert [int(command.body) for command in server.asked(SEND)[1:]] == [*range(20)]
            assert set(under_way) == {1}

    asyncio.run(main())


def test_too_much_under_way_blocks_and_then_is_refused_in_time() -> None:
    async def main() -> None:
        async with serving(answering(silent)) as server:
            async with AsyncClient(server.address, max_bytes=30_000, retries=0, timeout=20) as mq:
                waiting = [mq.send_nowait("orders", b"x" * 8000) for _ in range(3)]
                with pytest.raises(BufferFull):
                    mq.send_nowait("orders", b"x" * 8000)
                began = monotonic_seconds()
                with pytest.raises(BufferFull, match="24000 bytes"):
                    await mq.send("orders", b"x" * 8000, timeout=0.2)
                assert monotonic_seconds() - began >= 0.19
                assert mq._opened().room.bytes == 24_000
            # Closing ends them.
            for future in waiting:
                with pytest.raises(Closed):
                    await future

    asyncio.run(main())


def test_a_send_that_waits_for_room_goes_on_when_there_is_some() -> None:
    async def main() -> None:
        async with serving(storing) as server, AsyncClient(server.address, max_messages=2) as mq:
            sent = await asyncio.gather(*(mq.send("orders", b"%d" % number) for number in range(50)))
            assert len(sent) == len(server.asked(SEND)) == 50

    asyncio.run(main())


def test_round_robin_serves_all_queues() -> None:
    async def main() -> None:
        async with serving(storing) as server, AsyncClient(server.address) as mq:
            chosen = Counter([(await mq.send("orders", b"x")).queue for _ in range(40)])
            assert chosen == {MessageQueue("orders", "a", number): 10 for number in range(4)}

    asyncio.run(main())


def test_all_clients_of_a_process_share_one_connection() -> None:
    async def main() -> None:
        async with serving(storing) as broker:

            def script(server: Server, command: Command) -> Answer | None:
                return route_of({"a": broker.address}) if command.code == ROUTE else Answer()

            async with serving(script) as names:
                clients = [AsyncClient(names.address, group=f"g{number}") for number in range(20)]
                for mq in clients:
                    await mq.__aenter__()
                await asyncio.gather(*(mq.send("orders", b"x") for mq in clients))
                assert (names.connected, broker.connected) == (1, 1)
                for mq in clients[1:]:
                    await mq.close()
                await clients[0].send("orders", b"x")
                await clients[0].close()
                assert (names.connected, broker.connected) == (1, 1)
                assert broker.asked(UNREGISTER)

    asyncio.run(main())


def test_a_batch_is_one_request() -> None:
    async def main() -> None:
        async with serving(storing) as server, AsyncClient(server.address) as mq:
            sent = await mq.send_all("orders", [Message(b"1"), Message(b"2"), Message(b"3")])
            assert [each.offset for each in sent] == [0, 1, 2]
            assert len({each.id for each in sent}) == 3
            assert len(server.asked(SEND_BATCH)) == 1
            assert await mq.send_all("orders", []) == []

    asyncio.run(main())
