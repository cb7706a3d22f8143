"""Queue of passwords to check: one at a time, one client address after the other, so that a flood of guesses from one
address delays no other. Knows neither users nor rights."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from trimq.clock import Timeline
from trimq.core.security.login_delays import LoginDelays, source_of
from trimq.offload import Offload

log = logging.getLogger(__name__)

# Many clients with different users may log in from one address at once, after a restart of the broker. A check takes
# 50 ms.
MAX_WAITING_PER_ADDRESS = 200
MAX_WAITING = 2000

# A login that would have to wait longer is refused without a check.
MAX_WAIT_MS = 5_000

Work = Callable[[], object]
Done = Callable[[bool], None]
IsWanted = Callable[[], bool]


@dataclass(slots=True, eq=False)
class _Check:
    key: Hashable
    name: str
    source: str
    work: Work
    waiters: list[tuple[IsWanted, Done]] = field(default_factory=list)

    def is_wanted(self) -> bool:
        return any(is_wanted() for is_wanted, _ in self.waiters)


class LoginQueue:
    """Checks equal logins once. A login whose client is gone is not checked."""

    def __init__(self, offload: Offload, timeline: Timeline, max_delay_ms: int) -> None:
        self._offload = offload
        self._timeline = timeline
        self._delays = LoginDelays(timeline.now_ms, max_delay_ms)
        self._waiting: dict[str, deque[_Check]] = {}  # by address; the first is next
        self._checks: dict[Hashable, _Check] = {}  # all that wait, are delayed or run
        self._counts: Counter[str] = Counter()  # of these, by address
        self._is_checking = False
        self.refused = 0
        """Logins that were refused without a check, because too many waited."""

    def __len__(self) -> int:
        return len(self._checks)

    def is_delayed(self, name: str, address: str) -> bool:
        """True after too many failures of this name from this address."""
        return self._delays.is_delayed(name, source_of(address))

    def check(
        self, key: Hashable, name: str, address: str, work: Work, done: Done, is_wanted: IsWanted = lambda: True
    ) -> None:
        """Calls `done` with whether `work` returned True, now or later. Logins from one address with the same `key` are
        equal. `is_wanted` returns False once the client is gone."""
        source = source_of(address)
        key = source, key
        known = self._checks.get(key)
        if known is not None:
            known.waiters.append((is_wanted, done))
            return
        due_ms = self._delays.reserve(name, source, MAX_WAIT_MS) if self._has_room(source) else None
        if due_ms is None:
            self.refused += 1
            log.info("login of %s from %s: refused without a check (too many failed or waiting logins)", name, address)
            done(False)
            return
        check = self._checks[key] = _Check(key, name, source, work, [(is_wanted, done)])
        self._counts[source] += 1
        if due_ms <= self._timeline.now_ms():
            self._enqueue(check)
        else:
            self._timeline.call_at(due_ms, lambda: self._enqueue(check))

    def check_on_loop(
        self, name: str, address: str, work: Callable[[], bool], done: Done, is_wanted: IsWanted = lambda: True
    ) -> None:
        """Same as `check`, for work that takes no time: does it on the loop, now or when the delay is over."""
        source = source_of(address)
        due_ms = self._delays.reserve(name, source, MAX_WAIT_MS)
        if due_ms is None:
            self.refused += 1
            log.info("login of %s from %s: refused without a check (too many failed logins)", name, address)
            done(False)
            return

        def check() -> None:
            if not is_wanted():
                self._delays.dropped(name, source)
                return
            is_right = work()
            if is_right:
                self._delays.succeeded(name, source)
            else:
                self._delays.failed(name, source)
            done(is_right)

        if due_ms <= self._timeline.now_ms():
            check()
        else:
            self._timeline.call_at(due_ms, check)

    def _has_room(self, source: str) -> bool:
        if self._counts[source] >= MAX_WAITING_PER_ADDRESS and source in self._waiting:
            waiting = self._waiting.pop(source)
            kept = deque(check for check in waiting if check.is_wanted())
            if kept:
                self._waiting[source] = kept
            for check in waiting:
                if not check.is_wanted():
                    self._drop(check)
        return self._counts[source] < MAX_WAITING_PER_ADDRESS and len(self._checks) < MAX_WAITING

    def _enqueue(self, check: _Check) -> None:
        self._waiting.setdefault(check.source, deque()).append(check)
        self._check_next()

    def _check_next(self) -> None:
        while not self._is_checking and self._waiting:
            source = next(iter(self._waiting))
            waiting = self._waiting.pop(source)
            check = waiting.popleft()
            if waiting:
                self._waiting[source] = waiting  # behind the other addresses
            if not check.is_wanted():
                self._drop(check)
                continue
            self._is_checking = True
            self._offload(check.work, lambda result, error, check=check: self._checked(check, result, error))  # type: ignore[misc]

    def _drop(self, check: _Check) -> None:
        self._delays.dropped(check.name, check.source)
        self._finish(check, False)

    def _checked(self, check: _Check, result: object, error: BaseException | None) -> None:
        self._is_checking = False
        is_right = error is None and result is True
        if is_right:
            self._delays.succeeded(check.name, check.source)
        else:
            self._delays.failed(check.name, check.source)
        self._finish(check, is_right)
        self._check_next()

    def _finish(self, check: _Check, is_right: bool) -> None:
        del self._checks[check.key]
        self._counts[check.source] -= 1
        if not self._counts[check.source]:
            del self._counts[check.source]
        for _, done in check.waiters:
            try:
                done(is_right)
            except Exception:
                log.exception("login of %s: the answer failed; continuing with the other logins", check.name)
