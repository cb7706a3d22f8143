"""`trimq groups` against a double of the HTTP port."""

from __future__ import annotations

import json

BILLING = {"name": "billing", "protocol": "kafka", "state": "Stable", "members": 2}
CURSOR = {"topic": "orders", "stream": 0, "offset": 90, "end": 100, "lag": 10}


def test_groups_are_listed_in_columns(trimq, broker_http) -> None:
    empty = {"name": "old", "protocol": "kafka", "state": "Empty", "members": []}
    broker_http.answers["GET", "/api/groups"] = 200, {"groups": [BILLING, empty]}
    done = trimq("groups", "list", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "name     protocol  state   members",
        "billing  kafka     Stable        2",
        "old      kafka     Empty         0",
    ]


def test_a_group_is_described_with_members_and_lag(trimq, broker_http) -> None:
    gone = CURSOR | {"stream": 1, "end": None, "lag": None}
    described = BILLING | {"members": ["first", {"id": "second"}], "cursors": [CURSOR, gone]}
    broker_http.answers["GET", "/api/groups/billing"] = 200, described
    lines = trimq("groups", "describe", "billing", "--http", broker_http.address).stdout.splitlines()
    assert "member    first" in lines
    assert 'member    {"id":"second"}' in lines
    assert lines[-3:] == [
        "topic   stream  offset  end  lag",
        "orders       0      90  100  10",
        "orders       1      90  -    -",
    ]


def test_rebalances_are_described_with_units(trimq, broker_http) -> None:
    totals = {"completed": 3, "total_ms": 95_000, "total_moved": 4, "total_arrived": 200}
    last = {"last_ms": 3_021, "last_moved": 2, "last_arrived": 120}
    described = BILLING | {"members": [], "cursors": [], "rebalances": totals | last | {"running_ms": 850}}
    broker_http.answers["GET", "/api/groups/billing"] = 200, described
    lines = trimq("groups", "describe", "billing", "--http", broker_http.address).stdout.splitlines()
    assert lines[4:7] == [
        "rebalances      3 since the start of the broker, 1 min 35 s in all",
        "last rebalance  took 3.02 s, moved 2 streams, 120 messages arrived meanwhile",
        "rebalancing     for 850 ms",
    ]


def test_programs_get_json(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/groups"] = 200, {"groups": [BILLING]}
    broker_http.answers["GET", "/api/groups/billing"] = 200, BILLING | {"members": [], "cursors": [CURSOR]}
    listed = trimq("groups", "list", "--json", "--http", broker_http.address)
    assert json.loads(listed.stdout) == {"groups": [BILLING]}
    described = trimq("groups", "describe", "billing", "--json", "--http", broker_http.address)
    assert json.loads(described.stdout) == BILLING | {"members": [], "cursors": [CURSOR]}


def test_an_unknown_group_is_a_one_line_error(trimq, broker_http) -> None:
    answer = {"error": "UnknownGroup", "message": "there is no group a/b"}
    broker_http.answers["GET", "/api/groups/a%2Fb"] = 404, answer
    done = trimq("groups", "describe", "a/b", "--http", broker_http.address)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "trimq: there is no group a/b\n")


def test_a_group_of_rocketmq_is_created_as_asked(trimq, broker_http) -> None:
    broker_http.answers["POST", "/api/groups"] = 201, {"name": "pickers", "orderly": True, "retries": 3}
    done = trimq("groups", "create", "pickers", "--orderly", "--retries", "3", "--http", broker_http.address)
    assert (done.returncode, done.stdout) == (0, "created pickers\n")
    assert broker_http.asked == [("POST", "/api/groups", {"name": "pickers", "orderly": True, "retries": 3})]
