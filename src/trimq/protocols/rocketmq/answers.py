"""The bytes of answers. Those that are given most often are filled into a template, which takes a fifth of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimq.model import Buffer
from trimq.protocols.rocketmq.remoting import NO_FIELDS, RESPONSE, VERSION, encode_command, frame

REGION = "DefaultRegion"
SENT_FIELDS = {"MSG_REGION": REGION, "TRACE_ON": "true"}

_SENT = (
    f'{{"code":0,"extFields":{{"queueOffset":"%d","MSG_REGION":"{REGION}","TRACE_ON":"true","msgId":"%s","queueId":"%d"'
    f'%s}},"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
)
_PULLED = (
    '{"code":%d,"extFields":{"nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d","suggestWhichBrokerId":"0",'
    '"topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"%s",'
    f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
)


def answer(
    opaque: int, code: int, fields: Mapping[str, str] = NO_FIELDS, remark: str | None = None, body: Buffer = b""
) -> list[Buffer]:
    head = encode_command(code, opaque, RESPONSE, fields, remark, len(body))
    return [head, body] if body else [head]


def answer_sent(
    opaque: int, message_id: str, queue_id: int, queue_offset: int, transaction_id: str, recall_handle: str = ""
) -> list[Buffer]:
    """`transaction_id` is left out if it is empty; it comes from a client and may hold anything."""
    quoted = f',"transactionId":{msgspec.json.encode(transaction_id).decode()}' if transaction_id else ""
    if recall_handle:
        quoted += f',"recallHandle":"{recall_handle}"'
    return [frame((_SENT % (queue_offset, message_id, queue_id, quoted, opaque)).encode())]


def answer_pulled(
    opaque: int, code: int, remark: str, next_offset: int, least: int, most: int, units: Sequence[Buffer] = ()
) -> list[Buffer]:
    header = (_PULLED % (code, next_offset, least, most, 0, 0, opaque, remark)).encode()
    return [frame(header, sum(map(len, units))), *units]
