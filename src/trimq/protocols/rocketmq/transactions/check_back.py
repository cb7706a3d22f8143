"""Transaction check-back: asks producers about undecided half messages, a bounded number per turn of the loop. After
`transaction_check_max` checks the message is moved to TRANS_CHECK_MAX_TIME_TOPIC."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from trimq.clock import Timeline, Timer
from trimq.config import RocketMQ as RocketMQSettings
from trimq.core.api.commit_log_messages import OnDurable
from trimq.core.commit_log.dead_letters import CommitLogDeadLetters
from trimq.core.commit_log.stream import Appended
from trimq.core.failures.ledger import Reason
from trimq.core.scheduling.timers import RETRY_MS, TURN_MS
from trimq.errors import OffsetOutOfRange, PropertiesTooLong, Refusal
from trimq.formats.rocketmq_unit.copies import WAIT, copied_properties
from trimq.formats.rocketmq_unit.dead_letters import (
    CHECK_MAX_TOPIC,
    CHECKED_TIMES,
    PRODUCER_GROUP,
    REAL_QUEUE,
    REAL_TOPIC,
)
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY
from trimq.formats.rocketmq_unit.schedule import parse_time_ms
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, encode_unit
from trimq.model import SYSTEM, Caller
from trimq.protocols.rocketmq.clients.notifications import TransactionCheck
from trimq.protocols.rocketmq.clients.registry import Client, ClientRegistry
from trimq.protocols.rocketmq.state.identity import Identity
from trimq.protocols.rocketmq.transactions.half_messages import (
    OPTIONAL_PROPERTIES,
    TURN_MAX_BYTES,
    TURN_MAX_HALVES,
    HalfMessages,
    copy_half,
    read_half,
)

log = logging.getLogger(__name__)

IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"


class CheckBackSettings(NamedTuple):
    """Minimum age of a half message for a check, interval of rounds, maximum number of checks, and the age at which it
    is discarded even if no producer could be asked."""

    timeout_ms: int
    interval_ms: int
    max_checks: int
    max_age_ms: int


def check_back_settings(settings: RocketMQSettings) -> CheckBackSettings:
    return CheckBackSettings(
        settings.transaction_timeout_ms,
        settings.transaction_check_interval_ms,
        settings.transaction_check_max,
        settings.retention_ms,
    )


class _TurnBudget:
    """Work done in one turn of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.last: Appended | None = None

    @property
    def is_full(self) -> bool:
        return self.count >= TURN_MAX_HALVES or self.bytes >= TURN_MAX_BYTES

    def add(self, placed: Appended) -> None:
        self.bytes += placed.size
        self.last = placed


