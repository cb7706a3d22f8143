"""Calls of grpcio over a real socket: answered when their reply is ready, streams in both directions, and a stop that
ends all calls."""

from __future__ import annotations

import asyncio
import socket

import grpc
import grpc.aio
import pytest
from protocols.grpc.echo_bench import PATIENCE_S, SMALL, EchoBench, with_bench
from protocols.grpc.http2_peer import call, frames_of, headers, request_fields, settings

from trimq.errors import StartupError
from trimq.protocols.grpc.frames import PREFACE, ErrorCode, FrameType, window_update


def test_a_call_is_handed_over_with_its_caller() -> None:
    async def check(bench: EchoBench) -> None:
        assert await bench.ask(b"x", metadata=[("x-mq-client-id", "me"), ("raw-bin", b"\xff")]) == b"echo x"
        (call_info,) = bench.echo.call_info
        assert call_info.address.startswith("127.0.0.1:")
        assert call_info.metadata["x-mq-client-id"] == "me"
        assert call_info.remaining_ms is not None
        assert 0 < call_info.remaining_ms <= PATIENCE_S * 1100  # grpcio rounds the time-out up
        assert bench.metrics.requests.value == 1

    with_bench(check)


def test_an_answer_of_several_messages_keeps_its_order() -> None:
    async def check(bench: EchoBench) -> None:
        call = bench.channel.unary_stream("/test.Echo/Parts")(b"x", timeout=PATIENCE_S)
        assert [part async for part in call] == [b"a", b"b"]

    with_bench(check)


def test_a_write_is_answered_when_it_is_durable() -> None:
    async def check(bench: EchoBench) -> None:
        asked = asyncio.ensure_future(bench.ask(b"write"))
        await bench.until(lambda: len(bench.echo.call_info) == 1)
        bench.progress.advance(3, 2)
        assert await bench.ask(b"meanwhile") == b"echo meanwhile"
        assert not asked.done()
        bench.progress.advance(3, 3)
        assert await asked == b"durable"

    with_bench(check)


def test_a_deferred_call_is_answered_by_its_event() -> None:
    async def check(bench: EchoBench) -> None:
        asked = asyncio.ensure_future(bench.ask(b"wait"))
        await bench.until(lambda: len(bench.echo.held) == 1)
        bench.echo.held[0].resolve([b"there"])
        assert await asked == b"there"

    with_bench(check)


def test_a_client_that_cancels_is_forgotten() -> None:
    async def check(bench: EchoBench) -> None:
        asked = bench.ask(b"wait")
        await bench.until(lambda: len(bench.echo.held) == 1)
        asked.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await bench.echo.abandoned.wait()

    with_bench(check)


def test_a_rejection_by_the_front_end_ends_with_a_grpc_status() -> None:
    async def check(bench: EchoBench) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await bench.ask(b"bad")
        assert (found.value.code(), found.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "bad bytes")

    with_bench(check)


def test_a_bug_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def check(bench: EchoBench) -> None:
        assert await bench.ask(b"bug") == b"our fault"

    with_bench(check)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("method", ["PullMessage", "UpdateOffset"])
def test_a_method_that_is_not_served_is_unimplemented(method: str) -> None:
    async def check(bench: EchoBench) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await bench.ask(b"", method)
        assert found.value.code() is grpc.StatusCode.UNIMPLEMENTED

    with_bench(check)


def test_a_request_that_is_too_large_is_refused() -> None:
    async def check(bench: EchoBench) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await bench.ask(b"x" * 5000)
        assert found.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    with_bench(check)


def test_a_stream_carries_messages_in_both_directions() -> None:
    async def check(bench: EchoBench) -> None:
        call = bench.channel.stream_stream("/test.Echo/Stream")(timeout=PATIENCE_S)
        await call.write(b"1")
        assert await call.read() == b"echo 1"
        (opened,) = bench.echo.opened
        opened.sink([b"unasked", b"twice"])
        assert [await call.read(), await call.read()] == [b"unasked", b"twice"]
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await bench.until(lambda: opened.is_closed)

    with_bench(check)


@pytest.mark.parametrize(
    ("raw", "code"), [(b"bad", grpc.StatusCode.INVALID_ARGUMENT), (b"bug", grpc.StatusCode.INTERNAL)]
)
def test_a_stream_that_is_rejected_ends_with_a_status(raw: bytes, code: grpc.StatusCode) -> None:
    async def check(bench: EchoBench) -> None:
        call = bench.channel.stream_stream("/test.Echo/Stream")(timeout=PATIENCE_S)
        await call.write(raw)
        assert await call.code() is code
        await bench.until(lambda: bench.echo.opened[0].is_closed)

    with_bench(check)


def test_a_stop_answers_waiting_calls_and_ends_the_streams() -> None:
    async def check(bench: EchoBench) -> None:
        stream = bench.channel.stream_stream("/test.Echo/Stream")(timeout=PATIENCE_S)
        await stream.write(b"1")
        await stream.read()
        asked = asyncio.ensure_future(bench.ask(b"wait"))
        await bench.until(lambda: len(bench.echo.held) == 1)
        bench.listener.stop_accepting()
        bench.listener.close_sessions()
        assert await asked == b"in a hurry"
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        await bench.listener.closed()

    with_bench(check)


