"""Renews the invisible time of messages received with `auto_renew`, while their client is known, for 3 hours at most.
In memory only: after a restart of the broker a message is redelivered when its invisible time is over."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from trimq.clock import Timeline, Timer
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.pop import PopService
from trimq.core.pop.receipts import Receipt
from trimq.errors import Refusal
from trimq.model import SYSTEM

INVISIBLE_MS = 60_000
_RENEW_MS = 20_000
_LIMIT_MS = 3 * 3_600_000
_AFTER_FORGOTTEN_MS = 1000

_Key = tuple[str, UUID, Receipt]


class _Renewed(NamedTuple):
    client_id: str
    topic: CommitLogTopic


class AutoRenewals:
    def __init__(self, pop_service: PopService, timeline: Timeline) -> None:
        self._pop_service = pop_service
        self._timeline = timeline
        self._renewed: dict[_Key, _Renewed] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._renewed)

    def add(self, client_id: str, group: str, topic: CommitLogTopic, receipt: Receipt) -> None:
        self._renewed[group, topic.id, receipt] = _Renewed(client_id, topic)
        if self._timer is None:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + _RENEW_MS, self._renew)

    def drop(self, group: str, topic: CommitLogTopic, receipt: Receipt) -> None:
        """Ends the renewal: the client has acknowledged, dead-lettered or changed the message."""
        if self._renewed:  # usually empty: few clients use auto_renew
            self._renewed.pop((group, topic.id, receipt), None)

    def forget(self, client_id: str) -> None:
        """Returns the messages of a client that is gone to their queue, after `_AFTER_FORGOTTEN_MS`."""
        for key in [key for key, renewed in self._renewed.items() if renewed.client_id == client_id]:
            group, _, receipt = key
            topic = self._renewed.pop(key).topic
            try:
                self._pop_service.change_invisible(SYSTEM, group, topic, receipt, _AFTER_FORGOTTEN_MS)
            except Refusal:
                continue  # redelivered when its invisible time is over

    def stop(self) -> None:
        self._renewed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew(self) -> None:
        self._timer = None
        now_ms = self._timeline.now_ms()
        for key, renewed in list(self._renewed.items()):
            group, _, receipt = key
            if receipt.pop_time_ms + _LIMIT_MS <= now_ms or not self._is_renewed(group, renewed.topic, receipt):
                del self._renewed[key]
        if self._renewed:
            self._timer = self._timeline.call_at(now_ms + _RENEW_MS, self._renew)

    def _is_renewed(self, group: str, topic: CommitLogTopic, receipt: Receipt) -> bool:
        try:
            return self._pop_service.renew(SYSTEM, group, topic, receipt, INVISIBLE_MS) is not None
        except Refusal:
            return True  # the write may succeed at the next renewal, before the invisible time is over
