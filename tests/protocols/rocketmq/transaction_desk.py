"""Helpers for tests of transactions: half messages, decisions, check-backs, and power cuts during a write."""

from __future__ import annotations

from typing import Any

from doubles import TornTails
from protocols.rocketmq.rocketmq_desk import Desk, Peer, bodies_of, units_of

from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import read_properties

COMMIT, ROLLBACK = 8, 12
PERCENTS = range(0, 101, 10)


def half(desk: Desk, body: bytes = b"half", unique: str = "U", more: str = "") -> dict[str, Any]:
    """Sends a half message. Returns the fields with which a producer decides it."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01{unique}\x02TAGS\x01A\x02{more}"
    answer = desk.broker.send("t", body, 1, properties, f=4)
    assert (answer.code, answer.fields["queueId"], answer.fields["transactionId"]) == (0, "1", unique)
    position = int(answer.fields["msgId"][16:], 16)
    offset = answer.fields["queueOffset"]
    return {"producerGroup": "pg", "tranStateTableOffset": offset, "commitLogOffset": position}


def decide(desk: Desk, asked: dict[str, Any], how: int, **fields: Any) -> Any:
    return desk.broker.ask(37, {**asked, "commitOrRollback": how, **fields})


def found(desk: Desk) -> list[bytes]:
    return bodies_of(desk.broker.pull("t", queue=1))


def heard(desk: Desk, producer: Peer | None = None) -> list[Any]:
    return [command for command in (producer or desk.broker).way.sent if command.code == 39]


def produce(desk: Desk, producer: Peer | None = None) -> None:
    (producer or desk.broker).ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "pg"}]})


def torn(desk: Desk, percent: int) -> Desk:
    """Cuts the power while a pass is written and keeps this percentage of the pass."""
    desk.runner.end_pass()
    desk.core.stop_writes()
    desk.memory.crash(TornTails(percent, keeps_names=True))
    return Desk(None, desk.message_time.now_ms(), desk.memory, **desk.given)


def place_of(question: Any) -> dict[str, Any]:
    """Fields with which a producer decides the half message of a check-back."""
    names = ("tranStateTableOffset", "commitLogOffset")
    return {"producerGroup": "pg", **{name: question.fields[name] for name in names}}


def commit_checked_messages(desk: Desk) -> None:
    produce(desk)
    for _ in range(3):
        desk.advance(30_000)
        for question in heard(desk):
            decide(desk, place_of(question), COMMIT, fromTransactionCheck=True)
        desk.broker.way.sent.clear()


def set_aside(desk: Desk) -> str:
    """Creates a half message that exceeded its check-backs. Returns its message id."""
    produce(desk)
    half(desk)
    desk.advance(10_000)
    (unit,) = units_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC"))
    return offset_message_id(unit.store_host, unit.position)


def checked_times(question: Any) -> str:
    (unit,) = units_of(question)
    return read_properties(unit.properties)["TRANSACTION_CHECK_TIMES"]


def half_messages_stored(desk: Desk) -> int:
    """Number of stored half messages, copies included."""
    return _stored(desk, "RMQ_SYS_TRANS_HALF_TOPIC")


def markers_stored(desk: Desk) -> int:
    return _stored(desk, "RMQ_SYS_TRANS_OP_HALF_TOPIC")


def _stored(desk: Desk, topic: str) -> int:
    return int(desk.broker.ask(30, {"topic": topic, "queueId": 0}).fields["offset"])
