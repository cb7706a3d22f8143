"""Encodes remoting responses. The most frequent ones are filled into a template, which takes a fifth of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import msgspec

from trimq.model import Buffer
from trimq.wire.remoting import NO_FIELDS, RESPONSE, VERSION, encode_command, frame

REGION = "DefaultRegion"
SENT_FIELDS = {"MSG_REGION": REGION, "TRACE_ON": "true"}

_SENT = (
    f'{{"code":%s,"extFields":{{"queueOffset":"%s","MSG_REGION":"{REGION}","TRACE_ON":"true","msgId":"%s","queueId":"%s"'
    f'%s}},"flag":1,"language":"JAVA","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
)
_SENT_ONE = (_SENT % ("%d", "%d", "%s%016X", "%d", ',"transactionId":"%s"', "%d")).encode()
_PULLED = (
    '{"code":%d,"extFields":{"nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d","suggestWhichBrokerId":"0",'
    '"topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"%s",'
    f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
)


PendingSend = tuple[int, int, str, str]
"""Sent message that awaits its response: opaque of the request, queue id, unique key (with the addition of
`with_recall_handle`), topic."""


def encode_response(
    opaque: int, code: int, fields: Mapping[str, str] = NO_FIELDS, remark: str | None = None, body: Buffer = b""
) -> list[Buffer]:
    head = encode_command(code, opaque, RESPONSE, fields, remark, len(body))
    return [head, body] if body else [head]


def encode_response_parts(
    opaque: int, code: int, fields: Mapping[str, str], remark: str | None = None, units: Sequence[Buffer] = ()
) -> list[Buffer]:
    """As `encode_response`, with a body of several parts."""
    return [encode_command(code, opaque, RESPONSE, fields, remark, sum(map(len, units))), *units]


def encode_send_response(
    opaque: int,
    message_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str,
    recall_handle: str = "",
    code: int = 0,
) -> list[Buffer]:
    """Omits an empty `transaction_id`. Its text is chosen by the client, so it may need escapes."""
    quoted = ""
    if transaction_id:
        simple = is_quotable(transaction_id)
        quoted = f'"{transaction_id}"' if simple else msgspec.json.encode(transaction_id).decode()
        quoted = f',"transactionId":{quoted}'
    if recall_handle:
        quoted += f',"recallHandle":"{recall_handle}"'
    return [frame((_SENT % (code, queue_offset, message_id, queue_id, quoted, opaque)).encode())]


def is_quotable(text: str) -> bool:
    """Returns whether the text needs no escapes in JSON."""
    return text.isascii() and (text.isalnum() or (text.isprintable() and '"' not in text and "\\" not in text))


def with_recall_handle(unique: str, handle: str) -> str:
    """Returns the unique key of a `PendingSend` with the field `recallHandle` appended."""
    return f'{unique}","recallHandle":"{handle}' if handle else unique


def encode_send_responses(
    asked: Sequence[PendingSend], places: Sequence[tuple[int, int]], store_host: bytes, code: int
) -> bytes:
    """Fast path of `encode_send_response` for several messages: returns their responses concatenated, one for each of
    the `places` (queue offset, commit-log position). The unique keys must be quotable."""
    host = _host_text(store_host)
    answers: list[bytes] = []
    for (opaque, queue_id, unique, _), (offset, position) in zip(asked, places, strict=False):
        header = _SENT_ONE % (code, offset, host, position, queue_id, unique.encode(), opaque)
        answers += (_lengths(len(header)), header)
    return b"".join(answers)


@lru_cache(maxsize=16)
def _host_text(store_host: bytes) -> bytes:
    return store_host.hex().upper().encode()


@cache
def _lengths(header_bytes: int) -> bytes:
    """Returns the length fields of a frame without a body."""
    return frame(bytes(header_bytes))[:-header_bytes]


def encode_pull_response(
    opaque: int, code: int, remark: str, next_offset: int, least: int, most: int, units: Sequence[Buffer] = ()
) -> list[Buffer]:
    header = (_PULLED % (code, next_offset, least, most, 0, 0, opaque, remark)).encode()
    return [frame(header, sum(map(len, units))), *units]
