"""kcat (librdkafka 2.0, of Debian 12): typical use on the command line, each command a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from compat.brokers import CompatBroker
from compat.debian import debian_program
from compat.programs import Program
from confluent_kafka.admin import AdminClient, NewTopic

from trimq.formats.kafka_batch.compression import Codec

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "1.7.1"
PATIENCE_S = 30
FROM_START = ("-X", "auto.offset.reset=earliest")  # in a group, -o would override the committed offsets
ALL = ("-o", "beginning", "-e", "-q")


class Kcat:
    """Runs kcat against one broker."""

    def __init__(self, program: Program, broker: CompatBroker) -> None:
        self.broker = broker
        self._program = program
        self._environment = {**os.environ, **program.environment}

    def start(self, *arguments: str, **streams: int) -> subprocess.Popen[str]:
        command = [*self._program.command, "-b", self.broker.address, *arguments]
        return subprocess.Popen(command, env=self._environment, text=True, **streams)

    def do(self, *arguments: str, lines: Iterable[object] = ()) -> list[str]:
        """Runs kcat with these input lines. Returns its output."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.start(*arguments, **pipes) as process:
            output, complaint = process.communicate("".join(f"{line}\n" for line in lines), timeout=PATIENCE_S)
        assert process.returncode == 0, complaint
        return output.splitlines()

    def make_topics(self, names: Iterable[str], partitions: int = 1, **settings: str) -> None:
        """Creates topics: kcat creates them on the first write, but librdkafka refreshes its metadata only a second
        later."""
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        config = {key.replace("_", "."): value for key, value in settings.items()}
        made = admin.create_topics([NewTopic(name, partitions, 1, config=config) for name in names])
        for pending in made.values():
            pending.result(PATIENCE_S)


@pytest.fixture(scope="module")
def program() -> Program:
    return debian_program("kcat", VERSION)


@pytest.fixture(scope="module")
def kcat(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kcat]:
    with CompatBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield Kcat(program, broker)