class TransactionChecker:
    def __init__(
        self,
        on_durable: OnDurable,
        dead_letters: CommitLogDeadLetters,
        timeline: Timeline,
        identity: Identity,
        halves: HalfMessages,
        clients: ClientRegistry,
        may_write_to: Callable[[Caller, str], bool],
        rng: random.Random,
        check_settings: CheckBackSettings,
    ) -> None:
        self._on_durable = on_durable
        self._dead_letters = dead_letters
        self._timeline = timeline
        self._identity = identity
        self._halves = halves
        self._clients = clients
        self._may_write_to = may_write_to
        self._rng = rng
        self.check_settings = check_settings
        self._timer: Timer | None = None
        self._pending_offsets: deque[int] | None = None  # rest of the current round; None between rounds
        self._congested: deque[int] = deque()  # those whose producers read too slowly
        self._next_ms = 0
        self._refusals: list[Refusal] = []
        self._is_stopped = False

    def stop(self) -> None:
        """Stops check-back; the next start continues."""
        self._is_stopped = True
        self._cancel()

    def update_check_settings(self, check_settings: CheckBackSettings) -> None:
        """Effective at once; the next round begins one interval from now."""
        self.check_settings = check_settings
        if self._pending_offsets is None and self._timer is not None:
            self._cancel()
            self.arm()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self) -> None:
        """Schedules the next round if any half message is undecided."""
        self._arm_at(self._timeline.now_ms() + self.check_settings.interval_ms)

    def _arm_at(self, due_ms: int) -> None:
        if self._timer is None and self._pending_offsets is None and len(self._halves) and not self._is_stopped:
            self._timer = self._timeline.call_at(due_ms, self._start_round)

    # -- rounds

    def _start_round(self) -> None:
        self._pending_offsets = deque(self._halves)
        self._next_ms = self._timeline.now_ms() + self.check_settings.interval_ms
        self._check_some()

    def _check_some(self) -> None:
        """Checks as many half messages as one turn of the loop allows. The rest follows when these are durable and
        their producers were asked: at most one turn's requests are pending."""
        self._timer = None
        if self._is_stopped or self._pending_offsets is None:
            return
        budget, began_ms = _TurnBudget(), self._timeline.now_ms()
        while self._pending_offsets and not budget.is_full and self._timeline.now_ms() - began_ms < TURN_MS:
            self._check_half(self._pending_offsets.popleft(), budget)
        if not self._pending_offsets:
            self._end_round()
        elif budget.last is None:
            self._continue_in(0)
        else:
            self._on_durable(budget.last.ticket, lambda done: self._continue_in(0))

    def _continue_in(self, milliseconds: int) -> None:
        if not self._is_stopped:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + milliseconds, self._check_some)

    def _end_round(self) -> None:
        """Ends the round when all were checked. Producers that read slowly, since requests carry whole messages, get
        the rest a second later rather than in the next round."""
        now_ms = self._timeline.now_ms()
        if self._congested and now_ms + RETRY_MS < self._next_ms:
            self._pending_offsets, self._congested = self._congested, deque()
            self._continue_in(RETRY_MS)
            return
        self._pending_offsets = None
        self._congested.clear()
        if self._refusals:
            count, last = len(self._refusals), self._refusals[-1]
            log.warning("%d half messages: check-back refused, will be retried (last reason: %s)", count, last)
            self._refusals = []
        self._halves.checkpoint()
        self._arm_at(max(self._next_ms, now_ms))

    def _check_half(self, offset: int, budget: _TurnBudget) -> None:
        since_ms = self._halves.since_ms(offset)
        age_ms = 0 if since_ms is None else self._timeline.now_ms() - since_ms
        if since_ms is None or age_ms < self.check_settings.timeout_ms:
            return
        budget.count += 1
        try:
            placed = self._check_or_discard(offset, age_ms)
        except OffsetOutOfRange:
            self._halves.forget((offset,))
        except Refusal as refusal:
            self._refusals.append(refusal)
        except Exception:  # the others must still be checked
            log.exception("half message at offset %d: check-back failed", offset)
        else:
            if placed is not None:
                budget.add(placed)

    def _check_or_discard(self, offset: int, age_ms: int) -> Appended | None:
        """Returns the new position of the half message, or of its discarded copy. None: not checked now."""
        unit = self._halves.unit(offset)
        properties = read_half(unit)
        times = parse_time_ms(properties.get(CHECKED_TIMES))
        if times >= self.check_settings.max_checks or age_ms >= self.check_settings.max_age_ms:
            return self._discard(offset, unit)
        if age_ms < parse_time_ms(properties.get(IMMUNITY_S)) * 1000 and not times:
            return None
        group, topic = properties.get(PRODUCER_GROUP, ""), properties.get(REAL_TOPIC, "")
        producer = self._choose_producer(group, topic)
        if producer is None:
            if self._producers(group, topic):
                self._congested.append(offset)
            return None
        properties[CHECKED_TIMES], properties[WAIT] = str(times + 1), "false"
        try:
            placed = self._halves.resolve(offset, self._halves.rewrite(unit, properties))[0]
        except PropertiesTooLong:
            return self._discard(offset, unit)  # no room for the check count
        self._on_durable(
            placed.ticket, lambda done: None if done.refusal else self._send_check(producer, group, topic, placed)
        )
        return placed

    def _discard(self, offset: int, unit: Unit) -> Appended:
        topic, stream = self._halves.stream(CHECK_MAX_TOPIC)
        properties = read_half(unit)
        properties.pop(WAIT, None)
        becomes = copy_half(topic, stream, unit, properties, 0)
        placed = self._halves.resolve(offset, becomes)[0]
        self._dead_letters.record_dead_letter(SYSTEM, topic, placed, becomes.draft, Reason.UNDECIDED)
        return placed

    # -- requests to producers

    def _producers(self, group: str, topic: str) -> list[Client]:
        """Connected producers of the group. The request carries the whole message: only those that may write to its
        topic get it."""
        return [each for each in self._clients.producers(group) if self._may_write_to(each.caller, topic)]

    def _choose_producer(self, group: str, topic: str) -> Client | None:
        """Chooses a connected producer at random. One that reads too slowly is not chosen: requests carry whole
        messages."""
        producers = self._producers(group, topic)
        if not producers:
            return None
        chosen = self._rng.choice(producers)
        if not chosen.outlet.is_congested:
            return chosen
        free = [each for each in producers if not each.outlet.is_congested]
        return self._rng.choice(free) if free else None

    def _send_check(self, producer: Client, group: str, topic: str, placed: Appended) -> None:
        """Sends the check-back request for the half message at its new position. If the chosen producer has become
        congested, asks another; if all are, waits for the next round."""
        recipient = self._choose_producer(group, topic) if producer.outlet.is_congested else producer
        if recipient is None:
            return
        request = self._check_request(self._halves.unit(placed.queue_offset), placed)
        recipient.outlet.send(recipient.dialect.check_back(request, self._clients.next_opaque()))

    def _check_request(self, unit: Unit, placed: Appended) -> TransactionCheck:
        """Encodes the half message as the message it will become."""
        host, properties = self._identity.store_host, read_half(unit)
        draft = UnitDraft(
            properties.get(REAL_TOPIC, "").encode(),
            parse_time_ms(properties.get(REAL_QUEUE)),
            bytes(unit.body),
            copied_properties(properties, OPTIONAL_PROPERTIES),
            unit.flag,
            unit.sys_flag,
            unit.born_ms,
            unit.born_host,
            unit.reconsume_times,
        )
        return TransactionCheck(
            encode_unit(draft, placed.queue_offset, placed.position, placed.store_ms, host),
            properties.get(UNIQUE_KEY, ""),
            placed.position,
            placed.queue_offset,
            offset_message_id(host, placed.position),
            self._identity.broker_name,
        )
