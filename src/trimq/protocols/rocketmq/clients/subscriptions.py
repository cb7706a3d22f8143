"""What a consumer wants of a topic: an expression over tags, compared by hash before a message is looked at, or one in
SQL over its properties."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from trimq.core.commit_log.stream import MessageFilter
from trimq.core.filters.sql_filter import InvalidSqlFilter, compile_sql_filter
from trimq.formats.rocketmq_unit.properties import read_properties, tags_code
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

ALL = "*"
TAG = "TAG"
SQL = "SQL92"


class FilterLimits(NamedTuple):
    """How large an expression over properties may be."""

    max_bytes: int = 16_384
    max_operators: int = 200


class Subscription(msgspec.Struct, frozen=True):
    topic: str
    expression: str = ALL
    version: int = 0
    expression_type: str = TAG

    def message_filter(self, limits: FilterLimits) -> MessageFilter | None:
        """None: everything. Failure: the consumer's last word was no expression."""
        try:
            return read_interest(self.expression, self.expression_type, limits)
        except RemotingRefusal as failure:
            raise RemotingRefusal(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"the expression of the subscription is wrong: {failure}"
            ) from None

    def described(self) -> dict[str, Any]:
        """As clients show it."""
        tags = split_tags(self.expression) if self.expression_type == TAG else []
        return {
            "topic": self.topic,
            "subString": self.expression,
            "tagsSet": tags,
            "codeSet": [tags_code(tag) for tag in tags],
            "subVersion": self.version,
            "expressionType": self.expression_type,
            "classFilterMode": False,
        }


def split_tags(expression: str) -> list[str]:
    if expression in ("", ALL):
        return []
    return [tag for part in expression.split("||") if (tag := part.strip())]


def read_interest(expression: str | None, expression_type: str | None, limits: FilterLimits) -> MessageFilter | None:
    """None: everything is wanted. Failure: it is no expression of its type."""
    if expression_type == SQL:
        return _read_sql(expression or "", limits)
    if expression_type not in (None, "", TAG):
        raise RemotingRefusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"expressions of type {expression_type[:40]} are not known"
        )
    tags = split_tags(expression or ALL)
    return MessageFilter({tags_code(tag) for tag in tags}.__contains__) if tags else None


def _read_sql(expression: str, limits: FilterLimits) -> MessageFilter:
    try:
        matches = compile_sql_filter(expression, *limits)
    except InvalidSqlFilter as error:
        raise RemotingRefusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"no expression over properties: {error}"
        ) from None
    return MessageFilter(properties=lambda raw: matches(read_properties(raw)))


def parse_subscription(data: dict[str, Any]) -> Subscription:
    """As clients of all ages write it. ValueError: it names no topic, or no version that Java has a number for."""
    topic, version = data.get("topic"), int(data.get("subVersion") or 0)
    if not isinstance(topic, str):
        raise ValueError("a subscription without a topic")
    if not -(2**63) <= version < 2**63:
        raise ValueError(f"a subscription of version {version}")
    return Subscription(
        topic,
        str(data.get("subString") or ALL),
        version,
        str(data.get("expressionType") or TAG),
    )
