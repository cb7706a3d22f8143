"""Behaviour of sends when brokers are busy or gone: wait, drop, spool."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from client.scripted import ROUTE, SEND, SEND_BATCH, Answer, Server, route_of, serving, stored

from trimq.client import AsyncClient, BufferFull, Client, Drop, Dropped, Refused, Sent, Spool, Spooled
from trimq.client.sending.spool_file import SpoolFile, SpoolInUse
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.testing import Broker
from trimq.wire.remoting import Command

BUSY = Answer(2, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")


class Load:
    """Script of a broker that is busy as long as `is_busy`."""

    def __init__(self) -> None:
        self.is_busy = True
        self.refuses: set[bytes] = set()
        self.bodies: list[bytes] = []

    def __call__(self, server: Server, command: Command) -> Answer | None:
        if command.code == ROUTE:
            return route_of({"a": server.address})
        if command.code not in (SEND, SEND_BATCH):
            return Answer()
        if self.is_busy:
            return BUSY
        if any(body in command.body for body in self.refuses):
            return Answer(13, remark="the message is illegal")
        if command.code == SEND:
            self.bodies.append(command.body)
        else:
            self.bodies += [bytes(entry.body) for entry in read_batch(command.body)]
        return stored(command)


def bodies(broker: Broker) -> list[bytes]:
    return [record.body or b"" for number in range(4) for record in broker.records("orders", number)]


async def empty(mq: AsyncClient) -> None:
    async with asyncio.timeout(30):
        while mq.spooled:
            await asyncio.sleep(0.005)


def test_a_busy_broker_drops_what_has_too_low_a_priority_and_keeps_the_rest() -> None:
    load = Load()

    async def main() -> None:
        async with serving(load) as server, AsyncClient(server.address, on_busy=Drop(below=5)) as mq:
            assert await mq.send("orders", b"low", priority=4) is Dropped.BUSY
            assert await mq.send_nowait("orders", b"low", priority=4) is Dropped.BUSY
            assert mq.dropped == 2
            high = mq.send_nowait("orders", b"high", priority=5, timeout=20)
            await asyncio.sleep(0.05)
            load.is_busy = False
            assert isinstance(await high, Sent)

    asyncio.run(main())
    assert load.bodies == [b"high"]


def test_a_busy_broker_is_spared_by_the_spool_and_gets_the_messages_later(tmp_path: Path) -> None:
    load = Load()

    async def main() -> None:
        async with serving(load) as server, AsyncClient(server.address, on_busy=Spool(tmp_path)) as mq:
            for number in range(5):
                assert isinstance(await mq.send("orders", b"%d" % number), Spooled)
            assert mq.spooled == 5
            load.is_busy = False
            await empty(mq)
            assert isinstance(await mq.send("orders", b"5"), Sent)

    asyncio.run(main())
    assert sorted(load.bodies) == [b"%d" % number for number in range(6)]


def test_messages_of_a_key_are_sent_in_order_when_the_broker_is_back(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, on_busy=Spool(tmp_path), timeout=2) as mq:
            await mq.send("orders", b"0", key="key-0")
            await asyncio.to_thread(broker.stop)
            for number in range(1, 400):
                future = mq.send_nowait("orders", b"%d" % number, key=f"key-{number % 4}")
                assert isinstance(await future, Spooled)
            await asyncio.to_thread(broker.restart)
            await empty(mq)
            assert isinstance(await mq.send("orders", b"400", key="key-0"), Sent)

    asyncio.run(main())
    for key in range(4):
        name = f"key-{key}".encode()
        mine = [
            record
            for queue in range(4)
            for record in broker.records("orders", queue)
            if dict(record.headers).get("__SHARDINGKEY") == name
        ]
        assert [int(record.body or b"") for record in mine] == list(range(key, 401 if key == 0 else 400, 4))


PROGRAM = """
import asyncio, sys
from trimq.client import AsyncClient, Spool, Spooled

async def main():
    async with AsyncClient(sys.argv[1], on_busy=Spool(sys.argv[2]), timeout=1) as mq:
        for number in range(100000):
            if isinstance(await mq.send("orders", b"%d" % number, key="k"), Spooled):
                print(number, flush=True)

