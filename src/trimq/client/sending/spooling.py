"""Messages that wait in a spool: appended while brokers are busy or unreachable, and sent in order afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from trimq.client.errors import (
    BadMessage,
    BufferFull,
    ClientError,
    Closed,
    ConnectionLost,
    NoRoute,
    Refused,
    SendFailed,
    TimedOut,
    Unsupported,
)
from trimq.client.messages import Message, MessageQueue, Sent
from trimq.client.sending.batches import broken_rule
from trimq.client.sending.busy import Spool, Spooled
from trimq.client.sending.delivery import RETRIED_CODES, SendPlan
from trimq.client.sending.encoding import encode_batch_body, write_message_properties
from trimq.client.sending.spool_file import Chunk, SpoolFile
from trimq.client.timing import pause, to_milliseconds

if TYPE_CHECKING:
    from trimq.client.sending.sender import Sender

log = logging.getLogger(__name__)

CHUNK_BYTES = 512 * 1024
WAITING_BYTES = 32 * 1024 * 1024
"""Limit of what waits in memory to be written."""

_FIRST_PAUSE_MS, _LAST_PAUSE_MS = 100, 5000
_SEND_MS = 3000


class _Row(msgspec.Struct, array_like=True):
    """A message in the spool. `properties` are encoded."""

    topic: str
    id: str
    properties: str
    body: bytes
    key: str | None = None
    is_alone: bool = False
    needs: tuple[str, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode


def is_worth_spooling(error: Exception) -> bool:
    """Whether the message can be sent later."""
    if isinstance(error, SendFailed):
        error = error.attempts[-1].error
    if isinstance(error, Refused):
        return error.code in RETRIED_CODES
    return isinstance(error, ConnectionLost | TimedOut | NoRoute)


class Spooler:
    """`plan_of` gives the plan for a message and the features that it needs."""

    def __init__(
        self, sender: Sender, settings: Spool, plan_of: Callable[[Message, tuple[str, ...]], SendPlan]
    ) -> None:
        self._sender = sender
        self._settings = settings
        self._plan_of = plan_of
        self._file = SpoolFile(settings.folder)
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._waiting_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()
        self.refused = 0

    @property
    def count(self) -> int:
        """Messages that wait on disk."""
        return self._file.count

    @property
    def is_in_use(self) -> bool:
        """Whether further messages must go behind those that wait."""
        return bool(self._file.count or self._waiting or self._writing)

    async def open(self) -> None:
        """Opens the files once, and starts to send what waits from an earlier run."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        await asyncio.to_thread(self._file.open)
        self._drain()

    # -- writing

    async def append(self, topic: str, message: Message, body: bytes, id: str, needs: tuple[str, ...]) -> Spooled:
        """Returns when the message is on disk. Raises BufferFull or OSError."""
        if message.delay is not None:
            due_ms = self._sender.wall.now_ms() + to_milliseconds(message.delay)
            due = datetime.fromtimestamp(due_ms / 1000, UTC)
            message = msgspec.structs.replace(message, delay=None, deliver_at=due)
        is_alone = broken_rule(topic, message) is not None
        row = _encode(_Row(topic, id, write_message_properties(message, id), body, message.key, is_alone, needs))
        if self._file.bytes + self._waiting_bytes + len(row) > self._settings.most_bytes:
            raise BufferFull(f"{self._file.bytes} bytes wait in the spool, {self._settings.most_bytes} are allowed")
        if self._waiting and self._waiting_bytes + len(row) > WAITING_BYTES:
            raise BufferFull(f"{self._waiting_bytes} bytes wait to be written to the spool")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, written))
        self._waiting_bytes += len(row)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        await written
        return Spooled(id)

    async def _write(self) -> None:
        """Writes all that waits, in one sync after the other."""
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                error: Exception | None = None
                async with self._disk:
                    try:
                        await asyncio.to_thread(self._file.append, [row for row, _ in taken])
                    except OSError as failure:
                        error = failure
                self._waiting_bytes -= sum(len(row) for row, _ in taken)
                for _, written in taken:
                    if not written.done():
                        if error is None:
                            written.set_result(None)
                        else:
                            written.set_exception(error)
        finally:
            self._writing = None
        self._drain()

    # -- sending

    def _drain(self) -> None:
        if self._file.count and self._draining is None:
            self._draining = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._file.count:
                async with self._disk:
                    chunk = await asyncio.to_thread(self._file.read, CHUNK_BYTES)
                if not chunk.records:
                    log.error("spool %s: %d messages are missing", self._settings.folder, self._file.count)
                    self._file.count = self._file.bytes = 0
                    return
                await self._send_chunk(chunk)
                async with self._disk:
                    await asyncio.to_thread(self._file.remove, chunk)
        except Closed:
            return  # they wait for the next run
        finally:
            self._draining = None

    async def _send_chunk(self, chunk: Chunk) -> None:
        """Sends all records of a chunk; those of one queue as one batch, so that none of them can pass another."""
        rows = [_decode(record) for record in chunk.records]
        pause_ms = _FIRST_PAUSE_MS
        while rows:
            rows = await self._try(rows)
            if rows:
                await pause(self._sender.timeline, pause_ms)
                pause_ms = min(pause_ms * 2, _LAST_PAUSE_MS)

    async def _try(self, rows: Sequence[_Row]) -> list[_Row]:
        """Returns the rows that must be tried again, in order."""
        groups: dict[tuple[str, MessageQueue | int, tuple[str, ...]], list[_Row]] = {}
        left: list[_Row] = []
        for number, row in enumerate(rows):
            try:
                route = await self._sender.routes.get(row.topic, _SEND_MS, may_create=True)
                if not route.writable:
                    raise NoRoute(f"topic {row.topic} has no writable queue")
                message = Message(row.body, row.key)
                plan = self._plan_of(message, row.needs)
                queue = plan.choice.choose(route.writable, message, self._sender.health, None)
            except Closed:
                raise
            except ClientError:
                return [*left, *rows[number:]] if not groups else await self._send_groups(groups, rows[number:])
            groups.setdefault((row.topic, number if row.is_alone else queue, row.needs), []).append(row)
        return await self._send_groups(groups, ())

    async def _send_groups(
        self, groups: dict[tuple[str, MessageQueue | int, tuple[str, ...]], list[_Row]], rest: Sequence[_Row]
    ) -> list[_Row]:
        batches = {key: rows for key, rows in groups.items() if not rows[0].is_alone}
        singles = {key: rows for key, rows in groups.items() if rows[0].is_alone}
        sends = [self._send(topic, queue, rows) for (topic, queue, _), rows in batches.items()]
        results = await asyncio.gather(*sends, return_exceptions=True)
        left: list[_Row] = []
        for rows, result in zip(batches.values(), results, strict=True):
            left += await self._left_of(rows, result)
        for (topic, queue, _), rows in singles.items():
            if not left:  # one after the other, as a later one must not pass one that failed
                try:
                    await self._send(topic, queue, rows)
                    continue
                except ClientError as error:
                    rows = await self._left_of(rows, error)
            left += rows
        return [*left, *rest]

    async def _left_of(self, rows: list[_Row], result: Sent | BaseException) -> list[_Row]:
        """Returns those of a group that must be tried again."""
        if isinstance(result, Closed):
            raise result
        if isinstance(result, BadMessage | Unsupported | SendFailed | Refused) and not is_worth_spooling(result):
            return await self._set_aside(rows, result)
        if isinstance(result, ClientError):
            return rows
        if isinstance(result, BaseException):
            raise result
        return []

    async def _set_aside(self, rows: list[_Row], error: Exception) -> list[_Row]:
        """Keeps a message that the broker refuses in the file `refused`; those of a batch are tried one by one."""
        if len(rows) > 1:
            for row in rows:
                row.is_alone = True
            return rows
        self.refused += 1
        log.error("spool %s: message %s refused (%s)", self._settings.folder, rows[0].id, error)
        async with self._disk:
            await asyncio.to_thread(self._file.refuse, [_encode(rows[0])])
        return []

    async def _send(self, topic: str, queue: MessageQueue | int, rows: list[_Row]) -> Sent:
        sender, first = self._sender, rows[0]
        message = Message(first.body, first.key)
        plan = self._plan_of(message, first.needs)
        chosen = queue if isinstance(queue, MessageQueue) else None
        if len(rows) == 1:
            return await sender.resend(topic, message, first.body, first.id, first.properties, plan, _SEND_MS, chosen)
        body = encode_batch_body([(row.body, row.properties) for row in rows])
        return await sender.resend(topic, message, body, "", "", plan, _SEND_MS, chosen, is_batch=True)

    # -- life

    async def wait_until_empty(self) -> None:
        while self._draining is not None or self._writing is not None:
            tasks = [task for task in (self._draining, self._writing) if task is not None]
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Writes what is being written; what waits on disk is sent by the next run."""
        tasks: list[asyncio.Task[Any]] = []
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._draining is not None:
            tasks.append(self._draining)
            self._draining.cancel()
        if self._opening is not None:
            tasks.append(self._opening)
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._disk:
            await asyncio.to_thread(self._file.close)
