"""Reserved ports."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from trimq.testing.keywords import settings_from
from trimq.testing.ports import ReservedPorts


@pytest.fixture
def ports() -> Iterator[ReservedPorts]:
    ports = ReservedPorts()
    yield ports
    ports.release()


def test_listeners_get_ports_of_their_own(ports: ReservedPorts) -> None:
    settings = ports.choose(settings_from({}))
    rocketmq = settings.rocketmq
    addresses = [settings.kafka.listen, settings.amqp.listen, settings.http.listen]
    addresses += [rocketmq.listen, rocketmq.broker_listen, rocketmq.grpc_listen]
    ports_found = {address.port for address in addresses if address is not None}
    assert len(ports_found - {0}) == len(addresses)


def test_a_port_that_was_asked_for_and_one_that_is_off_stay_so(ports: ReservedPorts) -> None:
    settings = ports.choose(settings_from({"kafka_listen": "127.0.0.1:4711", "http_listen": "off"}))
    assert str(settings.kafka.listen) == "127.0.0.1:4711"
    assert settings.http.listen is None


def test_the_broker_can_listen_on_a_held_port_again_and_again(ports: ReservedPorts) -> None:
    address = ports.choose(settings_from({})).kafka.listen
    assert address is not None
    for _ in range(2):
        with socket.create_server(tuple(address)) as server, socket.create_connection(tuple(address)) as client:
            accepted, _ = server.accept()
            accepted.close()  # closed on this side, so that the port stays in TIME_WAIT
            assert client.recv(1) == b""


def test_a_held_port_does_not_answer(ports: ReservedPorts) -> None:
    address = ports.choose(settings_from({})).kafka.listen
    assert address is not None
    with socket.socket() as client:
        assert client.connect_ex(tuple(address)) == errno.ECONNREFUSED


def test_a_held_port_is_not_given_to_another_process(ports: ReservedPorts) -> None:
    address = ports.choose(settings_from({})).kafka.listen
    assert address is not None
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(tuple(address))
