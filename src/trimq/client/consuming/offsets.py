"""Committed offsets of a group: kept by the brokers, or in a file of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from trimq.client.errors import NoRoute
from trimq.client.instance import Instance
from trimq.client.messages import MessageQueue
from trimq.client.routes import Routes
from trimq.wire.remoting_codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

TIMEOUT_MS = 5000


class OffsetStore(Protocol):
    async def read(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset, or None if there is none."""
        ...

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commits; raises ClientError if one of the offsets could not be committed."""
        ...


class BrokerOffsets:
    """Offsets of a group, each on the broker of its queue."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group

    def _fields(self, queue: MessageQueue) -> dict[str, str]:
        return {"consumerGroup": self._group, "topic": queue.topic, "queueId": str(queue.id)}

    async def read(self, queue: MessageQueue) -> int | None:
        fields = {**self._fields(queue), "setZeroIfNotFound": "false"}
        address = master_of(self._instance.routes, queue)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._instance.links.ask(address, code, fields, timeout_ms=TIMEOUT_MS, expected=expected)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return int(answer.fields["offset"])

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        outcomes = await asyncio.gather(*map(self._write, offsets.items()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write(self, item: tuple[MessageQueue, int]) -> None:
        queue, offset = item
        fields = {**self._fields(queue), "commitOffset": str(offset)}
        address = master_of(self._instance.routes, queue)
        await self._instance.links.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields, timeout_ms=TIMEOUT_MS)


def master_of(routes: Routes, queue: MessageQueue) -> str:
    """Returns the address of the queue's broker. Raises NoRoute if there is none at present."""
    route = routes.find(queue.topic)
    address = None if route is None else route.master(queue.broker)
    if address is None:
        raise NoRoute(f"no address of broker {queue.broker} is known")
    return address


class QueueOffsets:
    """First and last offsets of queues, and offsets by time."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def _ask(self, code: RequestCode, queue: MessageQueue, more: Mapping[str, str]) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.id), **more}
        address = master_of(self._instance.routes, queue)
        answer = await self._instance.links.ask(address, code, fields, timeout_ms=TIMEOUT_MS)
        return int(answer.fields["offset"])

    async def first(self, queue: MessageQueue) -> int:
        return await self._ask(RequestCode.GET_MIN_OFFSET, queue, {})

    async def last(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that will be stored."""
        return await self._ask(RequestCode.GET_MAX_OFFSET, queue, {})

    async def at(self, queue: MessageQueue, time_ms: int) -> int:
        """Returns the offset of the first message stored at this time or later."""
        return await self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, {"timestamp": str(time_ms)})


class _Row(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    queue: int
    offset: int


_read_rows = msgspec.json.Decoder(list[_Row]).decode


class LocalFile:
    """Offsets in `folder/<client>/<group>/offsets.json`. A new file is written, synced and renamed; the previous one is
    kept as `.bak` and is read if the file is damaged. `client` tells members of a broadcast group on one machine
    apart."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, client: str = "default") -> None:
        self.folder = Path.home() / ".trimq" / "offsets" if folder is None else Path(folder)
        self.client = client

    def of_group(self, group: str) -> FileOffsets:
        return FileOffsets(self.folder / _file_name(self.client) / _file_name(group) / "offsets.json")


def _file_name(text: str) -> str:
    """Returns the text with characters that a file name may not have replaced by %xx."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda found: f"%{ord(found[0]):02x}", text)


class FileOffsets:
    """Offsets in one file, written off the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        return self._known.get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        self._known.update(offsets)
        rows = [_Row(*queue, offset) for queue, offset in sorted(self._known.items())]
        await asyncio.to_thread(self._store, msgspec.json.format(msgspec.json.encode(rows)))

    def _load(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._backup):
            try:
                rows = _read_rows(path.read_bytes())
            except FileNotFoundError:
                continue
            except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
                log.warning("%s: not readable, trying the previous one (%s)", path, error)
                continue
            return {MessageQueue(row.topic, row.broker, row.queue): row.offset for row in rows}
        return {}

    @property
    def _backup(self) -> Path:
        return self._path.with_suffix(".json.bak")

    def _store(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".json.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self._is_whole(self._path):
            os.replace(self._path, self._backup)
        os.replace(temporary, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _is_whole(self, path: Path) -> bool:
        """Whether the file may replace the backup."""
        try:
            _read_rows(path.read_bytes())
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
            return False
        return True
