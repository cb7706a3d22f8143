"""Topics with a reduced number of queues or changed permissions, and names in namespaces."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of


def define(desk: Desk, read: int, write: int, perm: int = 6) -> None:
    fields = {"topic": "t", "readQueueNums": read, "writeQueueNums": write, "perm": perm}
    assert desk.broker.ask(17, fields).code == 0


def test_nothing_is_lost_when_a_topic_shrinks() -> None:
    desk = Desk()
    define(desk, 16, 16)
    for queue in range(16):
        desk.broker.send("t", b"%d" % queue, queue=queue)
    define(desk, 16, 8)
    for _ in range(50):
        assert int(desk.broker.send("t", queue=-1).fields["queueId"]) < 8
    assert [bodies_of(desk.broker.pull("t", queue=queue)) for queue in range(8, 16)] == [
        [b"%d" % queue] for queue in range(8, 16)
    ]
    define(desk, 8, 8)
    assert desk.broker.pull("t", queue=12).code == 29
    assert desk.broker.send("t", queue=12).code == 29
    desk = desk.restart()
    define(desk, 16, 8)
    assert bodies_of(desk.broker.pull("t", queue=12)) == [b"12"]


@pytest.mark.parametrize(("perm", "sent", "pulled"), [(6, 0, 19), (4, 16, 19), (2, 0, 16), (0, 16, 16)])
def test_permissions_are_kept(perm: int, sent: int, pulled: int) -> None:
    desk = Desk()
    define(desk, 2, 2, perm)
    assert desk.broker.pull("t", queue=1).code == pulled
    assert desk.broker.send("t", queue=0).code == sent


def test_permissions_change_while_messages_are_there() -> None:
    desk = Desk()
    define(desk, 1, 1)
    desk.broker.send("t", b"kept")
    define(desk, 1, 1, 4)
    assert desk.broker.send("t").code == 16
    assert bodies_of(desk.broker.pull("t")) == [b"kept"]
    define(desk, 1, 1, 2)
    assert desk.broker.pull("t").code == 16
    define(desk, 1, 1, 6)
    assert bodies_of(desk.broker.pull("t")) == [b"kept"]


def test_names_of_namespaces_are_kept_apart() -> None:
    desk = Desk()
    for namespace in ("one", "two"):
        desk.broker.send(f"{namespace}%t", namespace.encode())
        desk.connect().heartbeat(f"c-{namespace}", f"{namespace}%g", f"{namespace}%t")
    assert bodies_of(desk.broker.pull("one%t", consumerGroup="one%g")) == [b"one"]
    assert bodies_of(desk.broker.pull("two%t", consumerGroup="two%g")) == [b"two"]
    assert desk.broker.ask(38, {"consumerGroup": "one%g"}).body == b'{"consumerIdList":["c-one"]}'
    topics = desk.broker.ask(21).body
    assert b'"%RETRY%one%g"' in topics
    assert b'"%RETRY%two%g"' in topics


def test_a_delayed_message_is_delivered_to_its_queue_though_the_topic_was_shrunk() -> None:
    desk = Desk()
    define(desk, 16, 16)
    desk.broker.send("t", b"by time", 12, "TIMER_DELAY_MS\x0130000\x02")
    desk.broker.send("t", b"by level", 12, "DELAY\x014\x02")
    half = desk.broker.send("t", b"half", 12, "TRAN_MSG\x01true\x02PGROUP\x01pg\x02", f=4)
    define(desk, 8, 8)
    desk = desk.kill()
    fields = {"producerGroup": "pg", "tranStateTableOffset": half.fields["queueOffset"], "commitOrRollback": 8}
    assert desk.broker.ask(37, {**fields, "commitLogOffset": int(half.fields["msgId"][16:], 16)}).code == 0
    desk.advance(30_000)
    define(desk, 16, 16)
    assert sorted(bodies_of(desk.broker.pull("t", queue=12))) == [b"by level", b"by time", b"half"]


def test_a_popped_message_is_redelivered_though_the_topic_was_shrunk() -> None:
    desk = Desk()
    define(desk, 16, 16)
    desk.broker.send("t", b"popped", 12)
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 12, "maxMsgNums": 1, "invisibleTime": 5000, "pollTime": 0}
    assert bodies_of(desk.broker.ask(200050, fields)) == [b"popped"]
    define(desk, 8, 8)
    desk = desk.kill()
    desk.advance(6000)
    assert bodies_of(desk.broker.ask(200050, {**fields, "queueId": -1})) == [b"popped"]
