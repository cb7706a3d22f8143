"""RocketMQ's Java client 5.x over remoting: the full matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import rocketmq_judges as judges
from compat.cables import Cable
from compat.programs import Line, Program
from compat.rocketmq_java import lines_of, rocketmq_client, run_together

from tools.broker import running
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "5.5.0"
PLAIN = ("sync", "async", "oneway", "batch", "large", "concurrent", "orderly", "tags", "groups", "retried", "pull")
PLAIN += ("assign", "broadcast", "namespaces", "members", "blocked", "trace", "requests", "pop", "sql")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return rocketmq_client(VERSION, tmp_path_factory.mktemp("home"), "NewerClient")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["rocketmq"]


@pytest.fixture(scope="module")
def found(program: Program, names: str) -> dict[str, list[Line]]:
    return run_together(program, names, PLAIN)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_message_is_sent_and_found_by_its_ids_and_keys(found: dict[str, list[Line]]) -> None:
    judges.judge_sync(lines_of(found, "sync"))


def test_responses_are_passed_to_callbacks(found: dict[str, list[Line]]) -> None:
    judges.judge_async(lines_of(found, "async"))


def test_one_way_messages_arrive(found: dict[str, list[Line]]) -> None:
    judges.judge_one_way(lines_of(found, "oneway"))


def test_a_batch_stays_together(found: dict[str, list[Line]]) -> None:
    judges.judge_batch(lines_of(found, "batch"))


def test_large_messages_travel_and_too_large_ones_are_refused(found: dict[str, list[Line]]) -> None:
    judges.judge_large(lines_of(found, "large"))


def test_a_push_consumer_gets_everything_and_its_successor_the_rest(found: dict[str, list[Line]]) -> None:
    judges.judge_concurrent(lines_of(found, "concurrent"))


def test_an_orderly_consumer_gets_the_steps_of_each_order_in_turn(found: dict[str, list[Line]]) -> None:
    judges.judge_orderly(lines_of(found, "orderly"))


def test_tags_with_the_same_hash_are_distinguished(found: dict[str, list[Line]]) -> None:
    judges.judge_tags(lines_of(found, "tags"))


def test_two_groups_of_two_divide_the_queues(found: dict[str, list[Line]]) -> None:
    judges.judge_groups(lines_of(found, "groups"))


def test_a_failed_message_is_redelivered_with_its_id(found: dict[str, list[Line]]) -> None:
    judges.judge_retried(lines_of(found, "retried"))


def test_a_pull_consumer_resumes_at_its_commit(found: dict[str, list[Line]]) -> None:
    judges.judge_pull(lines_of(found, "pull"))


def test_an_assigned_queue_is_read_from_offsets_and_times(found: dict[str, list[Line]]) -> None:
    judges.judge_assign(lines_of(found, "assign"))


def test_every_member_of_a_broadcast_gets_everything(found: dict[str, list[Line]]) -> None:
    judges.judge_broadcast(lines_of(found, "broadcast"))


def test_namespaces_are_kept_apart(found: dict[str, list[Line]]) -> None:
    (line,) = lines_of(found, "namespaces")
    assert line["taken"] == {"INST_one": ["spaced INST_one"], "INST_two": ["spaced INST_two"]}


def test_members_join_and_leave_and_no_message_is_out_of_order(found: dict[str, list[Line]]) -> None:
    (line,) = lines_of(found, "members")
    assert line["complaints"] == []
    assert line["sizes"] == [0, 1, 2, 3]
    assert line["last"] == 8


def test_a_message_that_fails_in_order_holds_those_behind_it(found: dict[str, list[Line]]) -> None:
    (line,) = lines_of(found, "blocked")
    assert line == {"tried": ["good", "bad", "bad", "bad", "bad", "behind"], "dead": ["bad"]}


def test_a_producer_writes_traces(found: dict[str, list[Line]]) -> None:
    (line,) = lines_of(found, "trace")
    assert line == {"traced": True, "kind": "Pub"}


def test_requests_are_answered_or_time_out(found: dict[str, list[Line]]) -> None:
    judges.judge_requests(lines_of(found, "requests"))


def test_members_of_a_group_pop_and_failed_messages_are_redelivered(found: dict[str, list[Line]]) -> None:
    (line,) = lines_of(found, "pop")
    assert line == {"messages": list(range(100)), "failed once": [0, 1], "others": 0, "each": True}


def test_expressions_select_messages_on_the_broker_and_broken_ones_are_refused(found: dict[str, list[Line]]) -> None:
    judges.judge_sql(lines_of(found, "sql"))


def test_how_far_a_member_of_a_broadcast_has_read_outlives_it(program: Program, names: str) -> None:
    judges.judge_kept(program, names)


def test_a_thousand_topics(program: Program, names: str) -> None:
    (line,) = program.run(names, "many", count=1000)
    assert line.get("topics") == 1000, line


def test_a_consumer_that_is_killed_amid_a_batch_loses_nothing(program: Program, names: str) -> None:
    with program.talking(names, "stuck") as talk:
        done = [int(number) for number in judges.heard(talk)["done"]]
        assert done == list(range(13))
        talk.process.kill()
    (line,) = program.run(names, "rest")
    taken = line["taken"]
    assert sorted({*done, *taken}) == list(range(40))
    assert set(range(10, 40)) <= set(taken)


# -- with the broker's clock


def test_levels_of_delay_pass_with_the_brokers_time(program: Program, broker: Broker) -> None:
    judges.judge_levels(program, broker)


def test_transactions_end_in_every_way(program: Program, broker: Broker) -> None:
    judges.judge_transactions(program, broker)


def test_times_of_delivery_and_recalling(program: Program, broker: Broker) -> None:
    with program.talking(broker.addresses["rocketmq"], "times") as talk:
        assert judges.heard(talk) == {"recalled": True}
        steps = ("now", "30m"), ("now, milliseconds", "30m"), ("now, milliseconds, seconds", "61m")
        for taken, duration in (*steps, ("now, milliseconds, seconds, moment", "0s")):
            assert judges.heard(talk) == {"done": f"taken [{taken}]"}
            broker.advance(duration)
            talk.go_on()
        talk.ended()


def test_sixteen_retries_then_a_dead_letter_then_again(program: Program, broker: Broker) -> None:
    judges.judge_dead_letter(program, broker)


def test_new_groups_begin_where_they_ask_to(program: Program) -> None:
    with (
        Broker(rocketmq_commit_file_bytes=1 << 16) as broker,
        program.talking(broker.addresses["rocketmq"], "beginnings") as talk,
    ):
        assert judges.heard(talk) == {"done": "filled"}
        broker.advance("100h")
        talk.go_on()
        assert judges.heard(talk) == {"done": "early"}
        broker.advance("1h")
        talk.go_on()
        assert judges.heard(talk) == {"start": True, "young": ["0"], "first": [1, 2, 3], "last": [3], "timed": [2, 3]}


def test_running_clients_find_queues_added_to_a_topic(program: Program, broker: Broker) -> None:
    judges.judge_grown(program, broker)


# -- restarts and failures


def test_clients_live_on_while_the_name_server_does_not(program: Program, broker: Broker) -> None:
    judges.judge_names(program, broker)


def test_clients_survive_restarts_of_the_servers(program: Program, tmp_path: Path) -> None:
    with Broker(folder=tmp_path / "data") as broker:
        names = broker.addresses["rocketmq"]
        cables = [Cable(names)]
        port = cables[0].port

        def lose_the_name_server() -> None:
            cables.pop().close()

        def find_it_and_restart_the_broker() -> None:
            cables.append(Cable(names, port))
            broker.restart()

        def crash_the_broker() -> None:
            broker.crash()
            broker.restart()

        try:
            wrecks = lose_the_name_server, find_it_and_restart_the_broker, crash_the_broker
            judges.judge_restarts(program, cables[0].address, wrecks)
        finally:
            for cable in cables:
                cable.close()
