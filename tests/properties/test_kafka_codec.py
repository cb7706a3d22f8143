"""Round trips of the Kafka codec, compared with two other implementations, in every API and version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka import kafka_python_oracle, kio_oracle
from protocols.kafka.strategies import comparable, examples, restricted, structs, versions_of

from trimq.protocols.kafka.messages.schema import Message
from trimq.protocols.kafka.wire.apis import APIS, request_class, response_class
from trimq.protocols.kafka.wire.codec import decode, encode


# One test per API, not one per oracle: generating a message costs more than all checks of it.
@pytest.mark.parametrize("api_key", APIS, ids=lambda key: APIS[key].name)
@examples(4)
@given(data=st.data())
def test_every_version_is_encoded_and_decoded_as_by_others(api_key: int, data: st.DataObject) -> None:
    for kind in (request_class(api_key), response_class(api_key)):
        value = data.draw(structs(kind))
        for version in versions_of(kind):
            message = restricted(value, version)
            assert comparable(decode(kind, version, encode(message, version))) == comparable(message), version
            if version in kio_oracle.versions_of(kind):
                agrees_with_kio(message, version)
            if version in kafka_python_oracle.versions_of(kind):
                agrees_with_kafka_python(message, version)


def agrees_with_kio(message: Message, version: int) -> None:
    theirs = kio_oracle.from_ours(message, version)
    assert kio_oracle.decode(type(message), version, encode(message, version)) == theirs, version
    assert comparable(decode(type(message), version, kio_oracle.encode(theirs))) == comparable(message), version


def agrees_with_kafka_python(message: Message, version: int) -> None:
    kind = type(message)
    theirs = kafka_python_oracle.from_ours(message, version)
    assert comparable(decode(kind, version, kafka_python_oracle.encode(theirs))) == comparable(message), version
    if kafka_python_oracle.reads_as_another_version(message):
        return
    read = kafka_python_oracle.decode(kind, version, encode(message, version))
    expected = kafka_python_oracle.plain(theirs, kind, version)
    assert kafka_python_oracle.plain(read, kind, version) == expected, version


def test_the_oracles_cover_the_expected_apis() -> None:
    kinds = [kind for key in APIS for kind in (request_class(key), response_class(key))]
    assert [kind.__name__ for kind in kinds if list(versions_of(kind)) != kio_oracle.versions_of(kind)] == []
    unknown = {kind.__name__ for kind in kinds if not kafka_python_oracle.versions_of(kind)}
    assert unknown == {
        "ConsumerGroupHeartbeatRequest",
        "ConsumerGroupHeartbeatResponse",
        "ConsumerGroupDescribeRequest",
        "ConsumerGroupDescribeResponse",
    }
