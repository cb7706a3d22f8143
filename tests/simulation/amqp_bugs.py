"""Planted bugs that the simulation of AMQP sessions must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.queues.backlog import Backlog, DeliveryCounts
from trimq.core.queues.consumers import Consumer
from trimq.core.queues.contents import QueueContents
from trimq.core.queues.handoff import DeadLetterHandoff
from trimq.protocols.amqp import confirms
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.contract import Build, Parts, Reply
from trimq.storage.queue_log.ack_writer import AckWriter
from trimq.storage.queue_log.shared_bodies import VOLATILE, SharedBodyStore

Plant = Callable[[pytest.MonkeyPatch], None]


def confirmed_when_written(patch: pytest.MonkeyPatch) -> None:
    """A message is confirmed to its publisher before it is synced."""

    class Hasty(Reply):
        def __init__(self, lane: object, parts: Parts | None, build: Build, number: int, needs_sync: bool) -> None:
            super().__init__(lane, parts, build, number, needs_sync=False)

    patch.setattr(confirms, "Reply", Hasty)


def acks_not_written(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are not written."""
    patch.setattr(AckWriter, "_write_segment", lambda self, folder, segment: segment.unwritten.clear())


def removed_before_dead_lettered(patch: pytest.MonkeyPatch) -> None:
    """A message is removed from its queue before its dead letter is durable."""

    def give_up(self: Any, backlog: Any, stored: Any, reason: Any, delivery_counts: Any, back: Any = None) -> None:
        self._queue.give_up((stored,), reason, delivery_counts)
        backlog.settle((stored.offset,))

    def give_up_batch(self: Any, backlog: Any, batch: Any, reason: Any) -> None:
        self._queue.give_up(batch, reason, DeliveryCounts())
        backlog.settle([stored.offset for stored in batch])

    patch.setattr(DeadLetterHandoff, "give_up", give_up)
    patch.setattr(DeadLetterHandoff, "give_up_batch", give_up_batch)


def redeliveries_not_marked(patch: pytest.MonkeyPatch) -> None:
    """A redelivered message is not marked as redelivered."""
    requeue = Backlog.requeue
    patch.setattr(Backlog, "requeue", lambda self, stored, delivery_counts: requeue(self, stored, DeliveryCounts()))


def prefetch_exceeded(patch: pytest.MonkeyPatch) -> None:
    """A consumer gets one message more than its prefetch."""
    room = Consumer.room.fget
    assert room is not None
    patch.setattr(Consumer, "room", property(lambda self: room(self) + 1))


def unacked_not_requeued(patch: pytest.MonkeyPatch) -> None:
    """Unacked messages of a lost connection are not requeued."""
    patch.setattr(Context, "release_all", lambda self: None)


def transient_kept(patch: pytest.MonkeyPatch) -> None:
    """Every message of a durable queue survives a restart."""
    terms = QueueContents._place_message
    patch.setattr(QueueContents, "_place_message", lambda self, is_transient, *others: terms(self, False, *others))


def pending_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """A queue that another client has just declared is confirmed before its declaration is durable."""
    patch.setattr(Catalogue, "pending", lambda self, kind, key: None)


def skipped_on_requeue(patch: pytest.MonkeyPatch) -> None:
    """A message after the cursor is skipped when another is requeued."""
    requeue = Backlog.requeue

    def skip(self: Any, stored: Any, delivery_counts: Any) -> None:
        requeue(self, stored, delivery_counts)
        if self.log.next_live(self.cursor) is not None:
            self.cursor += 1

    patch.setattr(Backlog, "requeue", skip)


def shared_bodies_dropped(patch: pytest.MonkeyPatch) -> None:
    """The first queue that releases a shared body removes it for all others."""

    def release(self: Any, blob: int) -> None:
        shelf, number = self._shelf(blob), blob & ~VOLATILE
        shelf.counts.take(number)
        if shelf.log.segments.is_live(number):
            shelf.log.acks.ack(number)

    patch.setattr(SharedBodyStore, "release", release)


AMQP_BUGS: dict[str, Plant] = {
    "messages are confirmed when written": confirmed_when_written,
    "acks are not written": acks_not_written,
    "a message is removed before it is dead-lettered": removed_before_dead_lettered,
    "redelivered messages are not marked": redeliveries_not_marked,
    "the prefetch limit is exceeded by one": prefetch_exceeded,
    "unacked messages of lost clients are not requeued": unacked_not_requeued,
    "transient messages survive a restart": transient_kept,
    "pending definitions are taken for durable": pending_taken_for_durable,
    "messages are skipped when one is requeued": skipped_on_requeue,
    "shared bodies are removed with the first queue": shared_bodies_dropped,
}
