"""`trimq topics` against a double of the HTTP port."""

from __future__ import annotations

import json

import pytest

ORDERS = {"name": "orders", "namespace": "", "id": "5f0c", "home": "partition-log", "streams": 2, "settings": {}}
ENDS = {"stream": 0, "start": 5, "end": 12, "durable_end": 11, "readable_end": 10, "bytes": 4096}


def test_topics_are_listed_in_columns(trimq, broker_http) -> None:
    vhost = ORDERS | {"name": "mail", "namespace": "shop", "streams": 10}
    broker_http.answers["GET", "/api/topics"] = 200, {"topics": [ORDERS, vhost]}
    done = trimq("topics", "list", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "name    namespace  streams  home           id",
        "orders                   2  partition-log  5f0c",
        "mail    shop            10  partition-log  5f0c",
    ]


def test_a_broker_without_topics_gives_an_empty_table(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/topics"] = 200, {"topics": []}
    done = trimq("topics", "list", environment={"TRIMQ_HTTP": broker_http.address})
    assert done.returncode == 0
    assert done.stdout == "name  namespace  streams  home  id\n"


def test_programs_get_json(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/topics"] = 200, {"topics": [ORDERS]}
    broker_http.answers["GET", "/api/topics/orders"] = 200, ORDERS | {"offsets": [ENDS]}
    listed = trimq("topics", "list", "--json", "--http", broker_http.address)
    assert json.loads(listed.stdout) == {"topics": [ORDERS]}
    described = trimq("topics", "describe", "orders", "--json", "--http", broker_http.address)
    assert json.loads(described.stdout) == ORDERS | {"offsets": [ENDS]}


def test_a_topic_is_described_with_its_settings_and_ends(trimq, broker_http) -> None:
    described = ORDERS | {"settings": {"retention.ms": "1000"}, "offsets": [ENDS, ENDS | {"stream": 1, "end": 7}]}
    broker_http.answers["GET", "/api/topics/orders"] = 200, described
    lines = trimq("topics", "describe", "orders", "--http", broker_http.address).stdout.splitlines()
    assert "retention.ms  1000" in lines
    assert lines[-3:] == [
        "stream  start  end  durable_end  readable_end  bytes",
        "     0      5   12           11            10   4096",
        "     1      5    7           11            10   4096",
    ]


def test_a_name_is_quoted_and_the_namespace_is_asked_for(trimq, broker_http) -> None:
    path = "/api/topics/a%2Fb%20%C3%A9?namespace=my+shop"
    broker_http.answers["GET", path] = 200, ORDERS | {"name": "a/b é", "offsets": []}
    done = trimq("topics", "describe", "a/b é", "--namespace", "my shop", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert broker_http.asked == [("GET", path, None)]


def test_control_characters_in_a_name_do_not_reach_the_terminal(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/topics"] = 200, {"topics": [ORDERS | {"name": "\x1b[31mred"}]}
    done = trimq("topics", "list", "--http", broker_http.address)
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred" in done.stdout


def test_a_topic_is_created_as_asked(trimq, broker_http) -> None:
    broker_http.answers["POST", "/api/topics"] = 201, ORDERS
    done = trimq(
        "topics", "create", "orders", "--streams", "2", "--setting", "retention.ms=1000", "--setting", "a=b=c",
        "--http", broker_http.address,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "created orders with 2 streams\n", "")
    body = {"name": "orders", "namespace": "", "streams": 2, "home": "partition-log"}
    body |= {"settings": {"retention.ms": "1000", "a": "b=c"}}
    assert broker_http.asked == [("POST", "/api/topics", body)]


def test_settings_of_a_topic_are_changed_and_reset(trimq, broker_http) -> None:
    broker_http.answers["PATCH", "/api/topics/orders"] = 200, ORDERS | {"settings": {"writable": "false"}}
    done = trimq(
        "topics", "alter", "orders", "--setting", "writable=false", "--reset", "segment_ms",
        "--http", broker_http.address,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "writable            false" in done.stdout.splitlines()
    body = {"settings": {"writable": "false", "segment_ms": None}}
    assert broker_http.asked == [("PATCH", "/api/topics/orders", body)]


def test_a_change_without_settings_is_refused(trimq, broker_http) -> None:
    done = trimq("topics", "alter", "orders", "--http", broker_http.address)
    assert (done.returncode != 0, broker_http.asked) == (True, [])
    assert "--setting NAME=VALUE or --reset NAME" in done.stderr


def test_a_topic_is_deleted(trimq, broker_http) -> None:
    broker_http.answers["DELETE", "/api/topics/orders"] = 204, None
    done = trimq("topics", "delete", "orders", "--http", broker_http.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "deleted orders\n", "")


@pytest.mark.parametrize(
    ("status", "answer", "sentence"),
    [
        (404, {"error": "UnknownTopic", "message": "there is no topic orders"}, "there is no topic orders"),
        (503, {"error": "NotRunning", "message": "the broker is not running"}, "the broker is not running"),
        (500, b"<html>", "the server at {address} is not a TriMQ HTTP port: status 500"),
        (302, b"", "the server at {address} is not a TriMQ HTTP port: status 302"),
        (200, b"not json", "the response from {address} cannot be decoded: JSON is malformed"),
        (200, {"name": "orders"}, "the response from {address} cannot be decoded: Object missing required field"),
    ],
)
def test_a_refusal_or_an_unexpected_response_is_a_one_line_error(trimq, broker_http, status, answer, sentence) -> None:
    broker_http.answers["GET", "/api/topics/orders"] = status, answer
    done = trimq("topics", "describe", "orders", "--http", broker_http.address)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("trimq: " + sentence.format(address=broker_http.address))
    assert done.stderr.count("\n") == 1


def test_a_topic_of_rocketmq_is_created_as_asked(trimq, broker_http) -> None:
    steps = ORDERS | {"name": "steps", "home": "commit-log"}
    broker_http.answers["POST", "/api/topics"] = 201, steps
    flags = ("--home", "commit-log", "--setting", "message.type=FIFO", "--http", broker_http.address)
    assert trimq("topics", "create", "steps", *flags).returncode == 0
    settings = {"message.type": "FIFO"}
    body = {"name": "steps", "namespace": "", "streams": 1, "home": "commit-log", "settings": settings}
    assert broker_http.asked == [("POST", "/api/topics", body)]
