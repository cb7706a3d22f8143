"""docs/kafka.md and docs/amqp.md name the client versions that the tests use."""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent


def documented(page: str) -> set[tuple[str, str]]:
    rows = re.findall(r"^\| ([^|]+) \| (\d+\.\d+\.\d+) \|", (PROJECT / "docs" / page).read_text(), re.MULTILINE)
    return {(re.sub(r" \(.*", "", name), version) for name, version in rows}


def pinned(name: str) -> tuple[str, str]:
    (version,) = re.findall(rf"^{name}==(\S+)", (PROJECT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    return name, version


def stated(name: str, test: str, constant: str = "VERSION") -> tuple[str, str]:
    (version,) = re.findall(rf'^{constant} = "(.+?)"', (HERE / test).read_text(), re.MULTILINE)
    return name, version


def locked(name: str, folder: str) -> tuple[str, str]:
    """Version of a crate in the lock file."""
    lock = (HERE / "clients" / folder / "Cargo.lock").read_text()
    (version,) = re.findall(rf'^name = "{name}"\nversion = "(.+)"$', lock, re.MULTILINE)
    return name, version


def test_the_page_about_rabbitmq_names_every_client_in_the_version_that_is_tested() -> None:
    modules = (HERE / "clients" / "amqp091-go" / "go.mod").read_text()
    packages = json.loads((HERE / "clients" / "amqplib" / "package.json").read_text())
    assert documented("amqp.md") == {
        pinned("pika"),
        pinned("aio-pika"),
        pinned("kombu"),
        ("py-amqp", pinned("amqp")[1]),
        ("Celery", pinned("celery")[1]),
        ("amqplib", packages["dependencies"]["amqplib"]),
        stated("RabbitMQ's Java client", "test_amqp_clients.py"),
        ("amqp091-go", re.findall(r"rabbitmq/amqp091-go v(\S+)", modules)[0]),
        locked("lapin", "lapin"),
    }


def test_the_page_about_kafka_names_every_client_in_the_version_that_is_tested() -> None:
    modules = (HERE / "clients" / "go" / "go.mod").read_text()
    packages = json.loads((HERE / "clients" / "node" / "package.json").read_text())
    assert documented("kafka.md") == {
        pinned("confluent-kafka"),
        pinned("kafka-python"),
        pinned("aiokafka"),
        stated("Apache Kafka's Java client", "test_kafka_clients.py", "JAVA_4_3"),
        stated("Apache Kafka's Java client", "test_kafka_clients.py", "JAVA_3_9"),
        ("franz-go", re.findall(r"twmb/franz-go v(\S+)", modules)[0]),
        ("kafkajs", packages["dependencies"]["kafkajs"]),
        stated("kcat", "test_kcat.py"),
    }
