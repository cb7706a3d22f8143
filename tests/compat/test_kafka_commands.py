"""Apache Kafka's command-line tools, each command a process of its own: administration that no other client does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.brokers import CompatBroker
from compat.kafka_tools import ARTIFACTS
from compat.maven import classpath
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

PATIENCE_S = 60
REASSIGN = "reassign.ReassignPartitionsCommand"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with CompatBroker(tmp_path_factory.mktemp("commands")) as running:
        yield running.address


@pytest.fixture(scope="module")
def run(broker: str) -> Run:
    libraries = classpath(ARTIFACTS)

    def run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["java", "-Xmx128m", "-cp", libraries, f"org.apache.kafka.tools.{tool}"]
        command += ["--bootstrap-server", broker, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    return run


def make_topic(broker: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)


@pytest.mark.parametrize("more", [(), ("--throttle", "1000000")], ids=["unthrottled", "throttled"])
def test_a_reassignment_is_accepted_and_verified(
    broker: str, run: Run, tmp_path: Path, more: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    topic = f"moved-{request.node.callspec.id}"
    make_topic(broker, topic)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    executed = run(REASSIGN, "--reassignment-json-file", str(plan), "--execute", *more)
    assert executed.returncode == 0, executed.stdout + executed.stderr
    verified = run(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"Reassignment of partition {topic}-0 is completed." in verified.stdout


def test_a_replica_stays_in_the_one_folder(broker: str, run: Run, tmp_path: Path) -> None:
    make_topic(broker, "housed")
    described = run("LogDirsCommand", "--describe", "--topic-list", "housed")
    assert described.returncode == 0, described.stdout + described.stderr
    (folder,) = json.loads(described.stdout.splitlines()[-1])["brokers"][0]["logDirs"]
    assert [each["partition"] for each in folder["partitions"]] == ["housed-0"]
    plan = tmp_path / "plan.json"
    replica = {"topic": "housed", "partition": 0, "replicas": [1], "log_dirs": [folder["logDir"]]}
    plan.write_text(json.dumps({"version": 1, "partitions": [replica]}))
    for action in ("--execute", "--verify"):
        done = run(REASSIGN, "--reassignment-json-file", str(plan), action)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "completed successfully" in done.stdout


def test_the_quorum_is_this_node(run: Run) -> None:
    status = run("MetadataQuorumCommand", "describe", "--status")
    assert status.returncode == 0, status.stdout + status.stderr
    assert dict(line.split(":", 1) for line in status.stdout.splitlines())["LeaderId"].strip() == "1"
    replication = run("MetadataQuorumCommand", "describe", "--replication")
    assert [line.split()[-1] for line in replication.stdout.splitlines()[1:]] == ["Leader"]


def test_settings_of_kafkas_own_files_are_kept_and_described(run: Run) -> None:
    given = "file.delete.delay.ms=12345"
    made = run("TopicCommand", "--create", "--topic", "delayed", "--config", given)
    assert made.returncode == 0, made.stdout + made.stderr
    assert given in run("TopicCommand", "--describe", "--topic", "delayed").stdout


def test_a_hanging_transaction_is_aborted_by_hand(broker: str, run: Run) -> None:
    make_topic(broker, "hanging")
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "hangs"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("hanging", b"undecided")
    assert producer.flush(PATIENCE_S) == 0
    aborted = run("TransactionsCommand", "abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
    assert aborted.returncode == 0, aborted.stdout + aborted.stderr
    plain = Producer({"bootstrap.servers": broker})
    plain.produce("hanging", b"decided")
    assert plain.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe(["hanging"])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"decided"
    finally:
        consumer.close()


def test_reading_committed_offsets_as_records_is_refused(broker: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "curious", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("__consumer_offsets", 0, OFFSET_BEGINNING)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()
