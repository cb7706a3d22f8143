"""Bugs that are planted in what groups rely on that pop, to see that the simulation catches each."""

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


def returned_again(patch: pytest.MonkeyPatch) -> None:
    """After a crash nobody looks whether a message has come back already."""
    patch.setattr(RetryTopics, "was_already_stored", lambda self, group, topic, unit, pop_time_ms, is_dead: False)


def taken_not_kept(patch: pytest.MonkeyPatch) -> None:
    """After a crash a message that was out is neither out nor there."""

    def mark_in_flight(self: Any, queue: InFlightQueue, offsets: Sequence[int], kept: Any) -> None:
        self._lease_all(queue, offsets, kept)

    patch.setattr(InFlightTable, "mark_in_flight", mark_in_flight)


def settled_not_kept(patch: pytest.MonkeyPatch) -> None:
    """After a crash a message is out that was settled."""

    def ack_all(self: Any, queue: InFlightQueue, offsets: Sequence[int]) -> Any:
        self._release_all(queue, offsets)
        return self.store_next_offset(queue, queue.next_offset)

    patch.setattr(InFlightTable, "ack_all", ack_all)


def passed_not_kept(patch: pytest.MonkeyPatch) -> None:
    """After a power cut that kept what was taken, and not how far the group had got, it is taken once more."""
    mark_in_flight = InFlightTable.mark_in_flight

    def forgetful(self: Any, queue: InFlightQueue, offsets: Sequence[int], kept: InFlightRecord) -> Any:
        return mark_in_flight(self, queue, offsets, msgspec.structs.replace(kept, is_before_next_offset=False))

    patch.setattr(InFlightTable, "mark_in_flight", forgetful)


def given_while_something_is_out(patch: pytest.MonkeyPatch) -> None:
    """Of a queue that is read in order, one gets the next message while another has the one before."""
    patch.setattr(InFlightQueue, "in_flight_offsets", property(lambda self: []))


def over_too_soon(patch: pytest.MonkeyPatch) -> None:
    """After a crash a message is out for a little less than was said."""
    load = InFlightTable.load

    def hurried(self: Any) -> None:
        extend = self._extend_lease
        load(self)
        for queue in self:
            for offset, in_flight in queue.in_flight.items():
                kept = self._table.get(f"{queue.stream.topic.hex}/{queue.stream.number}/{offset}/{queue.group}")
                extend(queue.group, in_flight, kept.number - 300)

    patch.setattr(InFlightTable, "load", hurried)


def answered_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A producer that calls is told that its message is there before it is on disk."""

    class Hasty(Reply):
        @classmethod
        def when_durable(cls, number: int, build: Build, lane: object = None) -> Reply:
            return Reply.when_durable(0, build, lane)

    patch.setattr(send_batch, "Reply", Hasty)


def acknowledged_in_vain(patch: pytest.MonkeyPatch) -> None:
    """What is acknowledged by calls that come together is answered, and stays out."""
    patch.setattr(Acknowledger, "ack_all", lambda self, receipts: [None for _ in receipts])


CALLING_BUGS: dict[str, Plant] = {
    "calls are answered before their pass is durable": answered_too_soon,
    "what calls settle together stays out": acknowledged_in_vain,
    "what is settled is not kept": settled_not_kept,
}

POPPING_BUGS: dict[str, Plant] = {
    "what came back comes back again": returned_again,
    "what is out is not kept": taken_not_kept,
    "what is settled is not kept": settled_not_kept,
    "what is passed is not kept": passed_not_kept,
    "more is given while something is out": given_while_something_is_out,
    "time is over too soon": over_too_soon,
}
