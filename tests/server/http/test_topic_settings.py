"""Settings of topics under our names and Kafka's, in both spellings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from trimq.config import Settings
from trimq.core.partitions.topic_settings import SETTING_NAMES
from trimq.errors import InvalidSetting
from trimq.protocols.kafka.names.topic_configs import BrokerLevels
from trimq.server.http.topic_settings import own_names, setting_rows
from trimq.testing import Broker

PATIENCE_S = 20


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        ("retention_ms", "60000", {"retention_ms": "60000"}),
        ("retention.ms", "60000", {"retention_ms": "60000"}),
        ("max.message.bytes", "1000", {"message_bytes": "1000"}),
        ("max_message_bytes", "1000", {"message_bytes": "1000"}),
        ("message.bytes", "1000", {"message_bytes": "1000"}),
        ("cleanup.policy", "compact", {"cleanup": "compact"}),
        ("message.timestamp.type", "LogAppendTime", {"record_time": "appended"}),
        ("record_time", "appended", {"record_time": "appended"}),
        ("compression.type", "uncompressed", {"compression": "none"}),
        ("writable", "false", {"writable": "false"}),
        ("retention.ms", None, {"retention_ms": None}),
        ("remote.storage.enable", None, {"is_tiered": None}),
        ("remote.storage.enable", "false", {"is_tiered": "false"}),
    ],
)
def test_a_setting_has_two_names_and_two_spellings(name: str, value: str | None, own: dict[str, str | None]) -> None:
    assert own_names({name: value}) == own


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.sm", "1", "retention.sm: unknown topic setting, did you mean retention.ms?"),
        ("retentionms", "1", "did you mean retention"),
        ("cleanup.polcy", "compact", "did you mean cleanup.policy?"),
        ("zzz", "1", "zzz: unknown topic setting; trimq topics settings lists all"),
        ("message.timestamp.type", "Never", "message.timestamp.type: 'Never' is not one of"),
        ("remote.storage.enable", "true", "remote.storage.enable: cannot be changed"),
    ],
)
def test_what_is_not_understood_is_explained(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        own_names({name: value})
    assert words in str(refused.value)


def test_a_setting_given_twice_must_agree() -> None:
    assert own_names({"retention.ms": "5", "retention_ms": "5"}) == {"retention_ms": "5"}
    with pytest.raises(InvalidSetting, match="is the same setting as retention"):
        own_names({"retention.ms": "5", "retention_ms": "6"})


def test_every_setting_is_listed() -> None:
    rows = list(setting_rows(BrokerLevels(Settings())))
    assert [row["name"] for row in rows] == sorted(SETTING_NAMES)
    (retention,) = (row for row in rows if row["name"] == "retention_ms")
    assert (retention["kafka_name"], retention["default"]) == ("retention.ms", "604800000")
    assert all(row["description"] and row["default"] is not None for row in rows)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(broker: Broker, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = HTTPConnection(broker.addresses["http"], timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_topics_are_created_and_changed_by_either_name(broker: Broker) -> None:
    status, made = ask(broker, "POST", "/api/topics", {"name": "orders", "settings": {"retention.ms": "60000"}})
    assert (status, made["settings"]) == (201, {"retention_ms": "60000"})
    change = {"settings": {"segment.ms": "5000", "retention.ms": None}}
    status, changed = ask(broker, "PATCH", "/api/topics/orders", change)
    assert (status, changed["settings"]) == (200, {"segment_ms": "5000"})
    status, refused = ask(broker, "PATCH", "/api/topics/orders", {"settings": {"segment.mss": "5"}})
    assert (status, refused["error"]) == (400, "InvalidSetting")
    assert "did you mean segment.ms?" in refused["message"]


def test_the_command_lists_the_settings(broker: Broker) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    command = [sys.executable, "-m", "trimq.cli", "topics", "settings", "--http", broker.addresses["http"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("retention_ms"))
    assert line.split()[:3] == ["retention_ms", "retention.ms", "604800000"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert json.loads(done.stdout) == ask(broker, "GET", "/api/topic-settings")[1]
