"""ali-ons, a client in pure JavaScript (version in package.json). It supports neither transactions nor pulling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat import rocketmq_node
from compat.programs import Program

from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

LIBRARY = "ali-ons"


@pytest.fixture(scope="module")
def program() -> Program:
    return rocketmq_node.client()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rocketmq_node.broker_with_topics() as broker:
        yield broker


def test_groups_get_all_or_the_tags_that_they_ask_for(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_push(program, broker, LIBRARY, "SEND_OK")


def test_a_failed_message_is_redelivered_with_growing_delay(program: Program, broker: Broker) -> None:
    assert rocketmq_node.judge_retries(program, broker, LIBRARY) == [0, 1, 2]


def test_sixteen_retries_then_a_dead_letter(program: Program, broker: Broker) -> None:
    assert rocketmq_node.judge_dead_letter(program, broker, LIBRARY) == list(range(17))


def test_clients_survive_an_outage_of_the_name_server(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_names(program, broker, LIBRARY)


def test_clients_survive_an_outage_of_the_broker(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_restart(program, broker, LIBRARY)


def test_messages_of_a_key_are_delivered_in_order(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.addresses["rocketmq"], "ordered", library=LIBRARY)
    assert line["steps"] == ["".join(f"{order}{step}" for step in range(6)) for order in "abe"]


def test_a_delayed_message_is_delivered_when_it_is_due(program: Program, broker: Broker) -> None:
    with program.talking(broker.addresses["rocketmq"], "level", library=LIBRARY) as talk:
        assert talk.heard() == {"done": "taken now"}
        broker.advance("2h")
        talk.go_on()
        assert talk.heard() == {"taken": ["now", "later"]}


def test_every_member_of_a_broadcast_gets_everything(program: Program, broker: Broker) -> None:
    (line,) = program.run(broker.addresses["rocketmq"], "broadcast", library=LIBRARY)
    assert line["taken"] == [list(range(20))] * 2


def test_a_new_group_begins_at_the_time_that_it_asks_for(program: Program) -> None:
    with (
        rocketmq_node.broker_with_topics(rocketmq_commit_file_bytes=1 << 16) as broker,
        program.talking(broker.addresses["rocketmq"], "time", library=LIBRARY) as talk,
    ):
        for done, duration in (("filled", "100h"), ("sent", "2h")):
            assert talk.heard() == {"done": done}
            broker.advance(duration)
            talk.go_on()
        assert talk.heard() == {"taken": list(range(8, 16))}
