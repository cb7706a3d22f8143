"""Dumps and measures AMQP queues in the data folder of a stopped broker, by virtual host and queue name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from trimq.core.assembly.queues import OTHER_LOGS
from trimq.core.metadata.catalogue import Definition
from trimq.errors import Damage, StartupError
from trimq.formats.amqp_content.content import NEVER, NO_BLOB, SHARED, blob_of, to_record
from trimq.storage.inspection import queues
from trimq.storage.inspection.partitions import read_table
from trimq.storage.io.files import Files
from trimq.storage.queue_log.store import BLOBS, ROOT

_KIND = "queue"
_DEFAULT_VHOST = "/"


class _Found(NamedTuple):
    """Log of a queue. A queue with priorities has one log for each priority that was used."""

    folder: str
    namespace: str
    name: str
    priority: int


def read_definitions(files: Files, kind: str) -> dict[str, Definition]:
    """Returns the definitions of one kind by key. Empty if the catalogue is damaged, which `verify` reports."""
    try:
        table = read_table(files, "catalogue", Definition)
    except (Damage, StartupError):
        return {}
    return {key.removeprefix(f"{kind}/"): found for key, found in table.items() if key.startswith(f"{kind}/")}


def folders(files: Files) -> list[str]:
    """Returns the folders of all defined queues."""
    return [f"{ROOT}/{UUID(key).hex}-0" for key in read_definitions(files, _KIND)]


def _logs(files: Files) -> list[_Found]:
    known = {
        UUID(key).hex: (found.value["namespace"] or _DEFAULT_VHOST, found.value["name"])
        for key, found in read_definitions(files, _KIND).items()
    }
    logs = []
    for folder in queues.names(files):
        id, _, level = folder.rpartition("-")
        namespace, name = known.get(id, ("", OTHER_LOGS.get(folder, folder)))
        logs.append(_Found(folder, namespace, name, int(level) if level.isdigit() else 0))
    return sorted(logs, key=lambda found: found[1:])


def stats(files: Files) -> list[dict[str, Any]]:
    """Returns one row for each log; the log of shared bodies is last."""
    rows = [_row(files, found) for found in _logs(files)]
    if BLOBS in files.names(ROOT):
        rows.append(_row(files, _Found(BLOBS, "", "(shared bodies)", 0)))
    return rows


def _row(files: Files, found: _Found) -> dict[str, Any]:
    segments = queues.segments(files, f"{ROOT}/{found.folder}")
    settled = shared = 0
    for segment in segments:
        for head in queues.message_heads(segment):
            settled += segment.is_acked(head.offset)
            shared += head.blob != NO_BLOB
    return {
        "vhost": found.namespace,
        "queue": found.name,
        "priority": found.priority,
        "start": segments[0].base if segments else 0,
        "end": max((segment.end for segment in segments), default=0),
        "segments": len(segments),
        "messages": sum(segment.messages for segment in segments),
        "settled": settled,
        "shared": shared,
        "bytes": sum(segment.file.size() for segment in segments),
    }


def dump(files: Files, vhost: str, queue: str, from_offset: int, limit: int | None) -> Iterator[dict[str, Any]]:
    """Yields the messages in the logs of a queue in order, acknowledged or not."""
    logs = [found for found in _logs(files) if (found.namespace, found.name) == (vhost, queue)]
    if not logs:
        raise StartupError(f"the data folder has no durable queue {queue} in the virtual host {vhost}")
    left = limit
    for found in logs:
        for stored, body, is_acked in queues.messages(files, found.folder):
            if stored.offset < from_offset:
                continue
            if left == 0:
                return
            left = None if left is None else left - 1
            content = stored.content
            yield {
                "priority": found.priority,
                "offset": stored.offset,
                "timestamp_ms": content.published_ms,
                "expires_ms": None if stored.expires_ms == NEVER else stored.expires_ms,
                "exchange": content.exchange.decode("utf-8", "replace"),
                "key": content.key,
                "body": body,
                "headers": [[name, value] for name, value in to_record(content).headers],
                "settled": is_acked,
                "shared": blob_of(stored) if stored.flags & SHARED else None,
            }
