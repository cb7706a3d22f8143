"""ApiVersions: the announced versions are the served ones."""

from __future__ import annotations

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.frames import framed

from trimq.errors import ProtocolError
from trimq.protocols.kafka.handlers import HANDLERS
from trimq.protocols.kafka.messages.handshakes import ApiVersionsRequest, ApiVersionsResponse
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import APIS

SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def answer(desk: Desk, frame: bytes, version: int) -> ApiVersionsResponse:
    desk._receive(frame)
    event = desk._conversation.next_event()
    assert event is not None
    reply = desk._conversation.handle(event)
    assert reply is not None
    return codec.decode(ApiVersionsResponse, version, b"".join(reply.take()), 8)


def header(key: int, version: int) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7" + b"\xff\xff"


@pytest.mark.parametrize("version", range(5))
def test_every_version_announces_the_same(desk: Desk, version: int) -> None:
    body = codec.encode(ApiVersionsRequest(**SOFTWARE), version)
    response = answer(desk, framed(header(18, version) + (b"\0" if version >= 3 else b"") + body), version)
    assert response.error_code == Code.NONE
    assert [row.api_key for row in response.api_keys] == sorted(HANDLERS)
    for row in response.api_keys:
        assert row.max_version == APIS[row.api_key].max_version
        assert row.min_version == (0 if row.api_key == 0 else APIS[row.api_key].min_version)


@pytest.mark.parametrize("version", [3, 4])
def test_the_second_version_of_transactions_is_finalized(desk: Desk, version: int) -> None:
    body = codec.encode(ApiVersionsRequest(**SOFTWARE), version)
    response = answer(desk, framed(header(18, version) + b"\0" + body), version)
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    assert finalized == {"group.version": (1, 1), "metadata.version": (30, 30), "transaction.version": (2, 2)}
    assert response.finalized_features_epoch >= 0
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    # In version 3 Kafka omits features with a minimum of 0.
    everything = {"group.version": (0, 1), "metadata.version": (7, 30), "transaction.version": (0, 2)}
    assert supported == ({"metadata.version": (7, 30)} if version == 3 else everything)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_is_answered_with_the_supported_ones(desk: Desk, version: int) -> None:
    response = answer(desk, framed(header(18, version) + b"\0"), 0)
    assert response.error_code == Code.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", ".a", "ä", "a_b"])
def test_a_client_with_an_invalid_name_is_refused(desk: Desk, name: str) -> None:
    body = codec.encode(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    response = answer(desk, framed(header(18, 3) + b"\0" + body), 3)
    assert (response.error_code, response.api_keys) == (Code.INVALID_REQUEST, [])


def test_a_known_but_unserved_api_closes_the_connection_with_its_name(desk: Desk) -> None:
    unserved = next((key for key in APIS if key not in HANDLERS), None)
    if unserved is None:
        return
    desk._receive(framed(header(unserved, APIS[unserved].max_version) + b"\0" * 20))
    event = desk._conversation.next_event()
    with pytest.raises(ProtocolError, match=f"^{APIS[unserved].name} is not served$"):
        desk._conversation.handle(event)