def await_that(is_so: Callable[[], bool], found: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, found()
        time.sleep(0.02)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_with_every_kind_of_acknowledgement(kcat: Kcat, codec: str, acks: str) -> None:
    topic = f"codecs-{codec}-{acks}"
    kcat.make_topics([topic])
    sent = [f"key-{i}:{codec} {acks} {i} " + "x" * 200 for i in range(20)]
    own = ("-z", codec, "-X", f"acks={acks}", "-X", "linger.ms=50")
    kcat.do("-P", "-t", topic, "-p", "0", "-K", ":", "-H", "kind=test", *own, lines=sent)
    read = ("-C", "-t", topic, "-p", "0", "-f", "%o %h %k:%s\n", *ALL)
    expected = [f"{i} kind=test {text}" for i, text in enumerate(sent)]
    if acks == "0":  # without acks, the records may not have arrived yet
        await_that(lambda: len(kcat.do(*read)) == len(sent), lambda: kcat.do(*read))
    assert kcat.do(*read) == expected
    assert Codec(kcat.broker.first_batch(topic).codec).name.lower() == codec


def test_an_idempotent_producer_keeps_its_order(kcat: Kcat) -> None:
    own = ("-X", "enable.idempotence=true", "-X", "batch.num.messages=5")
    kcat.do("-P", "-t", "idempotent", "-p", "0", *own, lines=range(500))
    assert kcat.do("-C", "-t", "idempotent", *ALL) == [str(i) for i in range(500)]
    assert kcat.broker.first_batch("idempotent").producer_id >= 0


def sending_in_a_transaction(kcat: Kcat, topic: str, name: str) -> subprocess.Popen[str]:
    """Starts a transactional producer that has sent many messages and waits for input."""
    own = ("-X", f"transactional.id={name}", "-X", "transaction.timeout.ms=3000", "-X", "linger.ms=0")
    process = kcat.start("-P", "-t", topic, "-p", "0", *own, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("lost\n" * 20_000)  # kcat reads in large blocks
    process.stdin.flush()
    everything = ("-C", "-t", topic, "-p", "0", "-X", "isolation.level=read_uncommitted", *ALL)
    await_that(lambda: "lost" in kcat.do(*everything), lambda: kcat.do(*everything))
    return process


def test_committed_records_are_read_and_an_open_transaction_is_aborted(kcat: Kcat) -> None:
    """kcat cannot abort. When it is killed, it leaves an open transaction, which the broker aborts after the
    time-out."""
    kcat.do("-P", "-t", "both-ways", "-p", "0", "-X", "transactional.id=both-ways", lines=["kept", "too"])
    committed = ("-C", "-t", "both-ways", "-X", "isolation.level=read_committed", *ALL)
    with sending_in_a_transaction(kcat, "both-ways", "left-open") as left_open:
        assert kcat.do(*committed) == ["kept", "too"]
        left_open.kill()
    kcat.do("-P", "-t", "both-ways", "-p", "0", lines=["after"])
    await_that(lambda: kcat.do(*committed) == ["kept", "too", "after"], lambda: kcat.do(*committed))


def test_a_fenced_producer_cannot_commit(kcat: Kcat) -> None:
    kcat.make_topics(["fenced"])
    with sending_in_a_transaction(kcat, "fenced", "fenced") as old:
        kcat.do("-P", "-t", "fenced", "-X", "transactional.id=fenced", lines=["kept"])
        _, complaint = old.communicate("and this\n", timeout=PATIENCE_S)
    assert old.returncode != 0
    assert "fenced" in complaint
    assert kcat.do("-C", "-t", "fenced", "-X", "isolation.level=read_committed", *ALL) == ["kept"]


class Member:
    """A kcat process in a group, with its output in files."""

    def __init__(self, kcat: Kcat, folder: Path, group: str, topic: str, assignor: str) -> None:
        folder.mkdir()
        self._read, self._log = folder / "read", folder / "told"
        own = ("-X", f"partition.assignment.strategy={assignor}", "-X", "heartbeat.interval.ms=300", "-u")
        with self._read.open("w") as read, self._log.open("w") as log:
            arguments = ("-G", group, *FROM_START, "-f", "%s\n", *own, topic)
            self.process = kcat.start(*arguments, stdout=read.fileno(), stderr=log.fileno())

    @property
    def share(self) -> set[int]:
        """Partitions of this member, from the rebalance messages: eager or incremental."""
        owned: set[int] = set()
        for line in self._log.read_text().splitlines():
            numbers = {int(number) for number in re.findall(r"\[(\d+)\]", line)}
            if " rebalanced" in line:
                owned = owned | numbers if " assign" in line else owned - numbers
        return owned

    @property
    def read(self) -> list[int]:
        return [int(line) for line in self._read.read_text().splitlines()]

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_two_groups_of_two_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    kcat: Kcat, assignor: str, tmp_path: Path
) -> None:
    topic = f"shared-{assignor}"
    kcat.make_topics([topic], 4)
    kcat.do("-P", "-t", topic, lines=range(100))
    with ExitStack() as stack:
        groups = [
            [
                stack.enter_context(Member(kcat, tmp_path / f"{group}-{name}", f"{topic}-{group}", topic, assignor))
                for name in ("first", "second")
            ]
            for group in ("one", "two")
        ]

        def state() -> list[object]:
            return [(member.share, len(member.read)) for group in groups for member in group]

        def is_shared(group: list[Member]) -> bool:
            shares = [member.share for member in group]
            return sorted(map(len, shares)) == [2, 2] and set.union(*shares) == {0, 1, 2, 3}

        await_that(lambda: all(map(is_shared, groups)), state)
        await_that(lambda: all({*one.read, *other.read} == set(range(100)) for one, other in groups), state)
        left, stayed = groups[0]
        left.leave()
        await_that(lambda: stayed.share == {0, 1, 2, 3}, state)
        kcat.do("-P", "-t", topic, lines=range(100, 120))
        await_that(lambda: set(stayed.read) >= set(range(100, 120)), state)


def test_a_group_resumes_after_a_restart_of_the_broker(program: Program, tmp_path: Path) -> None:
    with CompatBroker(tmp_path) as broker:
        kcat = Kcat(program, broker)
        kcat.do("-P", "-t", "resume", "-p", "0", lines=range(20))
        group = ("-G", "resume", "-q", *FROM_START, "resume")
        assert kcat.do("-c", "10", *group) == [str(i) for i in range(10)]
        broker.restart()
        assert kcat.do("-c", "10", *group) == [str(i) for i in range(10, 20)]


def test_a_look_up_by_time_finds_its_record(kcat: Kcat) -> None:
    # kcat sets the time of sending as timestamp; look-ups use times before, between and after the records.
    kcat.do("-P", "-t", "times", "-p", "0", lines=["first"])
    between = kcat.do("-C", "-t", "times", "-f", "%T\n", *ALL)[0]
    await_that(lambda: time.time() * 1000 > int(between) + 1, lambda: between)
    kcat.do("-P", "-t", "times", "-p", "0", lines=["second"])
    after = str(int(between) + 1)
    assert kcat.do("-Q", "-t", "times:0:1") == ["times [0] offset 0"]
    assert kcat.do("-Q", "-t", f"times:0:{after}") == ["times [0] offset 1"]
    assert kcat.do("-C", "-t", "times", "-o", f"s@{after}", "-e", "-q") == ["second"]
    assert kcat.do("-C", "-t", "times", "-o", "s@1", "-o", f"e@{after}", "-q") == ["first"]


def test_large_messages_pass_and_too_large_ones_are_refused(kcat: Kcat, tmp_path: Path) -> None:
    kcat.make_topics(["large"], max_message_bytes="8000000")
    body = tmp_path / "body"
    body.write_text("0123456789abcdefghi" * 300_000)
    own = ("-X", "message.max.bytes=20000000")
    kcat.do("-P", "-t", "large", "-p", "0", *own, str(body))
    (read,) = kcat.do("-C", "-t", "large", *own, *ALL)
    assert read == body.read_text()
    body.write_text("0123456789abcdefghi" * 500_000)
    with kcat.start("-P", "-t", "large", "-p", "0", *own, str(body), stderr=subprocess.PIPE) as refused:
        _, complaint = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode != 0
    assert "Message size too large" in complaint


def test_the_metadata_listing_has_brokers_topics_and_partitions(kcat: Kcat) -> None:
    kcat.make_topics(["listed"], 3)
    (text,) = kcat.do("-L", "-J", "-t", "listed")
    listed = json.loads(text)
    assert [broker["name"] for broker in listed["brokers"]] == [kcat.broker.address]
    (topic,) = listed["topics"]
    assert topic["topic"] == "listed"
    assert [(each["partition"], each["leader"]) for each in topic["partitions"]] == [(0, 1), (1, 1), (2, 1)]


def test_twenty_topics_through_one_pattern(kcat: Kcat) -> None:
    names = [f"many-{i:02}" for i in range(20)]
    kcat.make_topics(names)
    for name in names:
        kcat.do("-P", "-t", name, lines=[name])
    read = kcat.do("-G", "many", "-q", *FROM_START, "-c", "20", "-f", "%t %s\n", "^many-.*")
    assert sorted(read) == [f"{name} {name}" for name in names]
