"""Request and reply: the reply to a message is pushed to the client that sent the request, over its own connection."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, Peer, bodies_of, request, units_of

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.protocols.contract import Reply
from trimq.wire.remoting import RESPONSE, Command

ASKER = "10.0.0.1@asker"
REPLIES = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = (
    f"CORRELATION_ID\x01C1\x02REPLY_TO_CLIENT\x01{ASKER}\x02TTL\x013000\x02MSG_TYPE\x01reply\x02UNIQ_KEY\x01U\x02"
)


def desk_with_asker() -> tuple[Desk, Peer]:
    desk = Desk()
    asker = desk.connect()
    asker.ask(34, body={"clientID": ASKER, "producerDataSet": [{"groupName": "askers"}], "consumerDataSet": []})
    return desk, asker


def send_reply(desk: Desk, properties: str = PROPERTIES, code: int = 325, topic: str = REPLIES) -> Reply:
    v2 = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": properties}
    v1 = {"producerGroup": "pg", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0}
    v1 |= {"sysFlag": 0, "bornTimestamp": 77, "flag": 0, "properties": properties}
    reply = desk.broker.begin(code, v1 if code == 324 else v2, b"answer")
    assert reply is not None
    return reply


def answer(peer: Peer, question: Command, code: int = 0) -> None:
    frame = request(code, {}, b"", RESPONSE, 479).replace(b'"opaque": 5', b'"opaque": %d' % question.opaque)
    peer.give(frame)


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_is_pushed_to_the_requester_and_answered_when_that_has_taken_it(code: int) -> None:
    desk, asker = desk_with_asker()
    reply = send_reply(desk, code=code)
    assert not desk.is_ready(reply)
    (pushed,) = asker.way.sent
    assert (pushed.code, pushed.flag, pushed.body) == (326, 0, b"answer")
    assert {"bornHost", "storeHost", "storeTimestamp", "unitMode"} <= set(pushed.fields)
    assert (pushed.fields["topic"], pushed.fields["bornTimestamp"]) == (REPLIES, "77")
    properties = read_properties(pushed.fields["properties"])
    assert (properties["CORRELATION_ID"], properties["REPLY_TO_CLIENT"], properties["UNIQ_KEY"]) == ("C1", ASKER, "U")
    assert "PUSH_REPLY_TIME" in properties
    assert "CLUSTER" not in properties
    answer(asker, pushed)
    done = desk.take(reply)
    assert (done.code, done.fields["queueId"], done.fields["queueOffset"]) == (0, "0", "0")
    assert bodies_of(desk.broker.pull(REPLIES)) == [b"answer"]


def failed(desk: Desk, reply: Reply) -> str:
    done = desk.take(reply)
    assert done.code == 1
    assert done.fields["msgId"]  # the reply was stored
    return done.remark or ""


def test_a_reply_without_a_requester_is_stored_and_refused() -> None:
    desk, _ = desk_with_asker()
    assert "not found" in failed(desk, send_reply(desk, PROPERTIES.replace(ASKER, "nobody")))
    assert "not found" in failed(desk, send_reply(desk, "TTL\x013000\x02"))
    assert len(units_of(desk.broker.pull(REPLIES))) == 2


def test_a_reply_that_the_client_refuses() -> None:
    desk, asker = desk_with_asker()
    reply = send_reply(desk)
    answer(asker, asker.way.sent[0], code=1)
    assert f"push reply message to {ASKER} fail" in failed(desk, reply)


def test_a_client_that_does_not_answer_times_out_after_ten_seconds() -> None:
    desk, asker = desk_with_asker()
    reply = send_reply(desk)
    desk.let_pass(9_999)
    assert not desk.is_ready(reply)
    desk.let_pass(1)
    assert "fail" in failed(desk, reply)
    answer(asker, asker.way.sent[0])  # late, and ignored


def test_a_client_that_goes_while_it_is_asked() -> None:
    desk, asker = desk_with_asker()
    reply = send_reply(desk)
    asker.conversation.closed()
    assert "fail" in failed(desk, reply)
    assert "not found" in failed(desk, send_reply(desk))


def test_a_client_that_reads_too_slowly_is_not_asked() -> None:
    desk, asker = desk_with_asker()
    asker.way.is_congested = True
    assert "fail" in failed(desk, send_reply(desk))
    assert asker.way.sent == []


def test_the_replier_may_be_disconnected_before_the_client_has_taken_it() -> None:
    desk, asker = desk_with_asker()
    reply = send_reply(desk)
    assert reply.on_abandon is not None
    reply.on_abandon()
    answer(asker, asker.way.sent[0])
    assert not desk.is_ready(reply)


def test_a_client_that_left_one_of_two_groups_still_gets_replies() -> None:
    desk, asker = desk_with_asker()
    asker.ask(34, body={"clientID": ASKER, "producerDataSet": [{"groupName": "others"}], "consumerDataSet": []})
    asker.ask(35, {"clientID": ASKER, "producerGroup": "askers"})
    send_reply(desk)
    assert len(asker.way.sent) == 1
    asker.ask(35, {"clientID": ASKER, "producerGroup": "others"})
    assert "not found" in failed(desk, send_reply(desk))


def test_a_reply_to_a_consumer_is_refused() -> None:
    desk = Desk()
    desk.connect().heartbeat(ASKER, "g", "t")
    assert "not found" in failed(desk, send_reply(desk))


def test_a_reply_that_cannot_be_kept_is_not_handed_over() -> None:
    desk, asker = desk_with_asker()
    assert desk.take(send_reply(desk, topic="none.such")).code == 29
    assert asker.way.sent == []


def test_trace_messages_of_clients_can_be_found_by_their_keys() -> None:
    desk = Desk()
    traced = desk.broker.send("RMQ_SYS_TRACE_TOPIC", b"Pub\x011\x02", properties="KEYS\x01id1 id2\x02")
    assert traced.code == 0
    asked = {"topic": "RMQ_SYS_TRACE_TOPIC", "key": "id2", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    assert bodies_of(desk.broker.ask(12, asked)) == [b"Pub\x011\x02"]
