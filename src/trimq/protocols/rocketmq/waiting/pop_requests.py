"""POP requests of a consumer group: receive messages at once or by long poll. Does not know the format of responses,
which differs between remoting and gRPC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from trimq.clock import Clock
from trimq.core.cold_reads import ColdReadRetry, Warm
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.pop import PopService
from trimq.core.pop.receipts import PopRequest, PopResult
from trimq.errors import Refusal
from trimq.model import Caller
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.long_poll import LongPoll, WaitingRequest, Watch
from trimq.protocols.rocketmq.state.offset_resets import OffsetResets
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.waiting.cold_reads import reply_after_cold_read
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import UNORDERED

PollKey = tuple[str, str, int]
"""Topic, group and queue as named in the request."""


class PollCounts:
    """Number of waiting long polls by topic, group and queue."""

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
    """Services used by every POP request."""

    pop_service: PopService
    warm: Warm
    clock: Clock
    counts: Counts
    traffic: Traffic
    resets: OffsetResets
    poll_counts: PollCounts

    def hold(self, request: WaitingRequest, key: PollKey, wait_ms: int) -> Reply:
        """Holds a request as a long poll of at most `wait_ms` and returns its reply. The request must call
        `poll_counts.end` when it has ended."""
        self.poll_counts.begin(key)
        return LongPoll(request, self.clock.liveness, self.counts, wait_ms, UNORDERED).reply


class PopOperation(WaitingRequest):
    """One POP request. `queue_id`: the queue named in the request. `build` makes the response from the received
    messages or from a refusal."""

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

    def take(self, wait_ms: int, retry: ColdReadRetry | None = None) -> Reply:
        """Receives the messages that are available, or that arrive within `wait_ms`. The reply is sent when their
        in-flight state is durable. Raises a Refusal that is found at once. `retry`: state of the cold reads of this
        request."""
        if retry is None or not retry.may_wait:
            cold = self._services.pop_service.find_cold(self._group, self._topic, self._pop_request)
            if cold is not None:
                again = ColdReadRetry(self._services.warm) if retry is None else retry
                return reply_after_cold_read(again, cold, lambda: self.take(wait_ms, again), self._build)
        reply = self._pop()
        if reply is not None:
            return reply
        return self._services.hold(self, self._key, wait_ms) if wait_ms > 0 else self.answer_now()

    def _pop(self) -> Reply | None:
        for number in self._pop_request.numbers:
            self._services.resets.take(self._group, self._topic.id, number)  # POP already continues at the reset offset
        services, liveness = self._services, self._services.clock.liveness
        begun_ms = liveness.now_ms()
        received = services.pop_service.receive(self._caller, self._group, self._topic, self._pop_request)
        now_ms, count = services.clock.message.now_ms(), len(received.messages)
        services.traffic.count_request(now_ms, count > 0, liveness.now_ms() - begun_ms)
        if not received.messages:
            return None
        size = sum(len(each.data) for each in received.messages)
        services.traffic.count_read(self._topic.name.name, self._group, now_ms, count, size)
        ticket = received.ticket
        if ticket is None:
            return Reply.now(self._build(received), UNORDERED)
        return Reply.when_durable(ticket.number, lambda: self._build(ticket.refusal or received), UNORDERED)

    # -- long poll

    def watch(self, wake: Callable[[], None]) -> Watch:
        pop_service = self._services.pop_service
        return pop_service.watch(self._group, self._topic, self._pop_request.numbers, wake)

    def attempt(self) -> Reply | None:
        try:
            return self._pop()
        except Refusal as refusal:
            return Reply.now(self._build(refusal), UNORDERED)

    def answer_now(self) -> Reply:
        return Reply.now(self._build(PopResult([], 0, None)), UNORDERED)

    def reject(self) -> Reply:
        return Reply.now(self._build(RemotingRefusal(ResponseCode.POLLING_FULL, "POLLING_FULL")), UNORDERED)

    def ended(self) -> None:
        self._services.poll_counts.end(self._key)
