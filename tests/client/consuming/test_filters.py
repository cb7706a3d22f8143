"""Subscriptions in heartbeats, and the exact check of tags."""

from __future__ import annotations

import pytest

from trimq.client.consuming.filters import Sql, read_filter, read_filters
from trimq.formats.rocketmq_unit.properties import tags_code


def test_tags_are_listed_with_their_hashes() -> None:
    wanted = read_filter("orders", "paid || refunded||paid", 7)
    assert wanted.subscription.tagsSet == ("paid", "refunded")
    assert wanted.subscription.codeSet == (tags_code("paid"), tags_code("refunded"))
    assert (wanted.subscription.subVersion, wanted.subscription.expressionType) == (7, "TAG")


def test_tags_with_equal_hashes_are_told_apart() -> None:
    assert tags_code("Aa") == tags_code("BB")
    wanted = read_filter("orders", "Aa", 0)
    assert wanted.takes("Aa")
    assert not wanted.takes("BB")
    assert not wanted.takes(None)


@pytest.mark.parametrize("expression", ["*", "", " * "])
def test_everything_is_wanted_without_tags(expression: str) -> None:
    wanted = read_filter("orders", expression, 0)
    assert wanted.subscription.subString == "*"
    assert wanted.takes(None)
    assert wanted.takes("any")


def test_sql_is_left_to_the_broker() -> None:
    wanted = read_filter("orders", Sql("a > 3"), 0)
    assert (wanted.subscription.expressionType, wanted.subscription.subString) == ("SQL92", "a > 3")
    assert wanted.takes("any")


def test_a_subscription_without_topic_or_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="one topic"):
        read_filters({}, 0)
    with pytest.raises(ValueError, match="no tag"):
        read_filter("orders", "||", 0)
