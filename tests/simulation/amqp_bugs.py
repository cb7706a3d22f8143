"""Bugs that the simulation of AMQP's sessions must find when they are put into the real code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.queues.backlog import Backlog, Tries
from trimq.core.queues.consumers import Consumer
from trimq.core.queues.handoff import Leaving
from trimq.core.queues.work_queue import Queue
from trimq.protocols.amqp import confirms
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.contract import Reply
from trimq.storage.queue_log.ack_writer import AckWriting
from trimq.storage.queue_log.shared_bodies import VOLATILE, Blobs

Plant = Callable[[pytest.MonkeyPatch], None]


def confirmed_when_written(patch: pytest.MonkeyPatch) -> None:
    """A publisher hears of its message before that is synced."""

    class Hasty(Reply):
        when_durable = Reply.when_written

    patch.setattr(confirms, "Reply", Hasty)


def acks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was settled is not written."""
    patch.setattr(AckWriting, "_write_segment", lambda self, folder, segment: segment.unwritten.clear())


def gone_before_it_is_buried(patch: pytest.MonkeyPatch) -> None:
    """A message leaves its queue when its dead letter is on the way."""

    def give_up(self: Any, backlog: Any, stored: Any, reason: Any, tries: Any, back: Any = None) -> None:
        self._write((stored,), reason, tries.taken)
        backlog.settle((stored.offset,))

    def give_up_run(self: Any, backlog: Any, run: Any, reason: Any) -> None:
        self._write(run, reason, 0)
        backlog.settle([stored.offset for stored in run])

    patch.setattr(Leaving, "give_up", give_up)
    patch.setattr(Leaving, "give_up_run", give_up_run)


def marks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What comes again looks as if it came for the first time."""
    give_back = Backlog.give_back
    patch.setattr(Backlog, "give_back", lambda self, stored, tries: give_back(self, stored, Tries()))


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
    terms = Queue._terms
    patch.setattr(Queue, "_terms", lambda self, is_transient, *others: terms(self, False, *others))


def pending_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """A queue that somebody else has just declared is there, whatever becomes of that."""
    patch.setattr(Catalogue, "pending", lambda self, kind, key: None)


def skipped_on_return(patch: pytest.MonkeyPatch) -> None:
    """Behind the cursor, messages are skipped when one comes back."""
    give_back = Backlog.give_back

    def skip(self: Any, stored: Any, tries: Any) -> None:
        give_back(self, stored, tries)
        if self.log.next_live(self.cursor) is not None:
            self.cursor += 1

    patch.setattr(Backlog, "give_back", skip)


def shared_bodies_dropped(patch: pytest.MonkeyPatch) -> None:
    """The first queue that is done with a body takes it from all the others."""

    def release(self: Any, blob: int) -> None:
        shelf, number = self._shelf(blob), blob & ~VOLATILE
        shelf.counts.take(number)
        if shelf.log.is_live(number):
            shelf.log.settle(number)

    patch.setattr(Blobs, "release", release)


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
