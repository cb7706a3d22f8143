"""Topic permissions, tags, and limits of users and virtual hosts, with pika; codes and texts are those that RabbitMQ
4.3.6 gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, UnroutableError

from tools.users import ADMINISTRATOR, make_users, put_user
from trimq.testing import Broker

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        make_users(running.http, alice=EVERYTHING, bob=EVERYTHING)
        yield running


def trimq(broker: Broker, *words: str) -> str:
    user, password = ADMINISTRATOR
    environment = {**os.environ, "TRIMQ_HTTP": broker.http, "TRIMQ_USER": user, "TRIMQ_PASSWORD": password}
    done = subprocess.run(
        [sys.executable, "-m", "trimq.cli", *words], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def connect(broker: Broker, user: str = "alice", vhost: str = "/") -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.amqp)
    parameters.virtual_host = vhost
    parameters.credentials = pika.PlainCredentials(user, f"{user}'s")
    return pika.BlockingConnection(parameters)


def channel_refusal(broker: Broker, act: Callable[[object], object]) -> tuple[int, str] | None:
    """Returns code and text with which the channel of alice was closed; None if it was not."""
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            act(channel)
        except ChannelClosedByBroker as closed:
            return closed.reply_code, closed.reply_text
    return None


def denied(action: str, key: str) -> tuple[int, str]:
    where = f"topic '{key}' in exchange 'te' in vhost '/'"
    return 403, f"ACCESS_REFUSED - {action} access to {where} refused for user 'alice'"


@pytest.fixture
def restricted(broker: Broker) -> Broker:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.exchange_declare("te", "topic")
        channel.exchange_declare("fan", "fanout")
        channel.queue_declare("tq")
    words = ("users", "grant-topic", "alice", "te", "--write", "^{username}-w", "--read", "^{username}-{vhost}-r")
    trimq(broker, *words)
    return broker


def test_topic_permissions_restrict_the_routing_keys_of_publishers(restricted: Broker) -> None:
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("te", "alice-w.x", b"")) is None
    refused = channel_refusal(restricted, lambda channel: channel.basic_publish("te", "other", b""))
    assert refused == denied("write", "other")
    copied = pika.BasicProperties(headers={"CC": ["other"]})
    refused = channel_refusal(restricted, lambda channel: channel.basic_publish("te", "alice-w", b"", copied))
    assert refused == denied("write", "other")

    def publish_in_transaction(channel) -> None:
        channel.basic_publish("te", "other", b"")
        channel.tx_commit()

    with connect(restricted) as connection:
        channel = connection.channel()
        channel.tx_select()
        with pytest.raises(ChannelClosedByBroker, match="write access to topic 'other'"):
            publish_in_transaction(channel)
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("fan", "other", b"")) is None


def test_a_topic_permission_that_is_set_for_an_administrator_restricts_them_too(restricted: Broker) -> None:
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("te", "alice-w", b"")) is None
    trimq(restricted, "users", "set", "alice", "--administrator", "yes")
    refused = channel_refusal(restricted, lambda channel: channel.basic_publish("te", "other", b""))
    assert refused == denied("write", "other")
    trimq(restricted, "users", "set", "bob", "--administrator", "yes")
    with connect(restricted, "bob") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("te", "other", b"")


def test_a_batch_of_messages_is_restricted_too(restricted: Broker) -> None:
    with connect(restricted) as connection:
        channel = connection.channel()

        def publish_many() -> None:
            for _ in range(200):
                channel.basic_publish("te", "other", b"x")
            channel.queue_declare("tq", passive=True)

        with pytest.raises(ChannelClosedByBroker, match="write access to topic 'other'"):
            publish_many()


def test_topic_permissions_restrict_the_keys_of_bindings(restricted: Broker) -> None:
    assert channel_refusal(restricted, lambda channel: channel.queue_bind("tq", "te", "alice-/-r")) is None
    for act in (
        lambda channel: channel.queue_bind("tq", "te", "other"),
        lambda channel: channel.queue_unbind("tq", "te", "other"),
        lambda channel: channel.exchange_bind("fan", "te", "other"),
        lambda channel: channel.exchange_unbind("fan", "te", "other"),
    ):
        assert channel_refusal(restricted, act) == denied("read", "other")
    assert channel_refusal(restricted, lambda channel: channel.exchange_bind("te", "fan", "other")) is None


def test_an_empty_pattern_allows_the_empty_key_only(broker: Broker, restricted: Broker) -> None:
    trimq(restricted, "users", "grant-topic", "alice", "te")
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("te", "", b"")) is None
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("te", "x", b"")) == denied("write", "x")


def test_a_restriction_ends_when_it_is_removed_and_holds_for_nobody_else(restricted: Broker) -> None:
    with connect(restricted, "bob") as connection:
        connection.channel().basic_publish("te", "other", b"")
        with connect(restricted, "alice") as own:
            channel = own.channel()
            channel.confirm_delivery()
            trimq(restricted, "users", "revoke-topic", "alice", "--exchange", "te")
            with pytest.raises(UnroutableError):
                channel.basic_publish("te", "other", b"", mandatory=True)
    assert "{username}" not in trimq(restricted, "users", "list")


def test_the_connections_of_a_virtual_host_are_limited(broker: Broker) -> None:
    trimq(broker, "vhosts", "limit", "/", "--max-connections", "1")
    with connect(broker), pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        connect(broker, "bob")
    text = "NOT_ALLOWED - access to vhost '/' refused for user 'bob': connection limit (1) is reached"
    assert f'(530) "{text}"' in str(refused.value)
    with connect(broker):  # the closed ones do not count
        assert "max-connections=1" in trimq(broker, "vhosts", "list")
    assert trimq(broker, "vhosts", "limit", "/", "--max-connections", "none") == "limits of /: none\n"
    with connect(broker), connect(broker, "bob"):
        pass


def test_the_connections_of_a_user_are_limited(broker: Broker) -> None:
    trimq(broker, "users", "limit", "alice", "--max-connections", "1")
    with connect(broker), connect(broker, "bob"), pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        connect(broker)
    text = "NOT_ALLOWED - connection refused for user 'alice': user connection limit (1) is reached"
    assert f'(530) "{text}"' in str(refused.value)
    with connect(broker):
        pass


def test_the_channels_of_a_user_are_limited_over_all_connections(broker: Broker) -> None:
    trimq(broker, "users", "limit", "alice", "--max-channels", "2")
    with connect(broker) as one:
        one.channel()
        one.channel().close()
        one.channel()
        other = connect(broker)
        with pytest.raises(ConnectionClosedByBroker) as refused:
            other.channel()
        text = "number of channels opened for user 'alice' has reached the maximum allowed user limit of 2"
        assert (refused.value.reply_code, refused.value.reply_text) == (530, f"NOT_ALLOWED - {text}")
    with connect(broker) as other:
        other.channel()
        other.channel()


def test_the_queues_of_a_virtual_host_are_limited(broker: Broker) -> None:
    trimq(broker, "vhosts", "limit", "/", "--max-queues", "1")

    def declare_two(channel) -> None:
        channel.queue_declare("q1")
        channel.queue_declare("q1")
        channel.queue_declare("q2")

    text = "PRECONDITION_FAILED - cannot declare queue 'q2': queue limit in vhost '/' (1) is reached"
    assert channel_refusal(broker, declare_two) == (406, text)
    trimq(broker, "vhosts", "limit", "/", "--max-queues", "2")
    assert channel_refusal(broker, declare_two) is None


def test_an_impersonator_may_publish_in_the_name_of_others(broker: Broker) -> None:
    others = pika.BasicProperties(user_id="bob")
    refused = channel_refusal(broker, lambda channel: channel.basic_publish("", "q", b"", others))
    assert refused is not None
    assert refused[0] == 406
    trimq(broker, "users", "set", "alice", "--tags", "impersonator,monitoring")
    assert channel_refusal(broker, lambda channel: channel.basic_publish("", "q", b"", others)) is None
    put_user(broker.http, "alice", password="alice's")
    listed = json.loads(trimq(broker, "users", "list", "--json"))["users"]
    assert {user["name"]: user["tags"] for user in listed}["alice"] == ["impersonator", "monitoring"]


def test_tags_limits_and_topic_permissions_travel_with_the_definitions(restricted: Broker) -> None:
    trimq(restricted, "users", "set", "alice", "--tags", "monitoring")
    trimq(restricted, "users", "limit", "alice", "--max-channels", "7")
    trimq(restricted, "vhosts", "limit", "/", "--max-queues", "5")
    exported = trimq(restricted, "definitions", "export")
    with Broker() as other:
        make_users(other.http)
        user, password = ADMINISTRATOR
        environment = {**os.environ, "TRIMQ_HTTP": other.http, "TRIMQ_USER": user, "TRIMQ_PASSWORD": password}
        imported = subprocess.run(
            [sys.executable, "-m", "trimq.cli", "definitions", "import", "-"],
            input=exported,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        assert imported.returncode == 0, imported.stderr
        shown = ("users", "list", "--json")
        assert json.loads(trimq(other, *shown)) == json.loads(trimq(restricted, *shown))
        assert trimq(other, "vhosts", "list") == trimq(restricted, "vhosts", "list")


def test_what_belongs_to_a_user_is_deleted_with_it(restricted: Broker) -> None:
    trimq(restricted, "users", "limit", "alice", "--max-channels", "0")
    trimq(restricted, "users", "delete", "alice")
    make_users(restricted.http, alice=EVERYTHING)
    assert channel_refusal(restricted, lambda channel: channel.basic_publish("te", "other", b"")) is None
