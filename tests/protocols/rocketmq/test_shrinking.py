"""Topics whose queues become fewer, whose permissions change, and names in namespaces."""

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
