"""RocketMQ's VIP channel for old clients: two ports below the broker's port, also for a port chosen by the system,
unless it is taken."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from server.scripted import LOOPS, run

from tools.broker import running
from tools.rocketmq_wire import Wire
from trimq.clock import Clock, LoopTime, WallTime
from trimq.config import Address, Settings, load
from trimq.offload import ThreadOffload
from trimq.server.connection.listener import is_free
from trimq.server.front_ends import PlannedListener, configured_front_ends
from trimq.server.node import Node, Platform
from trimq.storage.io.memory_files import MemoryFiles

both_loops = pytest.mark.parametrize("loop", LOOPS)
HOST = "127.0.0.1"
SETTINGS = {
    "kafka.listen": "off",
    "amqp.listen": "off",
    "http.listen": "off",
    "rocketmq.grpc_listen": "off",
    "rocketmq.listen": f"{HOST}:0",
    "rocketmq.broker_listen": f"{HOST}:0",
    "data_dir": "here",
    "rocketmq.commit_file_bytes": "1048576",
    "rocketmq.index_keys": "1000",
}
_ATTEMPTS = 20


def two_ports() -> tuple[socket.socket, socket.socket]:
    """Binds a port chosen by the system, and the second port below it."""
    for _ in range(_ATTEMPTS):
        upper, lower = socket.socket(), socket.socket()
        upper.bind((HOST, 0))
        with suppress(OSError):
            lower.bind((HOST, upper.getsockname()[1] - 2))
            return upper, lower
        upper.close()
        lower.close()
    raise AssertionError("no free pair of ports")


def plan_with(port: int, settings: Settings) -> Mapping[str, PlannedListener]:
    """Plan as with port 0, if the system chose this port."""
    planned = configured_front_ends(settings)
    return planned | {"rocketmq_broker": planned["rocketmq_broker"]._replace(address=Address(HOST, port))}


async def listeners_with(port: int) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    syncs, work = ThreadOffload("sync", loop), ThreadOffload("work", loop)
    platform = Platform(MemoryFiles(), Clock(WallTime(), LoopTime()), syncs, work, work, work, random.Random(7))
    node = Node(load(SETTINGS, {}), platform, partial(plan_with, port))
    try:
        return await node.start()
    finally:
        await node.stop()
        syncs.stop()
        work.stop()


@both_loops
def test_it_is_opened_below_the_port_that_the_system_picked(loop: str) -> None:
    async def main() -> None:
        upper, lower = two_ports()
        port: int = upper.getsockname()[1]
        upper.close()
        lower.close()
        assert (await listeners_with(port))["rocketmq_vip"] == f"{HOST}:{port - 2}"

    run(main, loop)


@both_loops
@pytest.mark.parametrize("does_listen", [True, False])
def test_it_is_left_out_where_its_port_is_taken(loop: str, does_listen: bool) -> None:
    async def main() -> None:
        upper, lower = two_ports()
        port: int = upper.getsockname()[1]
        upper.close()
        with lower:
            if does_listen:
                lower.listen()
            assert not await is_free(HOST, port - 2)
            assert list(await listeners_with(port)) == ["rocketmq", "rocketmq_broker"]
        assert await is_free(HOST, port - 2)

    run(main, loop)


def test_old_clients_send_there(tmp_path: Path) -> None:
    for number in range(_ATTEMPTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with running(folder) as addresses:
            if "rocketmq_vip" not in addresses:
                continue  # the port is taken: the next broker gets another one
            ports = [int(addresses[name].rpartition(":")[2]) for name in ("rocketmq_broker", "rocketmq_vip")]
            assert ports[0] - ports[1] == 2
            with Wire(addresses["rocketmq_vip"]) as vip, Wire(addresses["rocketmq_broker"]) as wire:
                vip.send("old", b"body")
                assert wire.bodies("old") == [b"body"]
            return
    raise AssertionError("the VIP port was never opened")
