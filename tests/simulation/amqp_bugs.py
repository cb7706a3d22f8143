"""Bugs that the simulation of AMQP's sessions must find when they are put into the real code."""

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
    """A publisher hears of its message before that is synced."""

    class Hasty(Reply):
        def __init__(self, lane: object, parts: Parts | None, build: Build, number: int, needs_sync: bool) -> None:
            super().__init__(lane, parts, build, number, needs_sync=False)

    patch.setattr(confirms, "Reply", Hasty)


def acks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was settled is not written."""
    patch.setattr(AckWriter, "_write_segment", lambda self, folder, segment: segment.unwritten.clear())


def gone_before_it_is_buried(patch: pytest.MonkeyPatch) -> None:
    """A message leaves its queue when its dead letter is on the way."""

    def give_up(self: Any, backlog: Any, stored: Any, reason: Any, delivery_counts: Any, back: Any = None) -> None:
        self._queue.give_up((stored,), reason, delivery_counts.taken)
        backlog.settle((stored.offset,))

    def give_up_batch(self: Any, backlog: Any, batch: Any, reason: Any) -> None:
        self._queue.give_up(batch, reason, 0)
        backlog.settle([stored.offset for stored in batch])

    patch.setattr(DeadLetterHandoff, "give_up", give_up)
    patch.setattr(DeadLetterHandoff, "give_up_batch", give_up_batch)


def marks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What comes again looks as if it came for the first time."""
    requeue = Backlog.requeue
    patch.setattr(Backlog, "requeue", lambda self, stored, delivery_counts: requeue(self, stored, DeliveryCounts()))


def prefetch_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A consumer is given one more than it wants."""
    room = Consumer.room.fget
    assert room is not None
    patch.setattr(Consumer, "room", property(lambda self: room(self) + 1))


def lost_clients_kept(patch: pytest.MonkeyPatch) -> None:
    """What a client had whose connection is lost stays with it."""
    patch.setattr(Context, "release_all", lambda self: None)


def transient_kept(patch: pytest.MonkeyPatch) -> None:
    """Every message of a durable queue is kept over a restart."""
    terms = QueueContents._place_message
    patch.setattr(QueueContents, "_place_message", lambda self, is_transient, *others: terms(self, False, *others))


def pending_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """A queue that somebody else has just declared is there, whatever becomes of that."""
    patch.setattr(Catalogue, "pending", lambda self, kind, key: None)


def skipped_on_return(patch: pytest.MonkeyPatch) -> None:
    """Behind the cursor, messages are skipped when one comes back."""
    requeue = Backlog.requeue

    def skip(self: Any, stored: Any, delivery_counts: Any) -> None:
        requeue(self, stored, delivery_counts)
        if self.log.next_live(self.cursor) is not None:
            self.cursor += 1

    patch.setattr(Backlog, "requeue", skip)


def shared_bodies_dropped(patch: pytest.MonkeyPatch) -> None:
    """The first queue that is done with a body takes it from all the others."""

    def release(self: Any, blob: int) -> None:
        shelf, number = self._shelf(blob), blob & ~VOLATILE
        shelf.counts.take(number)
        if shelf.log.segments.is_live(number):
            shelf.log.acks.ack(number)

    patch.setattr(SharedBodyStore, "release", release)


AMQP_BUGS: dict[str, Plant] = {
    "messages are confirmed when written": confirmed_when_written,
    "acks are not written": acks_forgotten,
    "a message is gone before it is buried": gone_before_it_is_buried,
    "redelivered messages are not marked": marks_forgotten,
    "prefetch is one too many": prefetch_forgotten,
    "lost clients keep their messages": lost_clients_kept,
    "transient messages outlive a restart": transient_kept,
    "pending definitions are taken for durable": pending_taken_for_durable,
    "messages are skipped when one comes back": skipped_on_return,
    "shared bodies go with the first queue": shared_bodies_dropped,
}