def test_an_abort_ends_all_waiting_calls() -> None:
    async def check(bench: EchoBench) -> None:
        asked = asyncio.ensure_future(bench.ask(b"wait"))
        await bench.until(lambda: len(bench.echo.held) == 1)
        bench.listener.stop_accepting()
        bench.listener.abort_sessions()
        with pytest.raises(grpc.aio.AioRpcError):
            await asked
        async with asyncio.timeout(PATIENCE_S):
            await bench.listener.closed()

    with_bench(check)


def test_a_taken_port_is_a_one_line_error() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            bench = EchoBench()
            with pytest.raises(StartupError, match=f"port {port} on 127.0.0.1 is taken by another program"):
                await bench.listener.start("127.0.0.1", port)

    asyncio.run(check())


def test_two_listeners_do_not_share_a_port() -> None:
    async def check(bench: EchoBench) -> None:
        with pytest.raises(StartupError, match="is taken"):
            await bench.make_listener().start("127.0.0.1", bench.listener.port)

    with_bench(check)


def test_a_waiting_client_that_vanishes_is_forgotten() -> None:
    async def check(bench: EchoBench) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", bench.listener.port)
        writer.write(PREFACE + settings() + call(1, b"wait") + headers(3, request_fields("Stream")))
        await bench.until(lambda: len(bench.echo.held) == len(bench.echo.opened) == 1)
        writer.transport.abort()
        await bench.until(lambda: bench.listener.connections == 0)
        assert bench.echo.abandoned.is_set() or not bench.echo.held[0].is_open
        assert bench.echo.opened[0].is_closed

    with_bench(check)


def test_invalid_bytes_are_refused_and_harm_no_other_client() -> None:
    async def check(bench: EchoBench) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.listener.port)
        writer.write(PREFACE + b"\xff" * 100)
        async with asyncio.timeout(PATIENCE_S):
            sent = frames_of(await reader.read())
        assert (sent[-1].kind, sent[-1].payload[4:8]) == (
            FrameType.GOAWAY,
            bytes((0, 0, 0, ErrorCode.FRAME_SIZE_ERROR)),
        )
        assert await bench.ask(b"x") == b"echo x"
        writer.close()
        await writer.wait_closed()

    with_bench(check)


def test_calls_beyond_the_limit_wait_for_their_turn() -> None:
    async def check(bench: EchoBench) -> None:
        asked = [asyncio.ensure_future(bench.ask(b"wait")) for _ in range(10)]
        for number in range(10):
            await bench.until(lambda number=number: len(bench.echo.held) > number)  # type: ignore[misc]
            assert len(bench.echo.held) <= number + 3
            bench.echo.held[number].resolve([b"%d" % number])
        assert sorted(await asyncio.gather(*asked)) == [b"%d" % number for number in range(10)]

    with_bench(check, limits=SMALL._replace(streams=3))


def test_a_client_gets_deadline_exceeded() -> None:
    async def check(bench: EchoBench) -> None:
        timeout_s = 0.05
        while not bench.echo.held:  # the deadline passed before the call arrived: retry with twice the time
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await bench.channel.unary_unary("/test.Echo/Plain")(b"wait", timeout=timeout_s)
            assert found.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            timeout_s *= 2
        async with asyncio.timeout(PATIENCE_S):
            await bench.echo.abandoned.wait()

    with_bench(check)


def test_long_messages_pass_in_both_directions_many_at_once() -> None:
    async def check(bench: EchoBench) -> None:
        bodies = [bytes([number]) * 700_000 for number in range(20)]
        answers = await asyncio.gather(*(bench.ask(body) for body in bodies))
        assert [answer == b"echo " + body for answer, body in zip(answers, bodies, strict=True)] == [True] * 20

    with_bench(check, limits=SMALL._replace(message_bytes=1 << 20))


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_client_may_compress(compression: grpc.Compression) -> None:
    async def check(bench: EchoBench) -> None:
        assert await bench.ask(b"x" * 3000, compression=compression) == b"echo " + b"x" * 3000

    with_bench(check)


def test_little_is_held_for_a_client_that_does_not_read() -> None:
    """The client's windows are small; it opens them only at the end."""

    async def check(bench: EchoBench) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.listener.port)
        writer.write(PREFACE + settings((4, 100)))
        for number in range(1, 201, 2):
            writer.write(call(number, b"x" * 4000))
        http2 = bench.sessions[0]._conversation._http2  # type: ignore[attr-defined]
        await bench.until(lambda: http2._last == 199)
        assert http2.send_window.held_bytes <= 20_000 + 4010
        assert len(bench.echo.call_info) < 10
        assert await bench.ask(b"x") == b"echo x"
        writer.write(settings((4, 1 << 20)) + window_update(0, 1 << 20))
        await bench.until(lambda: len(bench.echo.call_info) == 101 and not http2.streams)
        received = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            while received.count(b"grpc-status") < 100:
                received += await reader.read(1 << 16)
        writer.close()
        await writer.wait_closed()

    with_bench(check, limits=SMALL._replace(unsent_bytes=20_000, message_bytes=1 << 20))
