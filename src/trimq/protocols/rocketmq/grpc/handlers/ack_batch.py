"""Fast path of AckMessage for calls that arrive together on one connection and acknowledge one message each: reads,
acknowledges and answers them in one step. Falls back to `ack` for any other call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from google.protobuf.message import DecodeError

from trimq.errors import Refusal
from trimq.protocols.contract import CallInfo, Parts, Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call
from trimq.protocols.rocketmq.grpc.handlers.ack import (
    EntryAckResult,
    ack_entries,
    check_names,
    encode_ack_results,
    reply_acked,
)
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.fields import field, read_texts
from trimq.protocols.rocketmq.grpc.wire.responses import encode_ack_entry_response

# More calls are better spread over several passes. Longer requests hold more than a receipt.
_MAX_CALLS = 64
_LONGEST_REQUEST = 2048

# Limits of the cache of prefixes: one for each group and topic.
_MAX_BEGINNINGS = 16
_LONGEST_BEGINNING = 512

_ENTRY = b"\x1a"  # tag of `entries` in a request
_ID, _HANDLE = b"\x0a", b"\x12"  # tags in an entry, the same in request and response

read_request = wire.AckMessageRequest.FromString


class _RequestPrefix(NamedTuple):
    """Bytes before the entry in requests for one group and topic."""

    raw: bytes
    group: str
    topic: str


class _AckRequest(NamedTuple):
    """One call. `entry` is the encoded id and receipt, as received."""

    prefix: _RequestPrefix
    entry: bytes
    id: str
    handle: str


class AckBatcher:
    """Batch of acknowledgements of one connection: `take` collects them, `finish` acknowledges them. `call_of` returns
    the context of a call."""

    limit = _MAX_CALLS

    def __init__(self, call_of: Callable[[CallInfo], Call]) -> None:
        self._call_of = call_of
        self._call: Call | None = None
        self._asked: list[_AckRequest] = []
        self._prefixes: dict[bytes, _RequestPrefix] = {}
        self._last: _RequestPrefix | None = None

    def take(self, call_info: CallInfo, raw: bytes) -> bool:
        """Adds the call to the batch. Returns False if it needs `ack`."""
        call = self._call_of(call_info)
        if call.login_refusal is not None:
            return False
        if not self._asked:
            self._call = call
        elif call is not self._call and (self._call is None or call.caller != self._call.caller):
            return False
        if not call.client_id or call.client_id.isspace() or len(raw) > _LONGEST_REQUEST:
            return False
        last = self._last
        if last is None or not raw.startswith(last.raw):
            last = self._last = self._find_prefix(raw) or self._learn_prefix(call, raw)
        return last is not None and self._take(last, raw)

    def _take(self, prefix: _RequestPrefix, raw: bytes) -> bool:
        """Accepts the usual encoding only: one entry with an id and a receipt, both ASCII."""
        found = read_texts(raw, len(prefix.raw), _ENTRY, _ID, _HANDLE)
        if found is None:
            return False
        self._asked.append(_AckRequest(prefix, *found))
        return True

    def _find_prefix(self, raw: bytes) -> _RequestPrefix | None:
        return next((known for known in self._prefixes.values() if raw.startswith(known.raw)), None)

    def _learn_prefix(self, call: Call, raw: bytes) -> _RequestPrefix | None:
        """Returns None unless the request is valid, with one entry at its end and permitted names."""
        try:
            request = read_request(raw)
            group, topic = request.group.name, request.topic.name
            check_names(call, group, topic)
        except (DecodeError, Refusal):
            return None  # `ack` finds the same fault, and reports it
        entries = [field(_ENTRY, entry.SerializeToString()) for entry in request.entries]
        if len(entries) != 1 or not raw.endswith(entries[0]):
            return None
        begins = raw[: -len(entries[0])]
        if len(begins) > _LONGEST_BEGINNING or not _names(begins, group, topic):
            return None
        if len(self._prefixes) >= _MAX_BEGINNINGS:
            self._prefixes.clear()
        found = self._prefixes[begins] = _RequestPrefix(begins, group, topic)
        return found

    def finish(self) -> Reply:
        call, asked = self._call, self._asked
        assert call is not None
        self._asked = []
        settled: list[EntryAckResult] = []
        for prefix, row in groupby(asked, itemgetter(0)):
            settled += ack_entries(call, prefix.group, prefix.topic, [(each.id, each.handle) for each in row])

        def build() -> Parts:
            return [
                encode_ack_entry_response(each.entry) if found.outcome is None else encode_ack_results([found])
                for each, found in zip(asked, settled, strict=True)
            ]

        return reply_acked(settled, build)


def _names(begins: bytes, group: str, topic: str) -> bool:
    """Returns whether the prefix is itself a request with these names and no entry. If not, the assumed entry was the
    end of a longer field."""
    try:
        request = read_request(begins)
    except DecodeError:
        return False
    return (request.group.name, request.topic.name, len(request.entries)) == (group, topic, 0)
