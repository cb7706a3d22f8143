"""Telemetry of gRPC clients: their settings, the broker's settings for them, and their expiry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk

from trimq.protocols.rocketmq.grpc.clients.message_view import read_ms
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code, Language


def test_a_producer_gets_its_size_limit_and_retry_policy() -> None:
    answer = GrpcDesk(message_bytes=5000).client().produce("t")
    policy = answer.settings.backoff_policy
    assert (answer.status.code, answer.settings.publishing.max_body_size) == (Code.OK, 5000)
    assert answer.settings.publishing.validate_message_type
    assert (policy.max_attempts, read_ms(policy.exponential_backoff.initial)) == (3, 10)


def test_metrics_of_clients_are_switched_off() -> None:
    asked = wire.Settings(client_type=1, publishing=wire.Publishing(), metric=wire.Metric(on=True))
    assert not GrpcDesk().client().tell(asked).settings.metric.on


def test_a_consumer_gets_the_settings_of_its_group() -> None:
    desk = GrpcDesk(delay_levels="1s 5s")
    desk.make_group("g", consumeMessageOrderly=True, retryMaxTimes=3)
    settings = desk.client().consume("g", "t", kind=ClientType.PUSH_CONSUMER).settings
    assert (settings.backoff_policy.max_attempts, settings.subscription.fifo) == (4, True)
    assert [read_ms(each) for each in settings.backoff_policy.customized_backoff.next] == [1000, 5000]
    assert (settings.subscription.receive_batch_size, read_ms(settings.subscription.long_polling_timeout)) == (
        32,
        20_000,
    )


def test_a_node_client_gets_a_backoff_that_it_understands() -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    subscription = wire.Subscription(group=wire.Resource(name="g"))
    asked = wire.Settings(
        client_type=ClientType.PUSH_CONSUMER, subscription=subscription, user_agent=wire.UA(language=Language.NODE_JS)
    )
    policy = desk.client().tell(asked).settings.backoff_policy
    assert (read_ms(policy.exponential_backoff.initial), read_ms(policy.exponential_backoff.max)) == (10_000, 7_200_000)


@pytest.mark.parametrize(
    ("settings", "status", "reason"),
    [
        (wire.Settings(client_type=1), "INVALID_ARGUMENT", "no publishing or subscription"),
        (wire.Settings(client_type=3, subscription=wire.Subscription()), "INVALID_ARGUMENT", "blank"),
        (
            wire.Settings(client_type=3, subscription=wire.Subscription(group=wire.Resource(name="no"))),
            "INVALID_ARGUMENT",
            "group not found: no",
        ),
        (
            wire.Settings(client_type=4, subscription=wire.Subscription(group=wire.Resource(name="no"))),
            "INTERNAL",
            "not served",
        ),
        (wire.Settings(client_type=4, subscription=wire.Subscription()), "INVALID_ARGUMENT", "blank"),
        (
            wire.Settings(client_type=3, subscription=wire.Subscription(group=wire.Resource(name="CID_RMQ_SYS_x"))),
            "INVALID_ARGUMENT",
            "system consumer group",
        ),
        (
            wire.Settings(
                client_type=3,
                subscription=wire.Subscription(
                    group=wire.Resource(name="g"),
                    subscriptions=[wire.SubscriptionEntry(topic=wire.Resource(name="t"), expression={"type": 2})],
                ),
            ),
            "INVALID_ARGUMENT",
            "filter expression",
        ),
        (
            wire.Settings(client_type=1, publishing=wire.Publishing(topics=[wire.Resource(name="a b")])),
            "INVALID_ARGUMENT",
            "a b",
        ),
    ],
)
def test_settings_that_no_client_can_have_end_the_stream(settings: Any, status: str, reason: str) -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    with pytest.raises(GrpcStatusError, match=reason) as found:
        desk.client().tell(settings)
    assert found.value.status == status


def test_clients_are_visible_to_tools_over_remoting() -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    desk.client("consumer").consume("g", "t")
    desk.client("producer").produce("t")
    members = json.loads(desk.desk.broker.ask(203, {"consumerGroup": "g"}).body)
    assert [each["clientId"] for each in members["connectionSet"]] == ["consumer"]
    assert list(members["subscriptionTable"]) == ["t"]
    producers = json.loads(desk.desk.broker.ask(204, {"producerGroup": "t"}).body)
    assert [(each["clientId"], each["language"]) for each in producers["connectionSet"]] == [("producer", "PYTHON")]


def heartbeat(client: Any, group: str | None = None) -> Code:
    fields = {} if group is None else {"group": wire.Resource(name=group)}
    return Code(client.call("Heartbeat", client_type=3, **fields).status.code)


def test_a_client_without_settings_is_not_recognised() -> None:
    client = GrpcDesk().client()
    assert heartbeat(client) == Code.UNRECOGNIZED_CLIENT_TYPE
    assert client.call("NotifyClientTermination").status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_a_heartbeat_keeps_a_client_alive_also_without_its_stream() -> None:
    desk = GrpcDesk()
    client = desk.client()
    client.produce("t")
    client.stream.closed()
    for _ in range(3):
        desk.desk.let_pass(100_000)
        assert heartbeat(client) == Code.OK
    assert desk.desk.broker.ask(204, {"producerGroup": "t"}).code == 0
    desk.desk.let_pass(131_000)
    assert heartbeat(client) == Code.UNRECOGNIZED_CLIENT_TYPE
    assert desk.desk.broker.ask(204, {"producerGroup": "t"}).code == 1


@pytest.mark.parametrize("group", ["bad group$", "unknown", None])
def test_a_heartbeat_of_a_consumer_names_a_group_that_exists(group: str | None) -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    consumer, producer = desk.client("consumer"), desk.client("producer")
    consumer.consume("g", "t")
    producer.produce("t")
    assert heartbeat(consumer, group) == Code.ILLEGAL_CONSUMER_GROUP
    assert heartbeat(producer, group) == Code.OK


@pytest.mark.parametrize("kind", [ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PULL_CONSUMER])
def test_a_client_is_recognised_by_the_type_in_its_settings(kind: ClientType) -> None:
    client = GrpcDesk().client()
    client.tell(wire.Settings(client_type=kind, publishing=wire.Publishing(topics=[wire.Resource(name="t")])))
    assert heartbeat(client) == Code.UNRECOGNIZED_CLIENT_TYPE
    assert client.call("NotifyClientTermination").status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_a_consumer_that_names_no_group_at_its_end_is_forgotten_all_the_same() -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    client = desk.client()
    client.consume("g", "t")
    assert client.call("NotifyClientTermination").status.code == Code.ILLEGAL_CONSUMER_GROUP
    assert client.call("NotifyClientTermination").status.code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_a_consumer_is_a_member_of_the_group_that_its_heartbeat_names() -> None:
    desk = GrpcDesk()
    desk.make_group("g")
    desk.make_group("other")
    client = desk.client("c")
    client.consume("g", "t")
    assert heartbeat(client, "other") == Code.OK
    for group in ("g", "other"):
        members = json.loads(desk.desk.broker.ask(38, {"consumerGroup": group}).body)
        assert members["consumerIdList"] == ["c"]


def test_a_stream_without_a_client_id_is_told_so() -> None:
    desk = GrpcDesk()
    assert desk.client("").produce("t").status.code == Code.CLIENT_ID_REQUIRED


def test_a_client_that_notifies_its_termination_is_forgotten() -> None:
    desk = GrpcDesk()
    client = desk.client()
    client.produce("t")
    assert client.call("NotifyClientTermination").status.code == Code.OK
    assert heartbeat(client) == Code.UNRECOGNIZED_CLIENT_TYPE
    assert desk.desk.broker.ask(204, {"producerGroup": "t"}).code == 1


def test_there_are_no_more_clients_than_allowed() -> None:
    desk = GrpcDesk(client_limit=1)
    desk.client("first").produce("t")
    desk.client("first").produce("u")
    with pytest.raises(GrpcStatusError, match="limit of 1 gRPC clients"):
        desk.client("second").produce("t")


def test_unsolicited_messages_of_a_client_are_not_answered() -> None:
    desk = GrpcDesk()
    client = desk.client()
    client.produce("t")
    command = wire.TelemetryCommand(thread_stack_trace=wire.ThreadStackTrace(nonce="n", thread_stack_trace="..."))
    assert client.stream.receive(command.SerializeToString()) == []


def test_a_group_may_have_steps_of_its_own() -> None:
    desk = GrpcDesk()
    growing = {"initial": 2000, "max": 60_000, "multiplier": 3.0}
    desk.make_group("growing", groupRetryPolicy={"type": "EXPONENTIAL", "exponentialRetryPolicy": growing})
    desk.make_group("told", groupRetryPolicy={"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 7000]}})
    desk = desk.restart()
    backoff = desk.client("a").consume("growing", "t").settings.backoff_policy.exponential_backoff
    assert (read_ms(backoff.initial), read_ms(backoff.max), backoff.multiplier) == (2000, 60_000, 3.0)
    steps = desk.client("b").consume("told", "t").settings.backoff_policy.customized_backoff.next
    assert [read_ms(each) for each in steps] == [1000, 7000]
    shown = json.loads(desk.desk.broker.ask(352, {"group": "growing"}).body)["groupRetryPolicy"]
    assert shown == {"type": "EXPONENTIAL", "exponentialRetryPolicy": growing}


@pytest.mark.parametrize(
    "policy",
    [
        {"type": "BY_MOON"},
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": -1}},
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1] * 101}},
        "CUSTOMIZED",
    ],
)
def test_steps_that_are_none_are_refused(policy: object) -> None:
    desk = GrpcDesk()
    assert desk.desk.broker.ask(200, body={"groupName": "g", "groupRetryPolicy": policy}).code == 29
