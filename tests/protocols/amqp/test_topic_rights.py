"""Rights of AMQP users on topics of other layouts: those of the topic itself, on the one table of permissions."""

from __future__ import annotations

import pytest
from protocols.amqp.desk import Client, Desk
from protocols.amqp.wires import publish

from trimq.core.security.access import Right
from trimq.formats.amqp_content.property_list import write_properties
from trimq.model import SYSTEM, Layout
from trimq.protocols.amqp import methods


@pytest.fixture
def client() -> Client:
    """User `u` may read the topics `mine` and `seen`, and write to `mine` and to all exchanges."""
    desk = Desk()
    access = desk.core.broker._access
    access.define_user("root", "secret", is_administrator=True)
    access.define_user("u", "secret")
    access.grant(Right("u", "", configure="", write=r"^(mine|amq\..*)$", read=r"^(mine|seen|amq\..*)$"))
    for name in ("mine", "seen", "hidden"):
        desk.core.broker.topics.create(SYSTEM, name, Layout.PARTITION_LOG, 1, {})
    desk.settle()
    return desk.client(1, user="u", password="secret")


def bodies(client: Client, name: str) -> list[bytes | None]:
    topic = client.desk.core.foreign_topics.find(SYSTEM, name, Layout.QUEUE_LOG)
    assert topic is not None
    return [message.body for _, message in topic.stream(0).read(0, 100, 1 << 20, may_wait=True).messages]


def test_a_user_publishes_to_a_topic_and_takes_from_it(client: Client) -> None:
    client.publish(1, "mine", b"hello")
    client.desk.settle()
    assert bodies(client, "mine") == [b"hello"]
    assert client.ask(1, methods.BasicGet(queue="mine", no_ack=True)).body == b"hello"


@pytest.mark.parametrize("name", ["seen", "hidden"])
def test_publishing_by_name_needs_the_right_to_write_to_the_topic(client: Client, name: str) -> None:
    client.publish(1, name, b"hello")
    client.desk.settle()
    (close,) = client.heard()
    assert (close.reply_code, f"'{name}'" in close.reply_text) == (403, True)
    assert bodies(client, name) == []


def test_a_copy_for_a_topic_needs_the_right_too(client: Client) -> None:
    header = write_properties(headers={"CC": ["seen"]})
    client.feed(publish(1, methods.BasicPublish(routing_key="mine"), b"hello", header))
    client.desk.settle()
    (close,) = client.heard()
    assert close.reply_code == 403
    assert bodies(client, "mine") == bodies(client, "seen") == []


def test_a_transaction_needs_the_right_when_it_publishes(client: Client) -> None:
    client.ask(1, methods.TxSelect())
    client.publish(1, "seen", b"hello")
    client.desk.settle()
    assert client.heard()[0].reply_code == 403


@pytest.mark.parametrize(
    "asked",
    [
        methods.QueueBind(queue="seen", exchange="amq.fanout"),
        methods.BasicConsume(queue="hidden"),
        methods.BasicGet(queue="hidden"),
        methods.BasicConsume(queue="seen", arguments={"x-group": "billing"}),
    ],
    ids=["bind", "consume", "get", "group"],
)
def test_what_a_user_may_not_do_with_a_topic_is_refused(client: Client, asked: methods.Method) -> None:
    assert client.ask(1, asked).reply_code == 403


def test_whoever_may_read_a_topic_takes_for_the_group_of_all(client: Client) -> None:
    assert isinstance(client.ask(1, methods.BasicConsume(queue="seen")), methods.BasicConsumeOk)