asyncio.run(main())
"""


def test_nothing_of_the_spool_is_lost_when_the_process_is_killed(broker: Broker, tmp_path: Path) -> None:
    with Client(broker.rocketmq) as mq:
        mq.send("orders", b"first", key="k")
    address = broker.rocketmq
    broker.stop()
    acknowledged: list[int] = []
    for _ in range(3):  # later rounds append to what earlier ones left
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            acknowledged += [int(process.stdout.readline()) for _ in range(20)]
            os.kill(process.pid, signal.SIGKILL)
    broker.restart()

    async def drain() -> None:
        async with AsyncClient(address, on_busy=Spool(tmp_path)) as mq:
            assert mq.spooled >= 60
            await empty(mq)

    asyncio.run(drain())
    found = [int(body) for body in bodies(broker) if body.isdigit()]
    rounds = [index for index, number in enumerate(found) if number == 0]
    assert len(rounds) == 3
    for begin, end in zip(rounds, [*rounds[1:], len(found)], strict=True):
        assert found[begin:end] == list(range(end - begin))
        assert end - begin >= 20


def test_a_message_that_is_refused_for_good_is_set_aside_and_holds_up_nothing(tmp_path: Path) -> None:
    load = Load()
    load.refuses.add(b"illegal")

    async def main() -> None:
        async with serving(load) as server, AsyncClient(server.address, on_busy=Spool(tmp_path)) as mq:
            for body in (b"1", b"illegal", b"2"):
                await mq.send("orders", body, key="k")
            load.is_busy = False
            await empty(mq)
            with pytest.raises(Refused):  # not spooled: it will never be taken
                await mq.send("orders", b"illegal")

    asyncio.run(main())
    assert load.bodies == [b"1", b"2"]
    assert b"illegal" in (tmp_path / "refused").read_bytes()


def test_a_full_spool_raises(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(Load()) as server, AsyncClient(server.address, on_busy=Spool(tmp_path, 1500)) as mq:
            await mq.send("orders", b"x" * 1000)
            with pytest.raises(BufferFull, match="spool"):
                await mq.send("orders", b"x" * 1000)

    asyncio.run(main())


def test_a_delayed_message_waits_in_the_spool_without_losing_its_time(broker: Broker, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(broker.rocketmq, on_busy=Spool(tmp_path), timeout=2) as mq:
            await mq.send("orders", b"first")
            await asyncio.to_thread(broker.stop)
            await mq.send("orders", b"later", delay=600)
            await asyncio.to_thread(broker.restart)
            await empty(mq)
        assert bodies(broker) == [b"first"]
        await asyncio.to_thread(broker.advance, "11m")
        assert sorted(bodies(broker)) == [b"first", b"later"]

    asyncio.run(main())


def test_two_clients_cannot_share_a_spool(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(Load()) as server, AsyncClient(server.address, on_busy=Spool(tmp_path)):
            with pytest.raises(SpoolInUse):
                async with AsyncClient(server.address, on_busy=Spool(tmp_path)):
                    raise AssertionError("not reached")

    asyncio.run(main())


# -- files


def reopened(folder: Path) -> SpoolFile:
    file = SpoolFile(folder, segment_bytes=100)
    file.open()
    return file


def test_records_come_back_in_order_over_segments_and_restarts(tmp_path: Path) -> None:
    records = [b"%d" % number * 10 for number in range(50)]
    file = reopened(tmp_path)
    for record in records:
        file.append([record])
    file.close()
    found: list[bytes] = []
    while len(found) < 50:
        file = reopened(tmp_path)
        assert file.count == 50 - len(found)
        chunk = file.read(64)
        found += chunk.records
        file.remove(chunk)
        file.close()
    assert found == records
    assert len(list(tmp_path.glob("*.spool"))) <= 2


@pytest.mark.parametrize("tail", [b"\x00", struct.pack(">II", 5, 1) + b"abc", struct.pack(">II", 3, 1) + b"abc"])
def test_a_torn_record_is_left_out_and_later_ones_are_read(tmp_path: Path, tail: bytes) -> None:
    file = reopened(tmp_path)
    file.append([b"1", b"2"])
    file.close()
    with (tmp_path / "000000000000.spool").open("ab") as segment:
        segment.write(tail)
    file = reopened(tmp_path)
    file.append([b"3"])
    assert file.count == 3
    first = file.read(1000)
    file.remove(first)
    second = file.read(1000)
    file.remove(second)
    assert (first.records, second.records, file.count) == ([b"1", b"2"], [b"3"], 0)
    file.close()


def test_a_record_above_the_size_of_a_read_is_read_whole(tmp_path: Path) -> None:
    file = reopened(tmp_path)
    file.append([b"x" * 5000])
    assert file.read(10).records == [b"x" * 5000]
    file.close()
