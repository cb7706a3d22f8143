"""Registration of other brokers with the name server: routes, versions, expiry, permissions, and unregistration."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import Desk, Peer

from trimq.config import RocketMQ
from trimq.protocols.rocketmq.wire.registrations import BadRegistration, QueueData, read_registration
from trimq.wire.remoting import Command

TOPICS = {"only": (3, 6), "both": (2, 6)}


def body_of(topics: dict[str, tuple[int, int]], counter: int = 1) -> bytes:
    table = {
        name: {"topicName": name, "readQueueNums": count, "writeQueueNums": count, "perm": perm, "topicSysFlag": 0}
        for name, (count, perm) in topics.items()
    }
    version = {"counter": counter, "timestamp": 17, "stateVersion": 0}
    wrapper = {"topicConfigTable": table, "dataVersion": version}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()


def register(peer: Peer, body: bytes | None = None, **changes: Any) -> Command:
    body = body_of(TOPICS) if body is None else body
    fields = {"brokerName": "other", "brokerAddr": "1.2.3.4:1", "clusterName": "DefaultCluster", "brokerId": 0}
    fields |= {"haServerAddr": "1.2.3.4:2", "compressed": False, "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF}
    return peer.ask(103, {**fields, **changes}, body)


def route(desk: Desk, topic: str) -> tuple[Any, Any] | int:
    answer = desk.names.ask(105, {"topic": topic})
    if answer.code:
        return answer.code
    data = json.loads(answer.body)
    queues = {row["brokerName"]: (row["readQueueNums"], row["perm"]) for row in data["queueDatas"]}
    return queues, {row["brokerName"]: row["brokerAddrs"] for row in data["brokerDatas"]}


def registered(**changes: Any) -> tuple[Desk, Peer]:
    desk = Desk()
    desk.broker.ask(17, {"topic": "both", "readQueueNums": 5, "writeQueueNums": 5, "perm": 6})
    peer = desk.connect(desk.doors.name_server())
    assert register(peer, **changes).code == 0
    return desk, peer


OWN = {"broker-a": {"0": "127.0.0.1:10911"}}
OTHER = {"other": {"0": "1.2.3.4:1"}}


def test_its_topics_have_routes_beside_ours() -> None:
    desk, _ = registered()
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)
    assert route(desk, "both") == ({"other": (2, 6), "broker-a": (5, 6)}, {**OWN, **OTHER})
    assert b'"DefaultCluster":["broker-a","other"]' in desk.names.ask(106).body
    assert b'"other":{"brokerAddrs":{0:"1.2.3.4:1"}' in desk.names.ask(106).body
    assert "only" in json.loads(desk.names.ask(206).body)["topicList"]
    assert "only" in json.loads(desk.names.ask(224, {"cluster": "DefaultCluster"}).body)["topicList"]
    assert "other" in json.loads(desk.names.ask(304).body)["topicList"]


def test_it_is_removed_when_it_unregisters_or_its_connection_ends() -> None:
    desk, peer = registered()
    place = {"brokerName": "other", "brokerAddr": "1.2.3.4:1", "clusterName": "DefaultCluster", "brokerId": 0}
    assert peer.ask(104, place).code == 0
    assert route(desk, "only") == 17
    assert route(desk, "both") == ({"broker-a": (5, 6)}, OWN)
    register(peer)
    assert route(desk, "only") != 17
    peer.conversation.closed()
    assert route(desk, "only") == 17


@pytest.mark.parametrize(("patience", "lives_ms"), [(None, 120_000), (1000, 1000)])
def test_it_goes_when_it_is_silent_for_long(patience: int | None, lives_ms: int) -> None:
    changes = {} if patience is None else {"heartbeatTimeoutMillis": patience}
    desk, peer = registered(**changes)
    desk.let_pass(lives_ms - 1)
    assert route(desk, "only") != 17
    peer.ask(904, {"brokerName": "other", "brokerAddr": "1.2.3.4:1", "clusterName": "DefaultCluster"})
    desk.let_pass(lives_ms - 1)
    assert route(desk, "only") != 17
    desk.let_pass(2000)
    assert route(desk, "only") == 17


def test_a_question_about_its_version_is_a_sign_of_life_too() -> None:
    desk, peer = registered(heartbeatTimeoutMillis=10_000)
    place = {"brokerName": "other", "brokerAddr": "1.2.3.4:1", "clusterName": "DefaultCluster", "brokerId": 0}
    desk.let_pass(9000)
    same = peer.ask(322, place, {"counter": 1, "timestamp": 17, "stateVersion": 0})
    assert (same.fields["changed"], json.loads(same.body)["counter"]) == ("false", 1)
    desk.let_pass(9000)
    assert route(desk, "only") != 17
    assert peer.ask(322, place, {"counter": 2}).fields["changed"] == "true"
    unknown = peer.ask(322, {**place, "brokerAddr": "9.9.9.9:1"}, {"counter": 1})
    assert (unknown.fields["changed"], unknown.body) == ("true", b"")
    desk.let_pass(3000)
    assert route(desk, "only") == 17


def test_the_right_to_write_is_taken_away_and_given_back() -> None:
    desk, peer = registered()
    assert desk.names.ask(205, {"brokerName": "other"}).fields == {"wipeTopicCount": "2"}
    assert route(desk, "only") == ({"other": (3, 4)}, OTHER)
    register(peer)
    assert route(desk, "only") == ({"other": (3, 4)}, OTHER)  # the registration did not change
    register(peer, body_of(TOPICS, counter=2))
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)
    desk.names.ask(205, {"brokerName": "other"})
    assert desk.names.ask(327, {"brokerName": "other"}).fields == {"addTopicCount": "2"}
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)
    assert desk.names.ask(205, {"brokerName": "nobody"}).fields == {"wipeTopicCount": "0"}


def test_ours_can_be_taken_away_as_well_until_a_topic_is_changed() -> None:
    desk, _ = registered()
    count = int(desk.names.ask(205, {"brokerName": "broker-a"}).fields["wipeTopicCount"])
    assert count == len(json.loads(desk.broker.ask(21).body)["topicConfigTable"])
    assert route(desk, "both") == ({"other": (2, 6), "broker-a": (5, 4)}, {**OWN, **OTHER})
    desk.broker.ask(17, {"topic": "both", "readQueueNums": 6, "writeQueueNums": 6, "perm": 6})
    assert route(desk, "both") == ({"other": (2, 6), "broker-a": (6, 6)}, {**OWN, **OTHER})
    assert route(desk, "BenchmarkTest") == ({"broker-a": (1024, 4)}, OWN)
    assert desk.names.ask(327, {"brokerName": "broker-a"}).fields == {"addTopicCount": str(count)}
    assert route(desk, "BenchmarkTest") == ({"broker-a": (1024, 6)}, OWN)


def test_a_slave_gets_the_address_of_its_master_and_adds_no_topics() -> None:
    desk, _ = registered()
    slave = desk.connect(desk.doors.name_server())
    answer = register(slave, body_of({"late": (1, 6), "both": (9, 6)}), brokerId=1, brokerAddr="1.2.3.4:9")
    assert (answer.fields["masterAddr"], answer.fields["haServerAddr"]) == ("1.2.3.4:1", "1.2.3.4:2")
    assert route(desk, "late") == 17
    assert route(desk, "only") == ({"other": (3, 6)}, {"other": {"0": "1.2.3.4:1", "1": "1.2.3.4:9"}})
    group = desk.names.ask(901, {"clusterName": "DefaultCluster", "brokerName": "other"})
    members = json.loads(group.body)["brokerMemberGroup"]
    assert members["brokerAddrs"] == {"0": "1.2.3.4:1", "1": "1.2.3.4:9"}
    slave.conversation.closed()
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)


def test_a_slave_that_acts_as_master_may_be_read_only() -> None:
    desk = Desk()
    register(desk.names, brokerId=2, enableActingMaster=True)
    assert route(desk, "only") == ({"other": (3, 4)}, {"other": {"2": "1.2.3.4:1"}})


def test_topics_of_a_slave_are_read_only_when_its_master_is_gone() -> None:
    desk = Desk()
    master, slave = desk.connect(desk.doors.name_server()), desk.connect(desk.doors.name_server())
    register(master, enableActingMaster=True)
    register(slave, brokerId=1, brokerAddr="1.2.3.5:1", enableActingMaster=True)
    assert route(desk, "only") == ({"other": (3, 6)}, {"other": {"0": "1.2.3.4:1", "1": "1.2.3.5:1"}})
    master.conversation.closed()
    assert route(desk, "only") == ({"other": (3, 4)}, {"other": {"1": "1.2.3.5:1"}})
    register(desk.connect(desk.doors.name_server()), enableActingMaster=True)
    assert route(desk, "only") == ({"other": (3, 6)}, {"other": {"0": "1.2.3.4:1", "1": "1.2.3.5:1"}})


def test_topics_of_a_slave_that_does_not_act_as_master_keep_their_permissions() -> None:
    desk = Desk()
    master, slave = desk.connect(desk.doors.name_server()), desk.connect(desk.doors.name_server())
    register(master)
    register(slave, brokerId=1, brokerAddr="1.2.3.5:1", enableActingMaster=False)
    master.conversation.closed()
    assert route(desk, "only") == ({"other": (3, 6)}, {"other": {"1": "1.2.3.5:1"}})


def test_the_first_slave_registers_its_topics_unless_it_is_of_an_old_version() -> None:
    desk = Desk()
    register(desk.names, brokerId=1)
    assert route(desk, "only") == 17
    register(desk.names, brokerId=1, enableActingMaster=False, body=body_of(TOPICS, counter=2))
    assert route(desk, "only") == ({"other": (3, 6)}, {"other": {"1": "1.2.3.4:1"}})


def test_a_slave_that_becomes_the_master_has_one_number() -> None:
    desk = Desk()
    register(desk.names, brokerId=1)
    register(desk.names, brokerId=0)
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)


def test_an_invalid_registration_is_refused() -> None:
    desk = Desk()
    assert register(desk.names, bodyCrc32=1).code == 1
    assert register(desk.names, b"nonsense").code == 1
    assert register(desk.names, b"[]").code == 1
    assert register(desk.names, body_of({"one": (1, 6)})).code == 1  # this broker is not registered
    assert register(desk.names, brokerName="broker-a").code == 1
    assert route(desk, "only") == 17
    assert register(desk.names, b"").code == 0


UNREADABLE = (
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}',
    b'{"topicConfigSerializeWrapper":[]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"X":5}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"X":{}}}}',
    b'{"topicConfigSerializeWrapper":{"dataVersion":7}}',
)


@pytest.mark.parametrize("body", UNREADABLE)
def test_topics_that_are_no_objects_are_refused(body: bytes) -> None:
    answer = register(Desk().names, body)
    assert (answer.code, (answer.remark or "")[:29]) == (1, "invalid broker registration: ")


@pytest.mark.parametrize("row", ["", "X", "X 1 1", "X 1 1 many", f"X 1 1 {2**31}"])
def test_a_packed_topic_with_too_few_or_non_numeric_fields_is_refused(row: str) -> None:
    body = zlib.compress(
        b"".join(struct.pack(">i", len(part)) + part for part in (b"{}",))
        + struct.pack(">ii", 1, len(row))
        + row.encode()
        + struct.pack(">i", 0)
    )
    assert register(Desk().names, body, compressed=True).code == 1


def test_apache_rocketmq_with_defaults_registers_with_trimq_with_defaults() -> None:
    desk = Desk(broker_name=RocketMQ().broker_name)
    assert register(desk.names, brokerName="broker-a").code == 0


def test_a_broker_with_our_name_gets_a_hint_to_the_setting() -> None:
    refused = register(Desk().names, brokerName="broker-a")
    assert refused.code == 1
    assert "rocketmq.broker_name" in (refused.remark or "")


def test_there_is_room_for_so_many() -> None:
    desk = Desk(registered_brokers=1, registered_topics=2)
    assert register(desk.names, body_of({**TOPICS, "third": (1, 6)})).code == 2
    assert register(desk.names).code == 0
    assert register(desk.names, brokerName="more", brokerAddr="5.5.5.5:1").code == 2
    assert register(desk.names).code == 0
    route_of = {"queueDatas": [{"brokerName": "other", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]}
    assert desk.names.ask(217, {"topic": "third"}, route_of).code == 2


def test_the_response_has_the_order_configuration() -> None:
    desk = Desk()
    assert register(desk.names).body == b""
    desk.names.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "broker-a:4"})
    assert json.loads(register(desk.names).body) == {"table": {"t": "broker-a:4"}}
    assert desk.names.ask(318, body=b"returnOrderTopicConfigToBroker=false\n").code == 0
    assert register(desk.names).body == b""


def test_routes_have_the_order_configuration_when_that_is_switched_on() -> None:
    desk = Desk()
    desk.names.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102", "value": "broker-a:4"})
    assert b"orderTopicConf" not in desk.names.ask(105, {"topic": "TBW102"}).body
    assert desk.names.ask(318, body=b"# on\norderMessageEnable=true\n").code == 0
    desk = desk.restart()
    assert b'"orderTopicConf":"broker-a:4"' in desk.names.ask(105, {"topic": "TBW102"}).body
    assert b"orderMessageEnable=true\n" in desk.names.ask(319).body


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"kvConfigPath=/x", 16),
        (b"clusterTest=false", 0),
        (b"clusterTest=true", 29),
        (b"unknown=1", 29),
        (b"orderMessageEnable=maybe", 29),
        (b"\xff", 1),
    ],
)
def test_an_unsupported_setting_cannot_be_set(text: bytes, code: int) -> None:
    assert Desk().names.ask(318, body=text).code == code


def test_a_topic_may_be_added_and_removed_by_hand() -> None:
    desk = Desk()
    queues = {"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    stranger = {**queues, "brokerName": "stranger"}
    assert desk.names.ask(217, {"topic": "made"}, {"queueDatas": [queues, stranger]}).code == 0
    assert route(desk, "made") == ({"broker-a": (2, 6)}, OWN)
    assert desk.names.ask(216, {"topic": "made"}).code == 0
    assert route(desk, "made") == 17
    assert desk.names.ask(216, {"topic": "TBW102"}).code == 0
    assert route(desk, "TBW102") != 17


def test_a_topic_that_no_known_broker_has_is_not_known_either() -> None:
    desk = Desk()
    stranger = {"brokerName": "stranger", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    for queues in ([], [stranger]):
        assert desk.names.ask(217, {"topic": "ghost"}, {"queueDatas": queues}).code == 0
    for code in (206, 311, 312, 313):
        answer = desk.names.ask(code)
        assert (answer.code, b"ghost" in answer.body) == (0, False)


def test_topics_of_units_are_listed() -> None:
    desk = Desk()
    for name, flags in (("plain", 0), ("unit", 1), ("heard", 2), ("all", 3)):
        desk.broker.ask(17, {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": flags})
    listed = [sorted(json.loads(desk.names.ask(code).body)["topicList"]) for code in (311, 312, 313)]
    assert listed == [["all", "unit"], ["all", "heard"], ["heard"]]


# --- compressed body --------------------------------------------------------------------------------------------------


def packed(topics: dict[str, tuple[int, int]]) -> bytes:
    def sized(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    rows = b"".join(
        sized(f"{name} {count} {count} {perm} SINGLE_TAG".encode()) for name, (count, perm) in topics.items()
    )
    version = json.dumps({"counter": 9, "timestamp": 17, "stateVersion": 0}).encode()
    return zlib.compress(sized(version) + struct.pack(">i", len(topics)) + rows + sized(b"[]") + struct.pack(">i", 0))


def test_a_packed_registration_is_read() -> None:
    desk = Desk()
    assert register(desk.names, packed(TOPICS), compressed=True).code == 0
    assert route(desk, "only") == ({"other": (3, 6)}, OTHER)


def test_a_registration_that_swells_is_refused() -> None:
    with pytest.raises(BadRegistration, match="larger than 1000 bytes"):
        read_registration(zlib.compress(bytes(1_000_000)), True, 1000)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(zlib.compress), st.booleans())
def test_garbage_is_refused(data: bytes, is_packed: bool) -> None:
    try:
        found = read_registration(data, is_packed, 1000)
    except BadRegistration:
        return
    assert all(isinstance(queues, QueueData) for queues in found.topics.values())
