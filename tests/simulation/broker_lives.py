"""Starts, stops and crashes of the real broker in the simulation, with clients beside it. A workload defines the
clients and the invariants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from clients import Client
from simulated_files import SimulatedFiles
from simulated_loop import Host
from simulated_trace import SimulationFailure
from simulation import Death, Environment
from surroundings import Surroundings

from trimq.config import Settings
from trimq.server.front_ends import PlannedListener
from trimq.server.node import Node, Platform


class BrokerLives:
    def __init__(
        self,
        random: Random,
        settings: Settings,
        plan: Callable[[Settings], dict[str, PlannedListener]],
        table_snapshot_bytes: int,
        surroundings: Surroundings,
    ) -> None:
        self._random = random
        self._settings = settings
        self._plan = plan
        self._table_snapshot_bytes = table_snapshot_bytes
        self._surroundings = surroundings
        self._node: Node | None = None
        self._files: SimulatedFiles
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._failures: list[BaseException] = []

    # -- for the workload to define

    def _make_clients(self) -> Sequence[Client]:
        raise NotImplementedError

    def _check_recovered(self, node: Node) -> None:
        """Compares the recovered state with the expected one."""
        raise NotImplementedError

    def check(self) -> None:
        self._check_clients()

    # -- starts and stops of the broker

    async def start_broker(self, environment: Environment) -> Node:
        platform = Platform(
            environment.files,
            environment.clock,
            environment.offload,
            environment.work_offload,
            environment.work_offload,
            environment.work_offload,
            environment.random,
        )
        node = Node(self._settings, platform, self._plan)
        environment.host.start(self._end_when_failed(node, environment), "failure")
        await node.start()
        self._files = environment.files
        # No client is connected yet: the listeners have just begun to serve.
        self._check_recovered(node)
        for table in (node.core.topics._catalogue._table, node.core.cursors._table):
            table._snapshot_above_bytes = self._table_snapshot_bytes  # type: ignore[union-attr]
        self._node = node
        return node

    async def _end_when_failed(self, node: Node, environment: Environment) -> None:
        """Stops a failed node as the command line does."""
        await node.failed.wait()
        assert node.failure is not None
        node.abort()
        environment.failed(node.failure)

    async def stop_broker(self, broker: Node) -> None:
        self._surroundings.end_run()
        await broker.stop()

    def recovered(self, broker: Node) -> None:
        self._surroundings.begin_run(self._random.choice((0.001, 0.01, 0.1, 1, 60)))

    def choose_lifetime_s(self) -> float:
        return self._surroundings.tempo_s * self._random.choice((1, 5, 20)) * self._random.random()

    def would_not_start(self, error: Exception) -> None:
        raise SimulationFailure(f"the broker does not start: {error}")

    def died(self, way: Death) -> None:
        self._node = None
        self._surroundings.end_run()

    # -- clients

    def begin(self, clients: Host) -> None:
        self._surroundings.loop = clients.loop
        for client in self._make_clients():
            host = clients.loop.host(client.name)
            task = self._tasks[client.name] = host.start(client.run(), client.name)
            task.add_done_callback(self._client_ended)

    def finish(self) -> None:
        self._surroundings.finish()

    def still_waiting(self) -> list[str]:
        return [name for name, task in self._tasks.items() if not task.done()]

    def _client_ended(self, task: asyncio.Task[Any]) -> None:
        error = task.exception()
        if isinstance(error, Exception):
            self._failures.append(SimulationFailure(f"{task.get_name()}: {error}"))
            self._failures[-1].__cause__ = error
        elif error is not None:
            self._failures.append(error)  # not part of the simulation: passed on to the caller

    def _check_clients(self) -> None:
        if self._failures:
            raise self._failures[0]
