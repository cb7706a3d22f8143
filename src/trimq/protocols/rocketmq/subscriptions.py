"""What a consumer wants of a topic: an expression over tags, compared by hash before a message is looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from trimq.core.shared_streams import Wants
from trimq.formats.unit_properties import tags_code
from trimq.protocols.rocketmq.codes import Code, Failure

ALL = "*"
TAG = "TAG"


class Subscription(msgspec.Struct, frozen=True):
    topic: str
    expression: str = ALL
    version: int = 0
    expression_type: str = TAG

    def wants(self) -> Wants | None:
        """None: everything."""
        return wanted_tags(self.expression, self.expression_type)

    def described(self) -> dict[str, Any]:
        """As clients show it."""
        tags = split_tags(self.expression)
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


def wanted_tags(expression: str | None, expression_type: str | None) -> Wants | None:
    """None: everything is wanted. Failure: it is no expression over tags."""
    if expression_type not in (None, "", TAG):
        raise Failure(
            Code.SUBSCRIPTION_PARSE_FAILED, f"expressions of type {expression_type[:40]} are not served by this version"
        )
    tags = split_tags(expression or ALL)
    return {tags_code(tag) for tag in tags}.__contains__ if tags else None


def parse_subscription(data: dict[str, Any]) -> Subscription:
    """As clients of all ages write it. ValueError: it names no topic."""
    topic = data.get("topic")
    if not isinstance(topic, str):
        raise ValueError("a subscription without a topic")
    return Subscription(
        topic,
        str(data.get("subString") or ALL),
        int(data.get("subVersion") or 0),
        str(data.get("expressionType") or TAG),
    )
