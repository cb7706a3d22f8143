"""Takes messages out for a group: at once, or as soon as there are any for one who waits. How they are shown is for the
surface to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trimq.clock import Clock
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.receipts import PopRequest, PopResult
from trimq.errors import Refusal
from trimq.model import Caller
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.rocketmq.state.offset_resets import OffsetResets
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.waiting.cold_reads import MAX_COLD_RETRIES, reply_after_cold_read
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import UNORDERED, PendingWrite

PollKey = tuple[str, str, int]
"""Topic, group and queue, as the request names them."""


class PollResult(NamedTuple):
    """An answer, to be made when its ticket's pass is durable. None: there is nothing to wait for."""

    build: Callable[[], Parts]
    ticket: PendingWrite | None = None

    def reply(self) -> Reply:
        if self.ticket is None:
            return Reply.now(self.build(), UNORDERED)
        return Reply.when_durable(self.ticket.number, self.build, UNORDERED)


class PollCounts:
    """How many wait."""

    def __init__(self) -> None:
        self._waiting: Counter[PollKey] = Counter()

    def count(self, key: PollKey) -> int:
        return self._waiting.get(key, 0)

    def begin(self, key: PollKey) -> None:
        self._waiting[key] += 1

    def end(self, key: PollKey) -> None:
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._waiting[key]


@dataclass(slots=True)
class PopServices:
    """Used by every POP request."""

    commit_log_api: CommitLogApi
    clock: Clock
    counts: Counts
    traffic: Traffic
    resets: OffsetResets
    poll_counts: PollCounts


class PopOperation:
    """One request for messages. `queue_id` is what it named. `build` makes the answer of what was taken, or of why it
    could not be."""

    def __init__(
        self,
        services: PopServices,
        caller: Caller,
        group: str,
        topic: CommitLogTopic,
        pop_request: PopRequest,
        queue_id: int,
        build: Callable[[PopResult | Refusal], Parts],
    ) -> None:
        self._services = services
        self._caller = caller
        self._group = group
        self._topic = topic
        self._pop_request = pop_request
        self._key = (topic.name.name, group, queue_id)
        self._build = build

    def take(self, wait_ms: int, cold_retries: int = 0) -> Reply:
        """What there is, or what comes within this time: given when it is durable that it is out. A Refusal that is
        found at once is raised. `cold_retries`: how often it has waited for the disk."""
        commit_log_api = self._services.commit_log_api
        if cold_retries < MAX_COLD_RETRIES:
            cold = commit_log_api.pop_service.find_cold(self._group, self._topic, self._pop_request)
            if cold is not None:
                return reply_after_cold_read(
                    commit_log_api, cold, lambda: self.take(wait_ms, cold_retries + 1), self._build
                )
        outcome = self._attempt()
        if outcome is not None:
            return outcome.reply()
        if wait_ms <= 0:
            return Reply.now(self._nothing(), UNORDERED)
        pop_service, numbers = commit_log_api.pop_service, self._pop_request.numbers
        poll = LongPoll(
            self._services,
            self._key,
            lambda callback: pop_service.watch(self._group, self._topic, numbers, callback).cancel,
            self._attempt_late,
            self._nothing,
            lambda: self._build(RemotingRefusal(ResponseCode.POLLING_FULL, "POLLING_FULL")),
        )
        return poll.hold(wait_ms)

    def _attempt(self) -> PollResult | None:
        for number in self._pop_request.numbers:
            self._services.resets.take(self._group, self._topic.id, number)  # popping goes on there already
        received = self._services.commit_log_api.pop_service.receive(
            self._caller, self._group, self._topic, self._pop_request
        )
        if not received.messages:
            return None
        services, size = self._services, sum(len(each.data) for each in received.messages)
        now_ms, count = services.clock.message.now_ms(), len(received.messages)
        services.traffic.count_read(self._topic.name.name, self._group, now_ms, count, size)
        ticket = received.ticket
        return PollResult(lambda: self._build(received if ticket is None else ticket.refusal or received), ticket)

    def _attempt_late(self) -> PollResult | None:
        try:
            return self._attempt()
        except Refusal as refusal:
            found = refusal
        return PollResult(lambda: self._build(found))

    def _nothing(self) -> Parts:
        return self._build(PopResult([], 0, None))


class LongPoll:
    """One who waits: for something that it wants, for its time to be over, or for its connection to end. `watch` calls
    back once when there may be something and gives what undoes it; `attempt` then looks. `nothing` makes the answer to
    one who has waited in vain, `full` that to one who may not wait."""

    def __init__(
        self,
        services: PopServices,
        key: PollKey,
        watch: Callable[[Callable[[], None]], Callable[[], None]],
        attempt: Callable[[], PollResult | None],
        nothing: Callable[[], Parts],
        full: Callable[[], Parts],
    ) -> None:
        self._polls, self._counts = services.poll_counts, services.counts
        self._liveness = services.clock.liveness
        self._key = key
        self._watch = watch
        self._attempt = attempt
        self._nothing = nothing
        self._full = full
        self._reply = DeferredReply(
            UNORDERED, on_abandon=self._end, on_resolve_now=self._give_up, on_reject_over_limit=self._reject_over_limit
        )

    def hold(self, wait_ms: int) -> Reply:
        self._unwatch: Callable[[], None] | None = self._watch(self._woken)
        self._timer = self._liveness.call_at(self._liveness.now_ms() + wait_ms, self._give_up)
        self._polls.begin(self._key)
        self._counts.waiting_reads.value += 1
        self._counts.held_reads.value += 1
        return self._reply

    def _woken(self) -> None:
        self._unwatch = None
        try:
            outcome = self._attempt()
        except Exception as error:
            self._end()
            self._reply.fail(error)
            return
        if outcome is None:
            self._unwatch = self._watch(self._woken)  # others were faster, or it was not wanted
            return
        self._end()
        if outcome.ticket is None:
            self._reply.resolve(outcome.build())
        else:
            self._reply.resolve_when_durable(outcome.ticket.number, outcome.build)

    def _give_up(self) -> None:
        self._end()
        self._reply.resolve(self._nothing())

    def _reject_over_limit(self) -> None:
        self._end()
        self._reply.resolve(self._full())

    def _end(self) -> None:
        self._timer.cancel()
        self._polls.end(self._key)
        self._counts.waiting_reads.value -= 1
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
