from __future__ import annotations

import inspect

import pytest

from trimq.errors import AccessDenied, DiskFull, NotRunning, Refusal, UnknownTopic, WriteFailed
from trimq.errors import groups as group_refusals
from trimq.formats.kafka_subscription import read_topics
from trimq.protocols.kafka.names.codes import GROUP_CODES, Code, group_code

REFUSALS = [
    found
    for _, found in inspect.getmembers(group_refusals, inspect.isclass)
    if issubclass(found, Refusal) and found.__module__ == group_refusals.__name__
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_refusal_of_a_member_has_a_code(refusal: type[Refusal]) -> None:
    assert refusal in GROUP_CODES


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (AccessDenied("eve", "read", "group billing"), Code.GROUP_AUTHORIZATION_FAILED),
        (AccessDenied("eve", "read", "topic billing"), Code.TOPIC_AUTHORIZATION_FAILED),
        (UnknownTopic("t"), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (NotRunning(), Code.NOT_COORDINATOR),
        (DiskFull(1, 2), Code.COORDINATOR_NOT_AVAILABLE),
        (WriteFailed("no"), Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_other_refusals_have_the_code_that_consumers_understand(refusal: Refusal, code: Code) -> None:
    assert group_code(refusal) == code


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\0\0" + b"\0\0\0\1" + b"\0\1a" + b"\xff\xff\xff\xff", {"a"}),
        (b"\0\3" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"anything", {"a", "bc"}),
        (b"\0\1\0\0\0\0", set()),
        (b"", None),
        (b"\0\0\0\0\0\1\0\5a", None),
        (b"\0\0\x7f\xff\xff\xff\0\1a", None),
        (b"\0\0\0\0\0\1\xff\xffa", None),
        (b"\0\0\0\0\0\1\0\1\xff", None),
    ],
)
def test_the_topics_of_a_subscription_are_read_or_it_is_none(metadata: bytes, topics: set[str] | None) -> None:
    assert read_topics(metadata) == topics
