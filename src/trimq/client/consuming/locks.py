"""Locks of queues at their brokers, for ordered consumption: held for 30 seconds, renewed every 20."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from trimq.client.errors import ClientError
from trimq.client.instance import Instance
from trimq.client.messages import MessageQueue
from trimq.wire.remoting_codes import RequestCode

log = logging.getLogger(__name__)

HELD_MS = 30_000
RENEWED_MS = 20_000
_TIMEOUT_MS = 1000


class _Queue(msgspec.Struct, frozen=True):
    topic: str
    brokerName: str
    queueId: int


class _Locked(msgspec.Struct):
    lockOKMQSet: list[_Queue] = []


_decode = msgspec.json.Decoder(_Locked).decode


class Locks:
    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._until_ms: dict[MessageQueue, int] = {}

    def holds(self, queue: MessageQueue) -> bool:
        return self._until_ms.get(queue, 0) > self._instance.clock.liveness.now_ms()

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Locks queues or renews their locks. Returns those that are locked now."""
        locked: set[MessageQueue] = set()
        for address, asked in self._by_address(queues).items():
            began_ms = self._instance.clock.liveness.now_ms()
            try:
                answer = await self._instance.links.ask(
                    address, RequestCode.LOCK_BATCH_MQ, body=self._body(asked), timeout_ms=_TIMEOUT_MS
                )
                found = _decode(answer.body or b"{}").lockOKMQSet
            except (ClientError, msgspec.MsgspecError) as error:
                log.info("%s: queues not locked (%s)", address, error)
                continue
            for each in found:
                queue = MessageQueue(each.topic, each.brokerName, each.queueId)
                locked.add(queue)
                self._until_ms[queue] = began_ms + HELD_MS
        return locked

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        for address, asked in self._by_address(queues).items():
            for queue in asked:
                self._until_ms.pop(queue, None)
            try:
                await self._instance.links.ask(
                    address, RequestCode.UNLOCK_BATCH_MQ, body=self._body(asked), timeout_ms=_TIMEOUT_MS
                )
            except ClientError as error:
                log.info("%s: queues not unlocked, which their locks do by themselves (%s)", address, error)

    def forget(self, queue: MessageQueue) -> None:
        self._until_ms.pop(queue, None)

    def _by_address(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._instance.routes.find(queue.topic)
            address = None if route is None else route.master(queue.broker)
            if address is not None:
                found.setdefault(address, []).append(queue)
        return found

    def _body(self, queues: Iterable[MessageQueue]) -> bytes:
        return msgspec.json.encode(
            {
                "consumerGroup": self._group,
                "clientId": self._instance.client_id,
                "mqSet": [_Queue(queue.topic, queue.broker, queue.id) for queue in queues],
                "onlyThisBroker": False,
            }
        )
