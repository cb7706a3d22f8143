"""Options of consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from trimq.client.consuming.allocation import Allocation, Average
from trimq.client.consuming.lanes import Lanes
from trimq.client.consuming.offsets import LocalFile
from trimq.client.consuming.process_queue import BufferLimits
from trimq.client.consuming.starts import Start
from trimq.client.messages import MessageQueue
from trimq.client.once.guard import Guard
from trimq.client.timing import Duration, to_milliseconds

OnQueues = Callable[[Sequence[MessageQueue]], Awaitable[object]]

AT_MOST_ONCE, AT_LEAST_ONCE, ONCE = "at-most-once", "at-least-once", "once"
MANUAL = "manual"
PULL, POP = "pull", "pop"
DEFAULT_ATTEMPTS = 16
_SHORTEST_LEASE_MS = 100


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer.

    `start`: where the group begins in queues without a committed offset. `ordered`: one message of a queue at a time,
    with a lock at the broker; failures are tried again in place. `broadcast`: every member gets all messages, once.
    `allocate`: how queues are divided among the members. `commit`: seconds between commits, or "manual".
    `delivery`: "at-most-once" commits before the handler runs, "at-least-once" after it, "once" does so
    with a guard `once` that lets the effect of each message happen once. `max_attempts`: deliveries of
    a message before it is dead-lettered; None: 16, or without end if ordered. `revoke_grace`: time for running handlers
    when a queue goes to another member. `work_timeout`: after this time a message is delivered again, and the late
    result of its handler is ignored. `strict`: refuse to start if another member subscribes differently.
    `mode`: "pull", or "pop": every member takes messages of every queue, each with a lease of `lease` seconds at the
    broker, which is renewed while a handler works. `lanes`: priorities of the subscribed topics."""

    start: Start = Start.LAST
    ordered: bool = False
    broadcast: bool = False
    allocate: Allocation = field(default_factory=Average)
    commit: Duration | str = 5.0
    delivery: str = AT_LEAST_ONCE
    offsets: LocalFile | None = None
    limits: BufferLimits = field(default_factory=BufferLimits)
    max_attempts: int | None = None
    retry_pause: Duration = 1.0
    revoke_grace: Duration = 5.0
    work_timeout: Duration = 900.0
    strict: bool = False
    mode: str = PULL
    lease: Duration = 60.0
    once: Guard | None = None
    lanes: Lanes | None = None
    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None
    on_lost: OnQueues | None = None

    def __post_init__(self) -> None:
        if self.delivery not in (AT_MOST_ONCE, AT_LEAST_ONCE, ONCE):
            raise ValueError(f"delivery must be {AT_MOST_ONCE!r}, {AT_LEAST_ONCE!r} or {ONCE!r}, not {self.delivery!r}")
        if (self.delivery == ONCE) != (self.once is not None):
            raise ValueError(f"delivery={ONCE!r} needs a guard, and a guard delivery={ONCE!r}: see trimq.client.once")
        if isinstance(self.commit, str) and self.commit != MANUAL:
            raise ValueError(f"commit must be a number of seconds or {MANUAL!r}, not {self.commit!r}")
        if self.broadcast and self.ordered:
            raise ValueError("a broadcast consumer cannot be ordered: its members share no locks")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts}")
        if self.mode not in (PULL, POP):
            raise ValueError(f"mode must be {PULL!r} or {POP!r}, not {self.mode!r}")
        if self.mode == POP:
            self._check_pop()

    def _check_pop(self) -> None:
        if self.ordered or self.broadcast:
            raise ValueError('mode="pop" can be neither ordered nor broadcast')
        if self.delivery == AT_MOST_ONCE:
            raise ValueError('mode="pop" is at least once: a message is acknowledged after its handler')
        if self.offsets is not None:
            raise ValueError('mode="pop" has no offsets in a file: the broker keeps them')
        if self.start not in (Start.FIRST, Start.LAST):
            raise ValueError('mode="pop" begins at Start.FIRST or Start.LAST')
        if to_milliseconds(self.lease) < _SHORTEST_LEASE_MS:
            raise ValueError(f"a lease must be at least {_SHORTEST_LEASE_MS} ms long")
