"""The page about Kafka names the clients in the versions that the tests use."""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent


def told() -> set[tuple[str, str]]:
    rows = re.findall(r"^\| ([^|]+) \| (\d+\.\d+\.\d+) \|", (PROJECT / "docs" / "kafka.md").read_text(), re.MULTILINE)
    return {(re.sub(r" \(.*", "", name), version) for name, version in rows}


def pinned(name: str) -> tuple[str, str]:
    (version,) = re.findall(rf"^{name}==(\S+)", (PROJECT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    return name, version


def stated(name: str, test: str) -> tuple[str, str]:
    (version,) = re.findall(r'^VERSION = "(.+)"$', (HERE / test).read_text(), re.MULTILINE)
    return name, version


def test_the_page_names_every_client_in_the_version_that_is_tested() -> None:
    modules = (HERE / "clients" / "go" / "go.mod").read_text()
    packages = json.loads((HERE / "clients" / "node" / "package.json").read_text())
    assert told() == {
        pinned("confluent-kafka"),
        pinned("kafka-python"),
        pinned("aiokafka"),
        stated("Apache Kafka's Java client", "test_java_4_3.py"),
        stated("Apache Kafka's Java client", "test_java_3_9.py"),
        ("franz-go", re.findall(r"twmb/franz-go v(\S+)", modules)[0]),
        ("kafkajs", packages["dependencies"]["kafkajs"]),
        stated("kcat", "test_kcat.py"),
    }
