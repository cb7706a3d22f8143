"""Login and tuning: accepted client values, and values that close the connection."""

from __future__ import annotations

import pytest

from trimq.formats.amqp_content.field_tables import write_table
from trimq.protocols.amqp.methods import ConnectionTune, ConnectionTuneOk
from trimq.protocols.amqp.wire.codes import SilentClose
from trimq.protocols.amqp.wire.handshake import (
    CAPABILITIES,
    check_tuning,
    has_capability,
    read_login,
    server_properties,
)

AMQPLAIN = write_table({"LOGIN": "alice", "PASSWORD": "secret"})[4:]


@pytest.mark.parametrize(("mechanism", "response"), [("PLAIN", b"\0alice\0secret"), ("AMQPLAIN", AMQPLAIN)])
def test_a_login_is_read(mechanism: str, response: bytes) -> None:
    assert read_login(mechanism, response) == ("alice", "secret")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"alice\0secret"),
        ("PLAIN", b"\0a\0b\0c"),
        ("PLAIN", b""),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", AMQPLAIN[:-1]),
        ("AMQPLAIN", b"\x05"),
        ("AMQPLAIN", write_table({"LOGIN": "alice"})[4:]),
        ("AMQPLAIN", write_table({"LOGIN": 1, "PASSWORD": "x"})[4:]),
        ("NOPE", b"\0alice\0secret"),
    ],
)
def test_an_invalid_answer_drops_the_connection(mechanism: str, response: bytes) -> None:
    with pytest.raises(SilentClose):
        read_login(mechanism, response)


OFFER = ConnectionTune(2047, 131_072, 60)


@pytest.mark.parametrize("chosen", [(2047, 131_072, 60), (1, 4096, 0), (2047, 8192, 65535)])
def test_a_client_may_ask_for_less(chosen: tuple[int, int, int]) -> None:
    check_tuning(OFFER, ConnectionTuneOk(*chosen))


@pytest.mark.parametrize("chosen", [(0, 131_072, 0), (65535, 131_072, 0), (9, 0, 0), (9, 131_073, 0), (9, 4095, 0)])
def test_a_client_that_asks_for_more_is_dropped(chosen: tuple[int, int, int]) -> None:
    with pytest.raises(SilentClose):
        check_tuning(OFFER, ConnectionTuneOk(*chosen))


def test_where_no_limit_is_offered_none_is_taken() -> None:
    check_tuning(ConnectionTune(0, 131_072, 0), ConnectionTuneOk(0, 131_072, 0))


def test_the_server_properties_have_the_capabilities_that_clients_need() -> None:
    properties = server_properties("cluster")
    assert properties["product"] == "RabbitMQ"
    assert str(properties["version"]).startswith("4.")
    assert all(has_capability(properties, name) for name in CAPABILITIES)
    assert not has_capability({}, "basic.nack")
    assert not has_capability({"capabilities": {"basic.nack": 1}}, "basic.nack")
