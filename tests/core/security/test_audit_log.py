"""The audit log: what is written at once, what is counted, and that no text can forge a line."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from trimq.clock import ManualTime
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.audit_log import AuditLog
from trimq.core.security.login_log import LoginLog
from trimq.core.security.resources import BROKER, Action, Resource, ResourceKind
from trimq.metrics import Metrics
from trimq.model import Caller

ALICE = Caller("alice", "", "10.0.0.7:5000", "kafka")
ORDERS = Resource(ResourceKind.TOPIC, "", "orders")


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture, per_minute: int = 1000) -> None:
        caplog.set_level(logging.INFO, "trimq.audit")
        self._caplog = caplog
        self.metrics, self.time = Metrics(), ManualTime(5_000)
        self.audit = AuditLog(self.metrics, self.time, per_minute)

    def records(self) -> list[dict[str, Any]]:
        found = [json.loads(record.getMessage()) for record in self._caplog.records if record.name == "trimq.audit"]
        self._caplog.clear()
        return found

    def pass_a_minute(self) -> None:
        while self.time.step(self.time.now_ms() + 60_000):
            pass


def test_a_refusal_names_caller_action_and_resource(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog)
    bench.audit.denied(ALICE, Action.DESCRIBE_CONFIGS, Resource(ResourceKind.ROUTE, "shop", "orders"))
    assert bench.records() == [
        {
            "event": "refused",
            "principal": "alice",
            "address": "10.0.0.7:5000",
            "protocol": "kafka",
            "action": "describe-configs",
            "resource": "exchange",
            "name": "orders",
            "vhost": "shop",
        }
    ]
    page = bench.metrics.render().decode()
    assert 'trimq_denied_total{action="describe-configs",protocol="kafka"} 1' in page


def test_equal_refusals_are_written_once_and_counted_at_the_end_of_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(caplog)
    for port in range(5):
        bench.audit.denied(replace(ALICE, address=f"10.0.0.7:{port}"), Action.READ, ORDERS)
    assert [record.get("repeats") for record in bench.records()] == [None]
    bench.pass_a_minute()
    (counted,) = bench.records()
    assert (counted["name"], counted["action"], counted["repeats"]) == ("orders", "read", 4)
    bench.pass_a_minute()
    assert bench.records() == []
    bench.audit.denied(ALICE, Action.READ, ORDERS)
    assert len(bench.records()) == 1


def test_a_flood_of_different_refusals_is_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, per_minute=10)
    for number in range(5000):
        bench.audit.denied(ALICE, Action.READ, Resource(ResourceKind.TOPIC, "", f"t{number}"))
    assert len(bench.records()) == 10
    bench.audit.close()
    assert bench.records() == [{"event": "refused", "others": True, "repeats": 4990}]
    assert 'trimq_denied_total{action="read",protocol="kafka"} 5000' in bench.metrics.render().decode()


def test_a_flood_of_refusals_hides_no_login(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, per_minute=1)
    for _ in range(3):
        bench.audit.denied(ALICE, Action.READ, ORDERS)
        bench.audit.denied(ALICE, Action.WRITE, ORDERS)
    bench.audit.login("kafka", "PLAIN", "alice", "10.0.0.7:1", "wrong password")
    assert [record["event"] for record in bench.records()] == ["refused", "login"]


def test_without_a_limit_each_one_is_written(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, per_minute=0)
    for _ in range(20):
        bench.audit.denied(ALICE, Action.READ, ORDERS)
    assert len(bench.records()) == 20
    bench.audit.close()
    assert bench.records() == []


def test_changes_are_all_written(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, per_minute=1)
    for _ in range(3):
        bench.audit.changed(ALICE, "delete", "topic", "orders", "", partitions=3)
    entry = AclEntry("bob", ResourceKind.BROKER, "trimq", None, is_allowed=False, host="10.0.0.0/8")
    bench.audit.entry_changed(ALICE, "create", entry)
    *topics, changed = bench.records()
    assert [(record["action"], record["resource"], record["partitions"]) for record in topics] == [
        ("delete", "topic", 3)
    ] * 3
    assert changed["entry"] == {
        "type": "deny",
        "principal": "bob",
        "operation": "all",
        "resource": "broker",
        "prefix": False,
        "host": "10.0.0.0/8",
    }


def test_logins_are_recorded_with_result_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog)
    logins = LoginLog(bench.metrics, bench.audit)
    logins.succeeded("amqp", "PLAIN", "alice", "10.0.0.7:1")
    logins.failed("amqp", "PLAIN", "alice", "10.0.0.7:2", "wrong password")
    common = {"event": "login", "principal": "alice", "protocol": "amqp", "mechanism": "PLAIN"}
    assert bench.records() == [
        {**common, "result": "success", "address": "10.0.0.7:1"},
        {**common, "result": "failure", "address": "10.0.0.7:2", "reason": "wrong password"},
    ]


def test_long_names_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog)
    bench.audit.denied(ALICE, Action.READ, Resource(ResourceKind.TOPIC, "", "n" * 100_000))
    (record,) = bench.records()
    assert record["name"] == "n" * 512 + "…"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\x85", "\u202e", "\udcff", "\x7f", '"}\n{"event":"login'])
def test_a_name_can_neither_forge_a_line_nor_control_a_terminal(name: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog)
    bench.audit.denied(ALICE, Action.READ, Resource(ResourceKind.TOPIC, "", name))
    bench.audit.denied(ALICE, Action.ADMINISTER, BROKER)
    line = caplog.records[0].getMessage()
    assert line.isprintable()
    line.encode()
    assert json.loads(line)["name"] == name
