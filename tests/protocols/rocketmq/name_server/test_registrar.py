"""Registration of this broker with another name server: at connect, every 30 seconds, and after changes of topics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import Desk, Way, receive, request

from trimq.errors import Stopping
from trimq.protocols.rocketmq.name_server.registrar import RegistrationConversation
from trimq.protocols.rocketmq.wire.registrations import (
    DataVersion,
    QueueData,
    Registration,
    read_registration,
    write_registration,
)
from trimq.wire.remoting import RESPONSE, Command

OTHER = {"broker-b": {"0": "127.0.0.1:10911"}}


class Link(Way):
    """Connection of one desk's broker to another desk's name server: each frame is handled at once."""

    def __init__(self, names: Desk) -> None:
        super().__init__()
        self.peer = names.connect(names.doors.name_server())
        self.answers: list[Command] = []
        self.is_idle_allowed = False

    def disable_idle_timeout(self) -> None:
        self.is_idle_allowed = True

    def send(self, parts: Any) -> None:
        super().send(parts)
        reply = self.peer.give(b"".join(parts))
        if reply is not None:
            self.answers.append(self.peer._desk.take(reply))


def linked(**settings: Any) -> tuple[Desk, Desk, Link, RegistrationConversation]:
    names, desk = Desk(), Desk(**{"broker_name": "broker-b", **settings})
    link = Link(names)
    return names, desk, link, desk.doors.registrar().open_conversation("10.0.0.9:9876", link)


def brokers(names: Desk, topic: str) -> Any:
    answer = names.names.ask(105, {"topic": topic})
    if answer.code:
        return answer.code
    return {row["brokerName"]: row["brokerAddrs"] for row in json.loads(answer.body)["brokerDatas"]}


def test_a_broker_registers_its_topics_when_it_connects() -> None:
    names, desk = Desk(), Desk(broker_name="broker-b", cluster_name="Other")
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4})
    link = Link(names)
    desk.doors.registrar().open_conversation("10.0.0.9:9876", link)
    assert [answer.code for answer in link.answers] == [0]
    assert link.is_idle_allowed
    shown = json.loads(names.names.ask(105, {"topic": "t"}).body)
    (queues,) = shown["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 2, 4)
    assert [(row["cluster"], row["brokerAddrs"]) for row in shown["brokerDatas"]] == [("Other", OTHER["broker-b"])]
    assert set(brokers(names, "TBW102")) == {"broker-a", "broker-b"}


def test_changes_of_topics_are_registered_together_soon() -> None:
    names, desk, link, _ = linked()
    for name in ("t", "u"):
        desk.broker.ask(17, {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
    assert brokers(names, "t") == 17
    desk.let_pass(100)
    assert (brokers(names, "t"), brokers(names, "u"), len(link.answers)) == (OTHER, OTHER, 2)
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4})
    desk.let_pass(100)
    assert json.loads(names.names.ask(105, {"topic": "t"}).body)["queueDatas"][0]["perm"] == 4


def test_a_registration_is_repeated_so_that_the_name_server_keeps_it() -> None:
    names, desk, link, _ = linked()
    for _ in range(10):
        desk.let_pass(30_000)
        names.let_pass(30_000)
    assert len(link.answers) == 11
    assert set(brokers(names, "TBW102")) == {"broker-a", "broker-b"}
    names.let_pass(122_000)  # without further registrations
    assert set(brokers(names, "TBW102")) == {"broker-a"}


def test_a_broker_that_stops_unregisters() -> None:
    names, desk, link, conversation = linked()
    link.send(conversation.closing_parts(Stopping()))
    assert set(brokers(names, "TBW102")) == {"broker-a"}
    conversation.closed()
    desk.let_pass(60_000)
    assert len(link.sent) == 2


def test_a_broker_whose_connection_ends_is_dropped_at_once() -> None:
    names, _, link, _ = linked()
    link.peer.conversation.closed()
    assert set(brokers(names, "TBW102")) == {"broker-a"}


def test_a_refused_registration_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    _, desk, link, conversation = linked(broker_name="broker-a")
    for answer in link.answers * 3:
        assert answer.code == 1
        conversation.handle(answer)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("name server 10.0.0.9:9876: registration refused (code 1, broker-a is the broker in")
    conversation.handle(Command(0, 1, RESPONSE, {}, b"", None, 0))
    conversation.handle(link.answers[0])
    assert len(caplog.records) == 2
    desk.let_pass(1)


def test_requests_of_the_name_server_are_not_supported() -> None:
    _, desk, _, conversation = linked()
    for flag, wanted in ((0, 3), (2, None)):
        for _ in receive(conversation, request(905, {}, b"", flag, 479)):  # type: ignore[arg-type]
            pass
        event = conversation.next_event()
        reply = conversation.handle(event)
        assert (None if reply is None else desk.take(reply).code) == wanted


NAMES = st.text("abcXYZ_%|-0", min_size=1, max_size=9)
QUEUES = st.builds(QueueData, st.integers(0, 9), st.integers(0, 9), st.integers(0, 7), st.integers(0, 3))


@given(st.dictionaries(NAMES, QUEUES), st.builds(DataVersion, st.integers(0, 9), st.just(0), st.integers(0, 1 << 50)))
def test_a_registration_is_read_as_it_was_written(topics: dict[str, QueueData], version: DataVersion) -> None:
    registration = Registration(topics, version)
    assert read_registration(write_registration(registration), False, 1 << 20) == registration
