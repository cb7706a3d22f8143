"""Every refusal of the broker's API has a gRPC status, for all protocols' refusals."""

from __future__ import annotations

import inspect

import pytest

import trimq.errors
from trimq.errors import Refusal
from trimq.errors.groups import GroupOfOtherProtocol
from trimq.protocols.rocketmq.grpc.wire.codes import CODES, GrpcRefusal, code_of
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.wire import codes as remoting


def test_every_shared_refusal_has_a_status() -> None:
    members = inspect.getmembers(trimq.errors, inspect.isclass)
    refusals = {found for _, found in members if issubclass(found, Refusal) and found is not Refusal}
    assert CODES.keys() == refusals | {GroupOfOtherProtocol}


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (GrpcRefusal(Code.ILLEGAL_TOPIC, "no"), Code.ILLEGAL_TOPIC),
        (remoting.RemotingRefusal(remoting.ResponseCode.NO_PERMISSION, "no"), Code.FORBIDDEN),
        (remoting.RemotingRefusal(remoting.ResponseCode.SYSTEM_ERROR, "no"), Code.INTERNAL_SERVER_ERROR),
        (trimq.errors.UnknownTopic("t"), Code.TOPIC_NOT_FOUND),
    ],
)
def test_a_refusal_has_its_grpc_status_and_text(refusal: Refusal, code: Code) -> None:
    assert code_of(refusal) is code
