"""Users, virtual hosts, permissions, policies, queues, failures and definitions over HTTP, beside AMQP clients."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, NoReturn
from urllib.request import urlopen

import pika
import pytest
from core.queueing_world import CALLER, World
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAuthenticationError

from trimq.server.http.queues import QueuesApi
from trimq.server.http.responses import DeferredResponse, HttpResponse
from trimq.testing import Broker

PATIENCE_S = 20
ROOT = ("root", "secret")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(
    broker: Broker, method: str, target: str, body: object = None, login: tuple[str, str] | None = None
) -> tuple[int, Any]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    headers = {}
    if login is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    try:
        connection.request(method, target, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        received = response.read()
        return response.status, json.loads(received) if received else None
    finally:
        connection.close()


def connect(broker: Broker, name: str = "guest", password: str = "guest", vhost: str = "/") -> pika.BlockingConnection:
    host, _, port = broker.addresses["amqp"].rpartition(":")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host, int(port), vhost, pika.PlainCredentials(name, password), socket_timeout=PATIENCE_S
        )
    )


def with_users(broker: Broker) -> None:
    """Defines an administrator, and a user with permissions for names beginning with `hers` in /."""
    status, answer = ask(broker, "PUT", "/api/users/root", {"password": "secret", "administrator": True})
    assert (status, "guest" in answer["message"]) == (200, True)
    assert ask(broker, "DELETE", "/api/users/guest", login=ROOT) == (204, None)
    assert ask(broker, "PUT", "/api/users/alice", {"password": "hers"}, ROOT) == (204, None)
    rights = {"configure": "^hers", "write": ".*", "read": "^hers"}
    assert ask(broker, "PUT", "/api/permissions/alice", rights, ROOT) == (204, None)


def listed(name: str, administrator: bool, has_secret: bool = False) -> dict[str, object]:
    tags = ["administrator"] if administrator else []
    return {"name": name, "administrator": administrator, "tags": tags, "rocketmq_secret": has_secret}


# --- users ------------------------------------------------------------------------------------------------------------


def test_from_the_first_user_on_login_is_required(broker: Broker) -> None:
    assert ask(broker, "GET", "/api/users") == (200, {"users": []})
    with_users(broker)
    status, mistake = ask(broker, "GET", "/api/users")
    assert (status, mistake["error"]) == (401, "LoginNeeded")
    status, mistake = ask(broker, "GET", "/api/users", login=("root", "wrong"))
    assert (status, mistake["error"]) == (401, "WrongLogin")
    status, mistake = ask(broker, "GET", "/api/users", login=("alice", "hers"))
    assert (status, mistake["error"]) == (403, "AccessDenied")
    names = [listed("root", True), listed("alice", False)]
    assert ask(broker, "GET", "/api/users", login=ROOT) == (200, {"users": names})
    assert ask(broker, "GET", "/api/topics", login=ROOT) == (200, {"topics": []})


def test_a_rocketmq_secret_is_set_and_removed_and_never_shown(broker: Broker) -> None:
    with_users(broker)
    assert ask(broker, "PUT", "/api/users/alice", {"rocketmq_secret": "planted"}, ROOT) == (204, None)
    users = [listed("root", True), listed("alice", False, True)]
    assert ask(broker, "GET", "/api/users", login=ROOT) == (200, {"users": users})
    status, exported = ask(broker, "GET", "/api/definitions", login=ROOT)
    assert (status, "planted" in str(exported)) == (200, False)
    assert ask(broker, "GET", "/api/users", login=("alice", "hers"))[0] == 403  # the password is still the same
    assert ask(broker, "PUT", "/api/users/alice", {"rocketmq_secret": "x" * 257}, ROOT)[0] == 400
    assert ask(broker, "PUT", "/api/users/bob", {"rocketmq_secret": "planted"}, ROOT)[0] == 400
    assert ask(broker, "PUT", "/api/users/alice", {"rocketmq_secret": ""}, ROOT) == (204, None)
    assert ask(broker, "GET", "/api/users", login=ROOT)[1]["users"][1] == listed("alice", False)


def test_logins_over_http_and_amqp_are_counted_once_a_connection(broker: Broker) -> None:
    with_users(broker)
    connect(broker, *ROOT).close()
    for login in (("guest", "wrong"), ("nobody", "x")):
        with pytest.raises(ProbableAuthenticationError):
            connect(broker, *login)
        assert ask(broker, "GET", "/api/users", login=login)[0] == 401
    with urlopen(f"{broker.http}/metrics", timeout=30) as page:
        counted = re.findall(r'trimq_logins_total{protocol="(\w+)",result="(\w+)"} (\d+)', page.read().decode())
    found = {(protocol, result): int(count) for protocol, result, count in counted}
    assert (found["amqp", "success"], found["amqp", "failure"], found["http", "failure"]) == (1, 2, 2)
    assert found["http", "success"] >= 1


def test_the_first_user_does_not_lock_guest_out(broker: Broker) -> None:
    """A program that adds a user, as on RabbitMQ, goes on as guest."""
    before = connect(broker)
    status, told = ask(broker, "PUT", "/api/users/alice", {"password": "hers"})
    assert (status, "guest (password guest) can still log in" in told["message"]) == (200, True)
    guest = ("guest", "guest")
    expected = [listed("guest", True), listed("alice", False)]
    assert ask(broker, "GET", "/api/users", login=guest) == (200, {"users": expected})
    assert ask(broker, "GET", "/api/users")[0] == 401
    before.channel().queue_declare("q")
    before.close()
    connect(broker).close()
    assert ask(broker, "PUT", "/api/users/alice", {"administrator": True}, guest) == (204, None)
    assert ask(broker, "DELETE", "/api/users/guest", login=guest) == (204, None)
    with pytest.raises(ProbableAuthenticationError):
        connect(broker)


def test_guest_may_be_the_first_user(broker: Broker) -> None:
    user = {"password": "mine", "administrator": True}
    assert ask(broker, "PUT", "/api/users/guest", user) == (204, None)
    assert ask(broker, "GET", "/api/users", login=("guest", "mine"))[1] == {"users": [listed("guest", True)]}
    assert ask(broker, "GET", "/api/users", login=("guest", "guest"))[0] == 401
    assert ask(broker, "PUT", "/api/users/guest", {"administrator": False}, ("guest", "mine"))[0] == 400


def test_there_is_always_an_administrator(broker: Broker) -> None:
    with_users(broker)
    assert ask(broker, "DELETE", "/api/users/root", login=ROOT)[0] == 400
    assert ask(broker, "PUT", "/api/users/root", {"administrator": False}, ROOT)[0] == 400
    assert ask(broker, "PUT", "/api/users/alice", {"administrator": True}, ROOT)[0] == 204
    assert ask(broker, "DELETE", "/api/users/root", login=ROOT)[0] == 204
    alice = ("alice", "hers")
    assert ask(broker, "GET", "/api/users", login=alice) == (200, {"users": [listed("alice", True)]})
    assert ask(broker, "DELETE", "/api/users/alice", login=alice)[0] == 204
    assert ask(broker, "GET", "/api/users") == (200, {"users": []})


def test_invalid_requests_are_refused(broker: Broker) -> None:
    assert ask(broker, "PUT", "/api/users/root", {"administrator": True})[1]["message"].startswith("password")
    assert ask(broker, "PUT", "/api/users/root", {"pass": "x"})[0] == 400
    assert ask(broker, "POST", "/api/users/root")[0] == 405
    assert ask(broker, "DELETE", "/api/users/nobody")[0] == 404
    assert ask(broker, "PUT", "/api/permissions/nobody", {})[0] == 404
    with_users(broker)
    assert ask(broker, "PUT", "/api/permissions/alice", {"read": "("}, ROOT)[0] == 400
    assert ask(broker, "PUT", "/api/permissions/alice?vhost=none", {"read": ".*"}, ROOT)[0] == 404


def test_permissions_hold_for_connections_that_are_open(broker: Broker) -> None:
    with_users(broker)
    with pytest.raises(ProbableAuthenticationError):
        connect(broker)
    connection = connect(broker, "alice", "hers")
    channel = connection.channel()
    channel.queue_declare("hers.1")
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare("his")
    assert refused.value.reply_code == 403
    assert ask(broker, "PUT", "/api/permissions/alice", {"configure": "^his"}, ROOT)[0] == 204
    channel = connection.channel()
    channel.queue_declare("his")
    with pytest.raises(ChannelClosedByBroker):
        channel.basic_get("hers.1")
    rights = ask(broker, "GET", "/api/permissions", login=ROOT)[1]["permissions"]
    assert rights == [{"user": "alice", "vhost": "/", "configure": "^his", "write": "", "read": ""}]
    assert ask(broker, "DELETE", "/api/permissions/alice", login=ROOT)[0] == 204
    assert ask(broker, "GET", "/api/permissions", login=ROOT)[1] == {"permissions": []}
    connection.close()


def test_a_consumer_ends_when_its_user_may_not_read_the_queue_any_more(broker: Broker) -> None:
    with_users(broker)
    assert (
        ask(broker, "PUT", "/api/permissions/alice", {"configure": ".*", "write": ".*", "read": ".*"}, ROOT)[0] == 204
    )
    connection = connect(broker, "alice", "hers")
    channel = connection.channel()
    channel.queue_declare("hers.1")
    channel.queue_declare("hers.2")
    ended: list[str] = []
    got: list[bytes] = []
    channel.add_on_cancel_callback(lambda frame: ended.append(frame.method.consumer_tag))
    for tag, queue in (("one", "hers.1"), ("two", "hers.2")):
        channel.basic_consume(queue, lambda _, method, properties, body: got.append(body), consumer_tag=tag)
    allowed = {"configure": ".*", "write": ".*", "read": "2$"}
    assert ask(broker, "PUT", "/api/permissions/alice", allowed, ROOT)[0] == 204
    channel.basic_publish("", "hers.1", b"secret")
    channel.basic_publish("", "hers.2", b"open")
    while not (ended and got):
        connection.process_data_events(PATIENCE_S)
    assert (ended, got) == (["one"], [b"open"])
    connection.close()


@pytest.mark.parametrize("closes", [True, False])
def test_a_new_password_closes_connections_unless_it_is_set_not_to(closes: bool) -> None:
    with Broker(security_password_change_closes=closes) as broker:
        with_users(broker)
        connection = connect(broker, "alice", "hers")
        assert ask(broker, "PUT", "/api/users/alice", {"password": "new"}, ROOT)[0] == 204
        if closes:
            with pytest.raises(ConnectionClosedByBroker, match="the password of user 'alice' was changed"):
                connection.process_data_events(PATIENCE_S)
        else:
            connection.channel().queue_declare("hers.1")
            connection.close()


def test_a_deleted_user_is_disconnected(broker: Broker) -> None:
    with_users(broker)
    connection = connect(broker, "alice", "hers")
    other = connect(broker, *ROOT)
    assert ask(broker, "DELETE", "/api/users/alice", login=ROOT)[0] == 204
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.process_data_events(PATIENCE_S)
    assert closed.value.reply_code == 320
    assert "user 'alice' was deleted" in closed.value.reply_text
    other.channel().queue_declare("still there")
    other.close()


# --- virtual hosts ----------------------------------------------------------------------------------------------------


def test_a_virtual_host_goes_with_all_that_is_in_it(broker: Broker) -> None:
    assert ask(broker, "GET", "/api/vhosts") == (200, {"vhosts": [{"name": "/", "limits": {}}]})
    assert ask(broker, "PUT", "/api/vhosts/shop")[0] == 204
    assert ask(broker, "PUT", "/api/vhosts/shop")[0] == 204
    connection = connect(broker, vhost="shop")
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    channel.exchange_declare("e", durable=True)
    channel.queue_bind("orders", "e", "k")
    policy = {"pattern": ".*", "definition": {"max-length": 5}}
    assert ask(broker, "PUT", "/api/policies/short?vhost=shop", policy)[0] == 204
    assert len(ask(broker, "GET", "/api/queues?vhost=shop")[1]["queues"]) == 1
    assert ask(broker, "GET", "/api/queues") == (200, {"queues": []})
    assert ask(broker, "DELETE", "/api/vhosts/shop")[0] == 204
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.process_data_events(PATIENCE_S)
    assert (closed.value.reply_code, "vhost 'shop' was deleted" in closed.value.reply_text) == (320, True)
    assert ask(broker, "PUT", "/api/vhosts/shop")[0] == 204
    assert ask(broker, "GET", "/api/queues?vhost=shop") == (200, {"queues": []})
    assert ask(broker, "GET", "/api/policies?vhost=shop") == (200, {"policies": []})
    again = connect(broker, vhost="shop")
    with pytest.raises(ChannelClosedByBroker):
        again.channel().exchange_declare("e", passive=True)
    again.close()
    assert ask(broker, "DELETE", "/api/vhosts/none")[0] == 404
    assert ask(broker, "DELETE", "/api/vhosts/%2F")[0] == 404


# --- queues, policies, failures ---------------------------------------------------------------------------------------


def test_queues_are_listed_described_purged_and_deleted(broker: Broker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 10})
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_get("q")
    (row,) = ask(broker, "GET", "/api/queues")[1]["queues"]
    assert row == {
        "name": "q", "vhost": "/", "type": "classic", "durable": True, "exclusive": False, "auto_delete": False,
        "ready": 2, "unacknowledged": 1, "dead_letters": 0, "consumers": 0,
    }  # fmt: skip
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("q", lambda *_: None, consumer_tag="c")
    connection.process_data_events(0)
    described = ask(broker, "GET", "/api/queues/q")[1]
    assert described["arguments"] == {"x-max-length": 10}
    assert [(found["tag"], found["prefetch"]) for found in described["consumer_details"]] == [("c", 7)]
    channel.basic_cancel("c")
    channel.basic_nack(0, multiple=True)
    assert ask(broker, "DELETE", "/api/queues/q/messages") == (200, {"purged": 3})
    assert ask(broker, "DELETE", "/api/queues/q")[0] == 204
    assert ask(broker, "GET", "/api/queues/q")[1]["error"] == "UnknownQueue"
    assert ask(broker, "DELETE", "/api/queues/q")[0] == 404
    assert ask(broker, "DELETE", "/api/queues/q/messages")[0] == 404
    connection.close()


def test_a_policy_holds_for_queues_that_are_there(broker: Broker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("short.1", durable=True)
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", "short.1", b"%d" % number)
    policy = {"pattern": "^short", "definition": {"max-length": 2}, "priority": 3, "apply_to": "queues"}
    assert ask(broker, "PUT", "/api/policies/two", policy)[0] == 204
    assert ask(broker, "GET", "/api/policies")[1] == {"policies": [{"name": "two", "vhost": "/", **policy}]}
    assert ask(broker, "GET", "/api/queues/short.1")[1]["ready"] == 2
    assert ask(broker, "DELETE", "/api/policies/two")[0] == 204
    assert ask(broker, "GET", "/api/policies")[1] == {"policies": []}
    wrong = {"pattern": "(", "definition": {"max-length": 2}}
    assert ask(broker, "PUT", "/api/policies/two", wrong)[1]["error"] == "InvalidSetting"
    assert ask(broker, "PUT", "/api/policies/two", {"pattern": "x", "definition": {"ha-mode": "all"}})[0] == 400
    connection.close()


def test_failures_are_listed_and_sent_again(broker: Broker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    for body in (b"one", b"two"):
        channel.basic_publish("", "q", body)
        method, _, _ = channel.basic_get("q")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.queue_declare("q", passive=True)
    found = ask(broker, "GET", "/api/failures?limit=1")[1]
    (first,) = found["failures"]
    assert (first["queue"], first["reason"], base64.b64decode(first["body"])) == ("q", "rejected", b"one")
    assert (first["group"], first["stream"], first["offset"]) == ("", 0, 0)
    (second,) = ask(broker, "GET", f"/api/failures?from={found['next']}")[1]["failures"]
    assert base64.b64decode(second["body"]) == b"two"
    assert ask(broker, "POST", f"/api/failures/{second['id']}/redrive")[0] == 204
    _, _, body = channel.basic_get("q", auto_ack=True)
    assert body == b"two"
    status, mistake = ask(broker, "POST", f"/api/failures/{second['id']}/redrive")
    assert (status, mistake["error"]) == (409, "Changed")
    assert ask(broker, "POST", "/api/failures/99999/redrive")[0] == 404
    assert ask(broker, "POST", "/api/failures/x/redrive")[0] == 400
    assert ask(broker, "GET", "/api/failures?from=x")[0] == 400
    connection.close()


def test_a_message_that_just_failed_is_in_the_next_listing() -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"one")
    delivery = world.get("q")
    assert delivery is not None
    world.broker.queues.reject([delivery], counts=True)  # the disk has not finished yet
    later = QueuesApi(world.core.broker).answer(CALLER, "GET", ["api", "failures"], {}, b"")
    assert isinstance(later, DeferredResponse)
    answers: list[HttpResponse] = []
    later.begin(answers.append)
    world.settle()
    (answer,) = answers
    (failure,) = json.loads(answer.body)["failures"]
    assert base64.b64decode(failure["body"]) == b"one"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_listing_that_fails_is_answered_all_the_same(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    world = World()
    world.queue("q")
    world.publish("q", b"one")
    delivery = world.get("q")
    assert delivery is not None
    if is_late:
        world.broker.queues.reject([delivery], counts=True)

    def fail(*arguments: object) -> NoReturn:
        raise RuntimeError("planted")

    monkeypatch.setattr(type(world.broker.failures), "all", fail)
    later = QueuesApi(world.core.broker).answer(CALLER, "GET", ["api", "failures"], {}, b"")
    assert isinstance(later, DeferredResponse)
    answers: list[HttpResponse] = []
    later.begin(answers.append)
    world.settle()
    assert [answer.status for answer in answers] == [500]


# --- definitions ------------------------------------------------------------------------------------------------------


def test_definitions_move_from_one_broker_to_another(broker: Broker) -> None:
    assert ask(broker, "PUT", "/api/vhosts/shop")[0] == 204
    connection = connect(broker, vhost="shop")
    channel = connection.channel()
    channel.exchange_declare("e", "headers", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
    channel.queue_declare("gone", exclusive=True)
    channel.queue_bind("q", "e", arguments={"x-match": "any", "n": 1})
    channel.queue_bind("gone", "e")
    connection.close()
    policy = {"pattern": "^q", "definition": {"max-length": 5}}
    assert ask(broker, "PUT", "/api/policies/short?vhost=shop", policy)[0] == 204
    with_users(broker)
    kept = ask(broker, "GET", "/api/definitions", login=ROOT)[1]
    assert "secret" not in json.dumps(kept)
    assert [queue["name"] for queue in kept["queues"]] == ["q"]
    with Broker() as other:
        assert ask(other, "POST", "/api/definitions", kept) == (204, None)
        assert ask(other, "GET", "/api/definitions", login=ROOT) == (200, kept)
        assert ask(other, "POST", "/api/definitions", kept, ROOT) == (204, None)
        moved = connect(other, *ROOT, vhost="shop").channel()
        moved.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
        moved.basic_publish("e", "", b"x", pika.BasicProperties(headers={"n": 1}))
        moved.connection.close()
        kept["queues"][0]["arguments"] = "AAAA"
        assert ask(other, "POST", "/api/definitions", kept, ROOT)[0] == 400
        assert ask(other, "DELETE", "/api/definitions", login=ROOT)[0] == 405


def test_users_and_rights_survive_a_restart(broker: Broker) -> None:
    with_users(broker)
    broker.restart()
    assert len(ask(broker, "GET", "/api/users", login=ROOT)[1]["users"]) == 2
    connect(broker, "alice", "hers").close()
