"""Refusals with the code and the text of RabbitMQ 4.3."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.amqp.desk import Client, Content, Desk
from protocols.amqp.wires import command

from trimq.formats.amqp_content.field_tables import (
    Byte,
    Decimal,
    FieldTable,
    Integer,
    Octets,
    Short,
    Single,
    Timestamp,
    UnsignedByte,
    UnsignedInteger,
    UnsignedShort,
    Value,
)
from trimq.formats.amqp_content.property_list import read_property, write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.erlang_terms import term, type_name


def refused(client: Client, method: methods.Method) -> tuple[int, str]:
    """Sends a method that closes its channel or the connection. Returns code and text."""
    client.tell(1, method)
    client.desk.settle()
    closed: Any = client.heard()[-1]
    return closed.reply_code, closed.reply_text


def declaration(**arguments: Value) -> methods.QueueDeclare:
    table = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return methods.QueueDeclare(queue="q", is_durable=True, arguments=table)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"message_ttl": -1}, "{value_negative,-1}"),
        ({"message_ttl": "5"}, '"expected integer, got longstr"'),
        ({"message_ttl": Timestamp(5)}, '"expected integer, got timestamp"'),
        ({"message_ttl": 10**15}, "{value_too_large,1000000000000000}"),
        ({"expires": 0}, "{value_zero,0}"),
        ({"max_priority": 256}, "{max_value_exceeded,256}"),
        ({"max_length": True}, '"expected integer, got bool"'),
        ({"overflow": "nope"}, "invalid_overflow"),
        ({"overflow": 5}, "{unacceptable_type,long}"),
        ({"single_active_consumer": "true"}, "{unacceptable_type,longstr}"),
        ({"dead_letter_routing_key": "k"}, "routing_key_but_no_dlx_defined"),
        ({"dead_letter_routing_key": [], "dead_letter_exchange": ""}, "{unacceptable_type,array}"),
        ({"queue_version": 1}, "\"unsupported queue version '1'\""),
        ({"queue_type": "nope"}, "\"unsupported queue type 'nope'\""),
        ({"queue_type": {}}, "{unacceptable_type,table}"),
        ({"queue_leader_locator": "nope"}, "invalid_queue_locator_arg"),
        ({"queue_type": "stream", "max_age": "1x"}, "invalid_max_age"),
        ({"queue_type": "quorum", "dead_letter_strategy": "nope"}, "invalid_dlx_strategy"),
        ({"queue_type": "quorum", "quorum_initial_group_size": 1.5}, '"expected integer, got double"'),
    ],
)
def test_an_invalid_argument_is_refused_with_the_reason_of_rabbitmq(arguments: FieldTable, reason: str) -> None:
    name = next(name for name in reversed(arguments) if name != "dead_letter_exchange" or len(arguments) == 1)
    text = f"PRECONDITION_FAILED - invalid arg 'x-{name.replace('_', '-')}' for queue 'q' in vhost '/': {reason}"
    assert refused(Desk().client(1), declaration(**arguments)) == (406, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dead_letter_exchange": 5}, "invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"),
        (
            {"delivery_limit": 5},
            "invalid arg 'x-delivery-limit' for queue 'q' in vhost '/' of queue type rabbit_classic_queue",
        ),
        (
            {"queue_type": "stream", "stream_filter_size_bytes": 15},
            "Invalid value for x-stream-filter-size-bytes",
        ),
        (
            {"queue_type": "stream", "stream_max_segment_size_bytes": 3_000_000_001},
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
    ],
)
def test_other_refusals_of_arguments_have_the_text_of_rabbitmq(arguments: FieldTable, text: str) -> None:
    assert refused(Desk().client(1), declaration(**arguments)) == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize(
    ("arguments", "again", "text"),
    [
        ({"expires": 1000}, {}, "none but current is the value '1000' of type 'long'"),
        ({}, {"max_length": Short(5)}, "the value '5' of type 'short' but current is none"),
        ({"max_length": 5}, {"max_length": "5"}, "'5' but current is '5'"),
        ({"max_length": 5}, {"max_length": None}, "none but current is '5'"),
        ({"max_length": 5}, {"max_length": -1}, "'-1' but current is '5'"),
        ({}, {"queue_type": "quorum"}, "'quorum' but current is 'classic'"),
        ({}, {"max_length": None}, "the value 'undefined' of type 'void' but current is none"),
        ({"overflow": "drop-head"}, {"overflow": True}, "'true' but current is 'drop-head'"),
    ],
)
def test_a_redeclaration_only_compares(arguments: FieldTable, again: FieldTable, text: str) -> None:
    client = Desk().client(1)
    client.ask(1, declaration(**arguments))
    code, said = refused(client, declaration(**again))
    name = next(iter({**arguments, **again})).replace("_", "-")
    where = f"inequivalent arg 'x-{name}' for queue 'q' in vhost '/'"
    assert (code, said) == (406, f"PRECONDITION_FAILED - {where}: received {text}")


@pytest.mark.parametrize(
    "again",
    [
        {"delivery_limit": 5},  # an argument of quorum queues
        {"max_age": "nonsense"},
        {"queue_type": "classic"},
        {"unknown": [1]},
        {"expires": Short(1000)},
    ],
)
def test_a_redeclaration_ignores_arguments_that_the_type_of_the_queue_does_not_know(again: FieldTable) -> None:
    client = Desk().client(1)
    client.ask(1, declaration(expires=1000))
    answer = client.ask(1, declaration(**{"expires": 1000, **again}))
    assert isinstance(answer, methods.QueueDeclareOk)


def test_the_age_of_a_stream_is_compared_in_milliseconds() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="stream", max_age="1h"))
    again = client.ask(1, declaration(queue_type="stream", max_age="60m"))
    assert isinstance(again, methods.QueueDeclareOk)
    _, text = refused(client, declaration(queue_type="stream", max_age="7D"))
    assert text.endswith("'x-max-age' for queue 'q' in vhost '/': received '604800000' but current is '3600000'")


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_a_quorum_queue_cannot_be_deleted_on_a_condition(flag: str) -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="quorum"))
    text = f"queue.delete operations with {flag.replace('_', '-')} flag set are not supported by quorum queues"
    assert refused(client, methods.QueueDelete(queue="q", **{flag: True})) == (
        540,
        f"NOT_IMPLEMENTED - cannot delete queue 'q' in vhost '/'. {text}",
    )


def test_a_stream_is_deleted_on_any_condition() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="stream"))
    client.publish(1, "q", b"m")
    assert isinstance(
        client.ask(1, methods.QueueDelete(queue="q", if_unused=True, if_empty=True)), methods.QueueDeleteOk
    )


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"headers": {"CC": "q"}}, 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        ({"headers": {"BCC": 5}}, 'invalid message: {unacceptable_type_in_header,"BCC",long}'),
        ({"expiration": ""}, "invalid expiration '': no_integer"),
        ({"expiration": "-1"}, "invalid expiration '-1': {value_negative,-1}"),
        ({"expiration": "1.5"}, "invalid expiration '1.5': {leftover_string,\".5\"}"),
        ({"expiration": "315360000001"}, "invalid expiration '315360000001': {value_too_large,315360000001}"),
        (
            {"expiration": "9999999999999999999"},
            "invalid expiration '9999999999999999999': {value_too_large,\n" + 43 * " " + "9999999999999999999}",
        ),
    ],
)
def test_a_message_with_invalid_properties_is_refused_with_the_text_of_rabbitmq(
    properties: dict[str, Any], text: str
) -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"m", header=write_properties(**properties))
    client.desk.settle()
    (closed,) = client.heard()
    assert (closed.reply_code, closed.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize("expiration", ["+5", "05", "0", "-0", "315360000000"])
def test_an_expiration_may_have_a_sign_and_leading_zeros(expiration: str) -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"m", header=write_properties(expiration=expiration))
    client.desk.settle()
    assert client.heard() == []


@pytest.mark.parametrize(
    ("value", "type", "shown"),
    [
        (True, "bool", "true"),
        (Byte(-5), "byte", "-5"),
        (UnsignedByte(5), "unsignedbyte", "5"),
        (Short(5), "short", "5"),
        (UnsignedShort(5), "unsignedshort", "5"),
        (Integer(5), "signedint", "5"),
        (UnsignedInteger(5), "unsignedint", "5"),
        (5, "long", "5"),
        (Timestamp(5), "timestamp", "5"),
        (Single(0.5), "float", "0.5"),
        (1.5, "double", "1.5"),
        (Decimal(2, 314), "decimal", "{2,314}"),
        ("text", "longstr", '<<"text">>'),
        ("ü", "longstr", '<<"ü"/utf8>>'),
        ("", "longstr", "<<>>"),
        (Octets(b"\xff\x00"), "longstr", "<<255,0>>"),
        (b"raw", "binary", '<<"raw">>'),
        (None, "void", "undefined"),
        ([Integer(1), "a"], "array", '[{signedint,1},{longstr,<<"a">>}]'),
        ({"a": Integer(1)}, "table", '[{<<"a">>,signedint,1}]'),
    ],
)
def test_values_are_printed_as_erlang_terms(value: Value, type: str, shown: str) -> None:
    assert (type_name(value), term(value)) == (type, shown)


def test_a_binding_names_the_missing_exchange_first_and_its_arguments_before_a_lock() -> None:
    desk = Desk()
    client, other = desk.client(1, 2, 3), desk.client(1)
    other.ask(1, methods.QueueDeclare(queue="mine", is_exclusive=True))
    nonsense: FieldTable = {"x-match": "nonsense"}
    for method, code, text in (
        (methods.QueueBind(queue="no", exchange="nowhere"), 404, "NOT_FOUND - no exchange 'nowhere' in vhost '/'"),
        (methods.QueueBind(queue="no", exchange="amq.fanout"), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (
            methods.QueueBind(queue="mine", exchange="amq.headers", arguments=nonsense),
            406,
            'PRECONDITION_FAILED - Invalid x-match field value <<"nonsense">>; expected all, any, all-with-x, or '
            "any-with-x",
        ),
    ):
        assert refused(client, method) == (code, text)
        client.tell(1, methods.ChannelCloseOk())
        client.ask(1, methods.ChannelOpen())


def test_a_binding_does_not_depend_on_the_order_of_its_arguments() -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.ask(1, methods.QueueBind(queue="q", exchange="amq.headers", arguments={"a": 1, "b": 2}))
    client.ask(1, methods.QueueUnbind(queue="q", exchange="amq.headers", arguments={"b": 2, "a": 1}))
    client.publish(1, "", b"m", exchange="amq.headers", header=write_properties(headers={"a": 1, "b": 2}))
    assert client.ask(1, methods.BasicGet(queue="q")) == methods.BasicGetEmpty()


@pytest.mark.parametrize("verb", [methods.QueueBind, methods.QueueUnbind])
def test_a_direct_reply_address_cannot_be_bound(verb: type[methods.QueueBind]) -> None:
    method = verb(queue="amq.rabbitmq.reply-to", exchange="amq.fanout")
    assert refused(Desk().client(1), method) == (
        403,
        "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue",
    )


def test_a_connection_that_ends_with_an_error_gives_back_its_messages_at_once() -> None:
    desk = Desk()
    client, other = desk.client(1), desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"m")
    assert client.ask(1, methods.BasicGet(queue="q")).body == b"m"
    client.feed(b"\x04\0\1\0\0\0\0\xce")
    desk.settle()
    assert other.ask(1, methods.BasicGet(queue="q")).body == b"m"


@pytest.mark.parametrize("name", ["amq.nosuch", "amq.direct"])
def test_no_exchange_with_a_reserved_name_can_be_deleted(name: str) -> None:
    text = f"ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed"
    assert refused(Desk().client(1), methods.ExchangeDelete(exchange=name)) == (403, text)


def test_a_long_text_ends_with_an_ellipsis() -> None:
    code, text = refused(Desk().client(1), methods.BasicGet(queue="q" * 250))
    assert (code, len(text)) == (404, 255)
    assert text == f"NOT_FOUND - no queue '{'q' * 230}..."


def test_a_close_ok_that_nobody_waits_for_is_an_error() -> None:
    client = Desk().client(1)
    client.tell(0, methods.ConnectionCloseOk())
    (closed,) = client.heard()
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    assert (closed.reply_code, closed.reply_text, closed.class_id, closed.method_id) == (504, text, 10, 51)


def test_the_user_id_is_checked_after_the_other_properties() -> None:
    client = Desk().client(1)
    client.publish(1, "q", b"m", header=write_properties(user_id="other", expiration="x"))
    (closed,) = client.heard()
    assert closed.reply_text == "PRECONDITION_FAILED - invalid expiration 'x': no_integer"


def test_a_quorum_queue_with_a_single_active_consumer_has_no_get() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="quorum", single_active_consumer=True))
    text = (
        "RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are not "
        'supported by <<"quorum">> queues with single active consumer'
    )
    assert refused(client, methods.BasicGet(queue="q")) == (405, text)


def test_the_type_of_an_exchange_is_shown_as_an_atom() -> None:
    client = Desk().client(1)
    client.ask(1, methods.ExchangeDeclare(exchange="x", type="x-modulus-hash"))
    code, text = refused(client, methods.ExchangeDeclare(exchange="x", type="fanout"))
    assert (code, text) == (
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is "
        "''x-modulus-hash''",
    )


def test_a_consumer_of_direct_replies_may_share_its_tag_and_is_cancelled_first() -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", consumer_tag="t", no_ack=True))
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="t"))
    client.ask(1, methods.BasicCancel(consumer_tag="t"))
    client.publish(1, "q", b"m")
    client.desk.settle()
    assert client.bodies() == [b"m"]


def test_a_message_of_a_stream_has_a_delivery_mode() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="stream"))
    client.publish(1, "q", b"none")
    client.publish(1, "q", b"persistent", header=write_properties(delivery_mode=2))
    client.ask(1, methods.BasicQos(prefetch_count=5))
    client.tell(1, methods.BasicConsume(queue="q", arguments={"x-stream-offset": "first"}))
    client.desk.settle()
    modes = [read_property(came.header, "delivery_mode") for came in client.heard() if isinstance(came, Content)]
    assert modes == [1, 2]


def test_a_quorum_queue_ignores_exclusive_consumers() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="quorum", single_active_consumer=True))
    for tag in ("a", "b"):
        answer = client.ask(1, methods.BasicConsume(queue="q", consumer_tag=tag, is_exclusive=True))
        assert isinstance(answer, methods.BasicConsumeOk)


def test_the_deletion_of_a_stream_counts_no_messages() -> None:
    client = Desk().client(1)
    client.ask(1, declaration(queue_type="stream"))
    client.publish(1, "q", b"m")
    assert client.ask(1, methods.QueueDelete(queue="q")) == methods.QueueDeleteOk(0)


def test_an_expiration_is_stored_and_returned_as_a_plain_number() -> None:
    client = Desk().client(1)
    client.declare(1, "q")
    header = write_properties(expiration="+05000")
    client.publish(1, "q", b"m", header=header)
    client.publish(1, "nowhere", b"m", header=header, is_mandatory=True)
    client.desk.settle()
    (returned,) = client.heard()
    got = client.ask(1, methods.BasicGet(queue="q"))
    assert [read_property(came.header, "expiration") for came in (got, returned)] == ["5000", "5000"]


def test_a_returned_message_has_no_blind_copies() -> None:
    client = Desk().client(1)
    header = write_properties(headers={"BCC": ["elsewhere"], "h": "x"})
    client.publish(1, "nowhere", b"m", header=header, is_mandatory=True)
    client.desk.settle()
    (returned,) = client.heard()
    assert read_property(returned.header, "headers") == {"h": "x"}


def test_requeued_messages_over_the_limit_are_dropped_before_they_are_delivered_again() -> None:
    desk = Desk()
    client, other = desk.client(1), desk.client(1)
    client.ask(1, declaration(max_length=1))
    client.tell(1, methods.BasicConsume(queue="q"))
    desk.settle()
    client.publish(1, "q", b"a", b"b", b"c")
    desk.settle()
    assert client.bodies() == [b"a", b"b", b"c"]
    other.tell(1, methods.BasicConsume(queue="q"))
    desk.settle()
    other.heard()
    client.ask(1, methods.ChannelClose())
    desk.settle()
    assert other.bodies() == [b"c"]


def test_a_size_beyond_all_limits_ends_the_connection() -> None:
    client = Desk().client(1)
    header = b"\x02\0\1\0\0\0\x0e\0\x3c\0\0" + (1 << 40).to_bytes(8, "big") + b"\0\0\xce"
    client.feed(command(1, methods.BasicPublish(routing_key="q")) + header)
    (closed,) = client.heard()
    text = "FRAME_ERROR - content body size 1099511627776 exceeds maximum allowed size 536870912"
    assert (closed.reply_code, closed.reply_text) == (501, text)


def test_a_flow_ok_is_no_method_for_the_broker() -> None:
    code, text = refused(Desk().client(1), methods.ChannelFlowOk(True))
    assert (code, text) == (503, "COMMAND_INVALID - unimplemented method")


def test_the_address_of_a_direct_reply_has_no_get() -> None:
    client = Desk().client(1, 2)
    client.declare(2, "q")
    client.ask(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
    client.publish(1, "q", b"?", header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    client.desk.settle()
    address = str(read_property(client.ask(2, methods.BasicGet(queue="q")).header, "reply_to"))
    text = f"NOT_IMPLEMENTED - basic.get not supported by volatile queue '{address}' in vhost '/'"
    assert refused(client, methods.BasicGet(queue=address)) == (540, text)
