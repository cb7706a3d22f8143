"""Relay: sends the messages of an outbox, again and again until the broker has stored each one."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass

from trimq.client.aio import AsyncClient
from trimq.client.errors import ClientError
from trimq.client.messages import SendStatus, Sent
from trimq.client.outbox.table import Compensate, Outbox, OutboxRow
from trimq.client.sending.pipeline import Dropped
from trimq.client.timing import Duration, pause, to_milliseconds
from trimq.clock import Timeline, system_clock

log = logging.getLogger(__name__)

_LONGEST_DOUBLINGS = 16


@dataclass(slots=True)
class RelayStatistics:
    """`failed`: sends without a response that the message is stored. `given_up`: messages after `max_tries`."""

    sent: int = 0
    failed: int = 0
    given_up: int = 0


class Relay:
    """Sends with the id of the row, so that a message whose response was lost is recognised when it is sent again.
    Several relays may work on one outbox.

    `every`: seconds between looks at the table; `wake` looks at once. `claim`: time after which another relay takes
    over what this one has taken. `back_off`: pause after the first failure, which doubles up to `longest`.
    `max_tries`: tries before `compensate(cursor, row)` is called, once, in the transaction that ends the tries; None:
    no end."""

    def __init__(
        self,
        outbox: Outbox,
        mq: AsyncClient,
        *,
        batch: int = 100,
        every: Duration = 1.0,
        claim: Duration = 60.0,
        back_off: Duration = 1.0,
        longest: Duration = 60.0,
        max_tries: int | None = None,
        compensate: Compensate | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        if (max_tries is None) != (compensate is None):
            raise ValueError("max_tries and compensate belong together")
        self.stats = RelayStatistics()
        self._outbox = outbox
        self._mq = mq
        self._timeline = timeline or system_clock().liveness
        self._batch = batch
        self._every_ms, self._claim_ms = to_milliseconds(every), to_milliseconds(claim)
        self._back_off_ms, self._longest_ms = to_milliseconds(back_off), to_milliseconds(longest)
        self._max_tries = max_tries
        self._compensate = compensate
        self._owner = uuid.uuid4().hex
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Looks at the table now, for example after a commit."""
        self._woken.set()

    async def run(self) -> None:
        """Sends until it is cancelled."""
        while True:
            self._woken.clear()
            try:
                count = await self.run_once()
            except Exception as error:  # the driver's own exceptions have no common base
                log.warning("outbox: not read, trying again in %d ms (%s)", self._every_ms, error)
                count = 0
            if count:
                continue
            waiter = asyncio.ensure_future(self._woken.wait())
            timer = asyncio.ensure_future(pause(self._timeline, self._every_ms))
            try:
                await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()

    async def run_once(self) -> int:
        """Sends what is due, at most one batch. Returns the number of messages that were stored."""
        rows = await asyncio.to_thread(self._outbox.claim, self._owner, self._batch, self._claim_ms)
        return sum(await asyncio.gather(*map(self._send, rows)))

    async def _send(self, row: OutboxRow) -> bool:
        message = row.message
        try:
            sent = await self._mq.send(
                row.topic, message.body, key=message.key, tag=message.tag, keys=message.keys, headers=message.headers,
                id=row.id,
            )  # fmt: skip
        except ClientError as error:
            reason = str(error)
        else:
            if not isinstance(sent, Sent):
                is_done, reason = sent is not Dropped.BUSY, "dropped, as brokers or consumers are busy"
            else:
                is_done, reason = sent.status is SendStatus.OK, f"stored with status {sent.status.value}"
            if is_done:
                self.stats.sent += 1
                await asyncio.to_thread(self._outbox.sent, self._owner, row)
                return True
        await self._failed(row, reason)
        return False

    async def _failed(self, row: OutboxRow, reason: str) -> None:
        self.stats.failed += 1
        if self._max_tries is not None and row.tries + 1 >= self._max_tries:
            log.warning("outbox: %s given up after %d tries: %s", row.id, row.tries + 1, reason)
            if await asyncio.to_thread(self._outbox.give_up, self._owner, row, reason, self._compensate):
                self.stats.given_up += 1
            return
        after_ms = min(self._back_off_ms << min(row.tries, _LONGEST_DOUBLINGS), self._longest_ms)
        log.info("outbox: %s not sent, trying again in %d ms: %s", row.id, after_ms, reason)
        await asyncio.to_thread(self._outbox.not_sent, self._owner, row, reason, after_ms)
