"""Subscriptions: which messages of a topic a consumer wants, for the broker and for the exact check in the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimq.client.heartbeats import Subscription
from trimq.formats.rocketmq_unit.properties import tags_code

ALL = "*"


class Sql(NamedTuple):
    """Filter by an SQL expression over headers: `Sql("amount > 3 and region = 'EU'")`."""

    expression: str


Filter = str | Sql
"""Tags separated by ||, `*` for all, or `Sql`."""


class Wanted(NamedTuple):
    """Filter of one topic. The broker compares hashes of tags, so the client compares the tags too."""

    subscription: Subscription
    tags: frozenset[str]

    def takes(self, tag: str | None) -> bool:
        return not self.tags or tag in self.tags


def read_filter(topic: str, wanted: Filter, version: int) -> Wanted:
    """Raises ValueError for an expression without a tag."""
    if isinstance(wanted, Sql):
        return Wanted(Subscription(topic, wanted.expression, version, expressionType="SQL92"), frozenset())
    if wanted.strip() in ("", ALL):
        return Wanted(Subscription(topic, ALL, version), frozenset())
    tags = tuple(dict.fromkeys(word.strip() for word in wanted.split("||") if word.strip()))
    if not tags:
        raise ValueError(f"topic {topic}: the filter {wanted!r} names no tag")
    codes = tuple(tags_code(tag) for tag in tags)
    return Wanted(Subscription(topic, wanted, version, tags, codes), frozenset(tags))


def read_filters(subscriptions: Mapping[str, Filter] | str, version: int) -> dict[str, Wanted]:
    """Reads the filter of each topic; one topic alone is subscribed to without a filter."""
    given = {subscriptions: ALL} if isinstance(subscriptions, str) else subscriptions
    if not given:
        raise ValueError("subscribe to one topic at least")
    return {topic: read_filter(topic, wanted, version) for topic, wanted in given.items()}
