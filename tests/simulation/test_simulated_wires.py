"""Wires have the guarantees of TCP and asyncio, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from simulated_loop import Host, SimulatedLoop
from simulated_network import SimulatedServer
from simulated_trace import Trace
from simulated_wires import Peer

SEEDS = range(30)


class Recorder(asyncio.Protocol):
    """Records its input."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.events.append("end")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost" if error is None else "broken")


class BufferedRecorder(Recorder, asyncio.BufferedProtocol):
    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray(700)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


class World:
    """A loop, a server's host and the protocols that it created."""

    def __init__(self, seed: int, make: Callable[[], Recorder] = Recorder) -> None:
        self.loop = SimulatedLoop(Random(f"{seed} order"), Random(f"{seed} network"), Trace())
        self.loop.network.weather.worsen(Random(seed))
        self.host: Host = self.loop.host("server")
        self.made: list[Recorder] = []
        self._make = make
        listening = self.host.start(self.loop.create_server(self._accept, "127.0.0.1", 9092))
        self.run(listening.done)
        self.server: SimulatedServer = listening.result()

    def _accept(self) -> Recorder:
        self.made.append(self._make())
        return self.made[-1]

    def connect(self) -> tuple[Peer, Recorder]:
        peer = self.loop.network.connect(9092)
        self.run(lambda: bool(self.made) and "made" in self.made[-1].events)
        return peer, self.made[-1]

    def run(self, is_over: Callable[[], bool], limit_s: float = 600) -> None:
        assert self.loop.run_until(is_over, limit_s), "the condition was not met in time"

    def settle(self) -> None:
        """Runs until nothing is in transit."""
        assert not self.loop.run_until(lambda: False, limit_s=600)


@pytest.mark.parametrize("make", [Recorder, BufferedRecorder])
@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_arrive_whole_and_in_order_both_ways(seed: int, make: type[Recorder]) -> None:
    world = World(seed, make)
    peer, protocol = world.connect()
    sent = Random(seed).randbytes(20_000)
    for start in range(0, len(sent), 999):
        peer.send(sent[start : start + 999])
    protocol.transport.writelines([sent[:7], sent[7:]])
    world.run(lambda: len(protocol.received) == len(sent))
    assert protocol.received == sent

    async def receive_all() -> bytes:
        received = b""
        while len(received) < len(sent):
            received += await peer.receive()
        return received

    assert world.loop.run_until_complete(receive_all()) == sent


def test_delays_and_splits_differ_from_seed_to_seed() -> None:
    moments = set()
    for seed in SEEDS:
        world = World(seed)
        peer, protocol = world.connect()
        peer.send(b"x" * 100)
        world.run(lambda protocol=protocol: len(protocol.received) == 100)
        moments.add(world.loop.now_us)
    assert len(moments) > len(SEEDS) / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_peer_that_does_not_read_holds_the_server_back(seed: int) -> None:
    world = World(seed)
    peer, protocol = world.connect()
    protocol.transport.set_write_buffer_limits(high=1000, low=100)
    protocol.transport.write(b"x" * 400_000)
    world.settle()
    assert protocol.events == ["made", "pause"]
    assert protocol.transport.get_write_buffer_size() > 0

    async def receive_all() -> int:
        received = 0
        while received < 400_000:
            received += len(await peer.receive())
        return received

    world.loop.run_until_complete(receive_all())
    world.settle()
    assert protocol.events == ["made", "pause", "resume"]


def test_a_server_that_does_not_read_holds_the_peer_back() -> None:
    world = World(1)
    peer, protocol = world.connect()
    protocol.transport.pause_reading()
    peer.send(b"x" * 400_000)
    world.settle()
    assert not protocol.received
    assert peer.unsent > 0
    protocol.transport.resume_reading()
    world.settle()
    assert len(protocol.received) == 400_000


@pytest.mark.parametrize("seed", SEEDS)
def test_a_closing_server_first_sends_its_written_bytes(seed: int) -> None:
    world = World(seed)
    peer, protocol = world.connect()
    protocol.transport.write(b"y" * 50_000)
    protocol.transport.close()
    protocol.transport.write(b"too late")

    async def receive_all() -> bytes:
        received = b""
        while data := await peer.receive():
            received += data
        return received

    assert world.loop.run_until_complete(receive_all()) == b"y" * 50_000
    world.settle()
    assert protocol.events[-1] == "lost"
    assert protocol.events.count("lost") == 1


def test_the_end_of_a_peer_arrives_after_its_last_byte() -> None:
    world = World(2)
    peer, protocol = world.connect()
    peer.send(b"last words")
    peer.close()
    world.settle()
    assert protocol.received == b"last words"
    assert protocol.events == ["made", "end", "lost"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_is_noticed_by_both_sides_and_loses_only_the_end(seed: int) -> None:
    world = World(seed)
    peer, protocol = world.connect()
    sent = bytes(range(256)) * 40
    for at in range(0, len(sent), 100):
        peer.send(sent[at : at + 100])
    peer.wire.cut()
    world.settle()
    assert sent.startswith(protocol.received)
    assert protocol.events == ["made", "broken"]
    with pytest.raises(ConnectionResetError):
        world.loop.run_until_complete(peer.receive())
    with pytest.raises(ConnectionResetError):
        peer.send(b"more")


def test_an_aborted_connection_is_reset() -> None:
    world = World(3)
    peer, protocol = world.connect()
    protocol.transport.write(b"x" * 400_000)
    protocol.transport.abort()
    world.settle()
    assert protocol.events[-1] == "lost"

    async def receive_all() -> None:
        while await peer.receive():
            pass

    with pytest.raises(ConnectionResetError):
        world.loop.run_until_complete(receive_all())


def test_a_frozen_wire_delivers_later() -> None:
    world = World(4)
    peer, protocol = world.connect()
    peer.wire.freeze(90)
    peer.send(b"late")
    world.run(lambda: protocol.received == b"late")
    assert world.loop.time() > 90


def test_peers_of_a_dead_host_are_reset_and_its_port_is_free() -> None:
    world = World(5)
    peer, protocol = world.connect()
    world.loop.kill(world.host)
    with pytest.raises(ConnectionResetError):
        world.loop.run_until_complete(peer.receive())
    assert protocol.events == ["made"]
    with pytest.raises(ConnectionRefusedError):
        world.loop.network.connect(9092)


def test_a_port_is_taken_until_its_server_closes() -> None:
    world = World(6)
    with pytest.raises(OSError, match="in use"):
        world.loop.network.listen(Recorder, 9092, world.host)
    world.server.close()
    with pytest.raises(ConnectionRefusedError):
        world.loop.network.connect(9092)
    server = world.loop.network.listen(Recorder, 0, world.host)
    assert server.sockets[0].getsockname()[1] > 0


def test_a_transport_knows_both_addresses() -> None:
    world = World(7)
    _, protocol = world.connect()
    assert protocol.transport.get_extra_info("sockname") == ("127.0.0.1", 9092)
    assert protocol.transport.get_extra_info("peername")[0] == "127.0.0.1"
