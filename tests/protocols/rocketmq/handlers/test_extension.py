"""TriMQ's extension of remoting, held against the bytes of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from protocols.rocketmq.handlers.test_pop import made
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.protocols.rocketmq.handlers.extension import FEATURES
from trimq.wire.remoting import encode_request

HELLO = 210001
PAGE = (Path(__file__).parents[4] / "docs" / "client-protocol.md").read_text()


def frames(section: str) -> list[bytes]:
    """Frames shown in a section: two words of hexadecimal digits, then the header."""
    text = PAGE.partition(f"\n## {section}")[2].partition("\n## ")[0]
    found = re.findall(r"```text\n([0-9a-f]{8}) ([0-9a-f]{8})\n(.*)\n```", text)
    return [bytes.fromhex(length + mark) + header.encode() for length, mark, header in found]


def test_hello_has_the_bytes_of_its_page() -> None:
    request, response = frames("HELLO (210001)")
    assert encode_request(HELLO, 1, 0, {"version": "1"}, "PYTHON") == request
    desk = Desk()
    reply = desk.broker.give(request)
    assert reply is not None
    assert b"".join(reply.take()) == response


def test_every_feature_is_on_the_page() -> None:
    assert re.findall(r"^## Feature `(\w+)`", PAGE, re.MULTILINE) == list(FEATURES)


@pytest.mark.parametrize(("asked", "answered"), [("1", "1"), ("2", "1"), ("99999999999999999999", "1")])
def test_hello_is_answered_with_the_highest_common_version(asked: str, answered: str) -> None:
    answer = Desk().broker.ask(HELLO, {"version": asked})
    assert (answer.code, answer.fields["version"]) == (0, answered)


@pytest.mark.parametrize("asked", ["", "0", "-1", "one", "٣"])
def test_hello_with_a_malformed_version_is_refused(asked: str) -> None:
    assert Desk().broker.ask(HELLO, {"version": asked}).code == 29


def test_the_name_server_answers_hello_too() -> None:
    assert Desk().names.ask(HELLO, {"version": "1"}).fields["features"] == ",".join(FEATURES)


# -- TRIMQ_ONCE

ONCE = "UNIQ_KEY\x01{}\x02TRIMQ_ONCE\x01true\x02"


def test_a_repetition_gets_the_first_answer_and_is_not_stored() -> None:
    desk = made(4)
    first = desk.broker.send("t", b"x", 1, ONCE.format("A" * 32))
    again = desk.broker.send("t", b"x", 2, ONCE.format("A" * 32))
    assert (again.code, again.fields) == (0, first.fields)
    assert desk.broker.send("t", b"x", 2, ONCE.format("B" * 32)).fields["queueOffset"] == "0"


def test_a_message_without_the_property_is_stored_each_time() -> None:
    desk = made(4)
    for offset in range(2):
        sent = desk.broker.send("t", b"TRIMQ_ONCE", 1, f"UNIQ_KEY\x01{'A' * 32}\x02note\x01TRIMQ_ONCE\x02")
        assert sent.fields["queueOffset"] == str(offset)
