"""Any methods, in any order, on any channels: replies or a protocol error, never another exception, and the broker
serves the next client as usual."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from protocols.amqp.desk import Desk
from protocols.amqp.strategies import examples, unsigned
from protocols.amqp.wires import command, publish

from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods

# Few names, so that many requests refer to existing queues and exchanges.
NAMES = st.sampled_from(["", "q", "r", "e", "amq.topic", "amq.rabbitmq.reply-to", "#.a"])
ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["x-max-length", "x-message-ttl", "x-dead-letter-exchange", "x-queue-type", "x-priority", "x-match"]
    ),
    st.sampled_from([0, 1, -1, "e", "q", "quorum", "stream", "any", None, True]),
    max_size=2,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "Octet": unsigned(8),
    "Short": st.sampled_from([0, 1, 65535]),
    "Long": st.sampled_from([0, 0, 0, 1]),
    "LongLong": st.sampled_from([0, 1, 2, 3, 2**63]),
    "Bit": st.booleans(),
    "ShortString": NAMES,
    "AnyString": NAMES | st.just("\udcff"),  # a byte that is not UTF-8
    "LongString": st.just(b""),
    "Arguments": ARGUMENTS,
}
TYPES = st.sampled_from(["direct", "topic", "fanout", "headers", "x-nope"])


def any_of(kind: type[methods.Method]) -> st.SearchStrategy[methods.Method]:
    fields = {name: FIELDS[kind.__annotations__[name]] for name in kind.__struct_fields__}
    if "type" in fields:
        fields["type"] = TYPES
    return st.fixed_dictionaries(fields).map(lambda found: kind(**found))


OPENING = (methods.ConnectionStartOk, methods.ConnectionTuneOk, methods.ConnectionOpen)
USUAL = [
    kind
    for kind in methods.METHODS.values()
    if kind.NAME.split(".")[0] in ("exchange", "queue", "basic", "tx", "confirm") and not kind.NAME.endswith("-ok")
]
channels = st.sampled_from([1, 2])
commands = st.builds(command, channels, st.sampled_from(USUAL).flatmap(any_of))
openings = st.builds(command, channels, st.just(methods.ChannelOpen()))
endings = st.builds(command, channels, st.sampled_from([methods.ChannelCloseOk(), methods.ChannelClose()]))
rarities = st.builds(command, st.sampled_from([0, 1]), st.sampled_from(list(methods.METHODS.values())).flatmap(any_of))
publishes = st.builds(
    lambda channel, exchange, key, mandatory, header, body: publish(
        channel, methods.BasicPublish(0, exchange, key, mandatory), body, header
    ),
    channels,
    st.sampled_from(["", "e", "amq.topic"]),
    NAMES,
    st.booleans(),
    st.sampled_from([b"\0\0", write_properties(delivery_mode=2), write_properties(reply_to="amq.rabbitmq.reply-to")]),
    st.binary(max_size=10),
)
steps = st.one_of(commands, commands, commands, publishes, publishes, openings, endings, rarities, st.none())


@examples(150)
@given(st.lists(steps, max_size=25), st.booleans())
def test_the_broker_survives_any_conversation(steps_taken: list[bytes | None], closes_cleanly: bool) -> None:
    desk = Desk()
    client = desk.client(1, 2)
    for words in steps_taken:
        if words is None:
            desk.settle()
        elif not client.is_closed:
            client.feed(words)
    desk.settle()
    if closes_cleanly and not client.is_closed and not client.is_held:
        client.tell(0, methods.ConnectionClose(200, "bye"))
    client.lose()
    desk.settle()
    other = desk.client(1)
    other.ask(1, methods.QueueDeclare(queue="fresh", is_exclusive=True))
    other.publish(1, "fresh", b"still here")
    assert other.ask(1, methods.BasicGet(queue="fresh", no_ack=True)).body == b"still here"
