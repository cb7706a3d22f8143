"""Expectations of every Kafka client, independent of its language: one judge per scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compat.brokers import CompatBroker
from compat.programs import Program

from trimq.formats.kafka_batch.compression import Codec

RECORDS = 20
PARTITIONS = 4
START_MS = 1_780_000_000_000


def judge_codecs(program: Program, broker: CompatBroker, codecs: Sequence[str], acks: Sequence[str]) -> None:
    """Records are read as they were sent, with key and header, and are stored with the requested codec."""
    lines = program.run(broker.address, "codecs", codecs=",".join(codecs), acks=",".join(acks))
    acknowledged = {line["topic"]: line["offsets"] for line in lines if "offsets" in line}
    read = {line["topic"]: line["read"] for line in lines if "read" in line}
    assert len(read) == len(codecs) * len(acks)
    for codec in codecs:
        for ack in acks:
            topic = f"codecs-{codec}-{ack}"
            sent = [[i, f"key-{i}", f"{codec} {ack} {i} " + "x" * 200, str(i)] for i in range(RECORDS)]
            assert read[topic] == sent
            if ack != "0":  # which has no response
                assert acknowledged[topic] == list(range(RECORDS))
            assert Codec(broker.first_batch(topic).codec).name.lower() == codec


def judge_idempotence(program: Program, broker: CompatBroker) -> None:
    (line,) = program.run(broker.address, "idempotent")
    assert line["read"] == [str(i) for i in range(500)]
    header = broker.first_batch("idempotent")
    assert header.producer_id >= 0
    assert header.base_sequence == 0


def judge_large_messages(program: Program, broker: CompatBroker, refusal: str) -> None:
    lines = program.run(broker.address, "large")
    assert lines == [
        {"topic": "large-default", "refused": refusal},
        {"topic": "large-set", "refused": refusal},
        {"topic": "large-default", "sizes": [1_000_000], "intact": True},
        {"topic": "large-set", "sizes": [5_000_000, 7_900_000], "intact": True},
    ]


def judge_transactions(program: Program, broker: CompatBroker) -> None:
    """Every third of ten transactions is aborted."""
    committed, everything = program.run(broker.address, "transactions")
    assert committed["isolation"] == "read_committed"
    assert committed["read"] == [f"{i} {letter}" for i in range(10) if i % 3 for letter in "ab"]
    assert everything["isolation"] == "read_uncommitted"
    assert everything["read"] == [f"{i} {letter}" for i in range(10) for letter in "ab"]


def judge_transactional_offsets(program: Program, broker: CompatBroker) -> None:
    lines = program.run(broker.address, "offsets")
    assert lines == [{"outcome": "aborted", "committed": None}, {"outcome": "committed", "committed": 7}]


def judge_fencing(program: Program, broker: CompatBroker, refusals: Sequence[str]) -> None:
    refused, read = program.run(broker.address, "fenced")
    assert refused["refused"] in refusals
    assert read["read"] == ["kept"]


def judge_groups(program: Program, broker: CompatBroker, topic: str, **settings: str) -> None:
    """Two groups of two members share the partitions; when one member leaves, the other gets all of them and resumes at
    the committed offsets."""
    lines = program.run(broker.address, "groups", topic=topic, **settings)
    one, two, taken_over, read_on = lines
    for line, group in ((one, "one"), (two, "two")):
        assert line["group"] == f"{topic}-{group}"
        assert sorted(map(len, line["shares"])) == [2, 2]
        assert sorted(number for share in line["shares"] for number in share) == list(range(PARTITIONS))
        assert line["read"] == list(range(100))
    assert taken_over["shares"] == [list(range(PARTITIONS))]
    assert read_on["read"] == list(range(100, 120))


def judge_restart(program: Program, folder: Path) -> None:
    """A consumer and its group resume after a restart of the broker. Records that were read but not committed may be
    delivered again."""
    with CompatBroker(folder) as broker:
        with program.talking(broker.address, "resume") as conversation:
            assert conversation.heard() == {"read": list(range(10))}
            assert conversation.heard() == {"event": "committed"}
            broker.restart()
            conversation.go_on()
            assert list(dict.fromkeys(conversation.heard()["read"])) == list(range(10, 25))
            conversation.ended()
        broker.restart()
        assert program.run(broker.address, "resumed") == [{"read": [25, 26, 27]}]


def judge_times(program: Program, broker: CompatBroker) -> None:
    """Ten records one second apart: a look-up by time finds the first record that is not older."""
    places = {1: 0, START_MS: 0, START_MS + 2000: 2, START_MS + 2001: 3, START_MS + 9000: 9, START_MS + 9001: None}
    lines = program.run(broker.address, "times", start=START_MS, asked=",".join(map(str, places)))
    assert len(lines) == len(places)
    for line in lines:
        place = places[line["asked"]]
        assert line["offset"] == place
        if place is not None:
            assert (line["value"], line["timestamp"]) == (str(place), START_MS + place * 1000)


def judge_many_topics(program: Program, broker: CompatBroker, count: int) -> None:
    lines = program.run(broker.address, "many", count=count)
    assert lines == [
        {"did": "create", "topics": count},
        {"did": "consume", "topics": count, "all": True},
        {"did": "delete", "topics": 0},
    ]
