"""Subscription of a consumer to a topic: a tag expression, compared by hash before a message is read, or a SQL92
expression over message properties."""

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
    """Limits of a SQL92 expression."""

    max_bytes: int = 16_384
    max_operators: int = 200


class Subscription(msgspec.Struct, frozen=True):
    topic: str
    expression: str = ALL
    version: int = 0
    expression_type: str = TAG

    def message_filter(self, limits: FilterLimits) -> MessageFilter | None:
        """Returns None if the subscription matches everything. Raises RemotingRefusal if the consumer's last expression
        was invalid."""
        try:
            return read_interest(self.expression, self.expression_type, limits)
        except RemotingRefusal as failure:
            raise RemotingRefusal(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"invalid expression in the subscription: {failure}"
            ) from None

    def described(self) -> dict[str, Any]:
        """JSON form for clients and tools."""
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
    """Returns None if the expression matches everything. Raises RemotingRefusal if it is invalid."""
    if expression_type == SQL:
        return _read_sql(expression or "", limits)
    if expression_type not in (None, "", TAG):
        raise RemotingRefusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"unknown expression type {expression_type[:40]} (TAG and SQL92 are supported)",
        )
    if expression in (None, "", ALL):
        return None
    return MessageFilter({tags_code(tag) for tag in split_tags(str(expression))}.__contains__)  # of no tags: nothing


def _read_sql(expression: str, limits: FilterLimits) -> MessageFilter:
    try:
        matches = compile_sql_filter(expression, *limits)
    except InvalidSqlFilter as error:
        raise RemotingRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"invalid SQL92 expression: {error}") from None
    return MessageFilter(properties=lambda raw: matches(read_properties(raw)))


def parse_subscription(data: dict[str, Any]) -> Subscription:
    """Reads the JSON of clients of any version. Raises ValueError if the topic is missing or the version does not fit a
    Java long."""
    topic, version = data.get("topic"), int(data.get("subVersion") or 0)
    if not isinstance(topic, str):
        raise ValueError("the subscription has no topic")
    if not -(2**63) <= version < 2**63:
        raise ValueError(f"subVersion out of range: {version}")
    return Subscription(
        topic,
        str(data.get("subString") or ALL),
        version,
        str(data.get("expressionType") or TAG),
    )
