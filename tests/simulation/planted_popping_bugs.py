"""Planted bugs in POP that the simulation must find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from planted_rocketmq_bugs import Plant

from trimq.core.commit_log.retry_topics import RetryTopics
from trimq.core.pop.acks import Acknowledger
from trimq.core.pop.in_flight import InFlightQueue, InFlightRecord, InFlightTable
from trimq.protocols.contract import Build, Reply
from trimq.protocols.rocketmq.grpc.handlers import send_batch


def revived_again(patch: pytest.MonkeyPatch) -> None:
    """After a crash the broker does not check whether a message was already revived."""
    patch.setattr(RetryTopics, "was_already_stored", lambda self, group, topic, unit, pop_time_ms, is_dead: False)


def leases_not_stored(patch: pytest.MonkeyPatch) -> None:
    """After a crash a message in flight is neither in flight nor ready."""

    def mark_in_flight(self: Any, queue: InFlightQueue, offsets: Sequence[int], kept: Any) -> None:
        self._lease_all(queue, offsets, kept)

    patch.setattr(InFlightTable, "mark_in_flight", mark_in_flight)


def acks_not_stored(patch: pytest.MonkeyPatch) -> None:
    """After a crash an acked message is in flight again."""

    def ack_all(self: Any, queue: InFlightQueue, offsets: Sequence[int]) -> Any:
        self._release_all(queue, offsets)
        return self.store_next_offset(queue, queue.next_offset)

    patch.setattr(InFlightTable, "ack_all", ack_all)


def next_offset_not_stored(patch: pytest.MonkeyPatch) -> None:
    """After a power cut that kept the leases but lost the next offset, messages are popped again."""
    mark_in_flight = InFlightTable.mark_in_flight

    def forgetful(self: Any, queue: InFlightQueue, offsets: Sequence[int], kept: InFlightRecord) -> Any:
        return mark_in_flight(self, queue, offsets, msgspec.structs.replace(kept, is_before_next_offset=False))

    patch.setattr(InFlightTable, "mark_in_flight", forgetful)


def delivered_while_others_are_in_flight(patch: pytest.MonkeyPatch) -> None:
    """Of an ordered queue, the next message is delivered while the previous one is in flight."""
    patch.setattr(InFlightQueue, "in_flight_offsets", property(lambda self: []))


def leases_expire_early(patch: pytest.MonkeyPatch) -> None:
    """After a crash a lease expires a little too early."""
    load = InFlightTable.load

    def hurried(self: Any) -> None:
        extend = self._extend_lease
        load(self)
        for queue in self:
            for offset, in_flight in queue.in_flight.items():
                kept = self._table.get(f"{queue.stream.topic.hex}/{queue.stream.number}/{offset}/{queue.group}")
                extend(queue.group, in_flight, kept.number - 300)

    patch.setattr(InFlightTable, "load", hurried)


def confirmed_before_durable(patch: pytest.MonkeyPatch) -> None:
    """A message sent by gRPC is confirmed before it is on disk."""

    class Hasty(Reply):
        @classmethod
        def when_durable(cls, number: int, build: Build, lane: object = None) -> Reply:
            return Reply.when_durable(0, build, lane)

    patch.setattr(send_batch, "Reply", Hasty)


def batched_acks_ignored(patch: pytest.MonkeyPatch) -> None:
    """Acks of concurrent calls are confirmed, but the messages stay in flight."""
    patch.setattr(Acknowledger, "ack_all", lambda self, receipts: [None for _ in receipts])


CALLING_BUGS: dict[str, Plant] = {
    "calls are answered before their pass is durable": confirmed_before_durable,
    "acks of concurrent calls are ignored": batched_acks_ignored,
    "acks are not stored": acks_not_stored,
}

POPPING_BUGS: dict[str, Plant] = {
    "revived messages are revived again": revived_again,
    "leases are not stored": leases_not_stored,
    "acks are not stored": acks_not_stored,
    "the next offset is not stored": next_offset_not_stored,
    "messages are delivered while earlier ones are in flight": delivered_while_others_are_in_flight,
    "leases expire early": leases_expire_early,
}
