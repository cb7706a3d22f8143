"""The protobuf messages equal those of the client package, field by field, and both can be loaded in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from rocketmq.grpc_protocol import definition_pb2, service_pb2

from trimq.protocols.rocketmq.grpc.front_end import GrpcFrontEnd
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.declaration import PACKAGE, SERVICE
from trimq.protocols.rocketmq.grpc.wire.enums import Code

Field = tuple[str, int, int, int, str, str, bool]


def described(module: Any) -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


OURS = wire.describe()
THEIRS = [described(module) for module in (definition_pb2, service_pb2)]
OUR_MESSAGES = {message.name: message for message in OURS.message_type}
THEIR_MESSAGES = {message.name: message for file in THEIRS for message in file.message_type}


def fields_of(message: Any) -> Iterator[Field]:
    for field in message.field:
        choice = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        yield field.name, field.number, field.type, field.label, field.type_name, choice, field.proto3_optional


def enumerations_of(owner: Any) -> dict[str, list[tuple[str, int]]]:
    return {each.name: [(value.name, value.number) for value in each.value] for each in owner.enum_type}


def test_there_are_the_same_messages_in_the_same_package() -> None:
    assert OUR_MESSAGES.keys() == THEIR_MESSAGES.keys()
    assert {file.package for file in THEIRS} == {PACKAGE}


@pytest.mark.parametrize("name", THEIR_MESSAGES)
def test_a_message_has_the_fields_that_clients_know(name: str) -> None:
    ours, theirs = OUR_MESSAGES[name], THEIR_MESSAGES[name]
    assert list(fields_of(ours)) == list(fields_of(theirs))
    assert enumerations_of(ours) == enumerations_of(theirs)
    assert [(inner.name, list(fields_of(inner)), inner.options.map_entry) for inner in ours.nested_type] == [
        (inner.name, list(fields_of(inner)), inner.options.map_entry) for inner in theirs.nested_type
    ]


def test_enumerations_have_the_same_values() -> None:
    assert enumerations_of(OURS) == {name: values for file in THEIRS for name, values in enumerations_of(file).items()}


def test_methods_are_streamed_as_clients_expect() -> None:
    (service,) = THEIRS[1].service
    kinds = {method.name: (method.client_streaming, method.server_streaming) for method in service.method}
    assert service.name == SERVICE
    for name in GrpcFrontEnd.calls:
        assert kinds[name] == (False, name in GrpcFrontEnd.server_streaming_calls)
    assert [kinds[name] for name in GrpcFrontEnd.streams] == [(True, True)]


def test_each_implementation_reads_the_bytes_of_the_other() -> None:
    ours = wire.SendMessageResponse(status=wire.Status(code=Code.OK, message="OK"))
    ours.entries.add(message_id="M", offset=7)
    theirs = service_pb2.SendMessageResponse.FromString(ours.SerializeToString())
    assert (theirs.status.code, theirs.entries[0].message_id, theirs.entries[0].offset) == (20000, "M", 7)
    assert type(theirs) is not type(ours)


def test_a_message_that_is_not_declared_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no message is called Nothing"):
        wire.Nothing  # noqa: B018
