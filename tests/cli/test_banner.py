"""The start-up banner."""

from __future__ import annotations

from trimq.cli.banner import compose_banner
from trimq.config import Settings


def test_it_shows_how_to_connect_with_each_protocol_that_listens() -> None:
    addresses = {"pid": "42", "kafka": "127.0.0.1:9092", "amqp": "127.0.0.1:5672", "http": "127.0.0.1:8180"}
    banner = compose_banner(Settings(), addresses, 0.314)
    assert "is ready after 0.31 s, process 42." in banner
    assert "bootstrap.servers=127.0.0.1:9092" in banner
    assert "RabbitMQ  amqp://guest:guest@127.0.0.1:5672/" in banner
    assert "http://127.0.0.1:8180" in banner


def test_it_shows_where_the_data_is_and_how_it_is_flushed() -> None:
    banner = compose_banner(Settings(data_dir="/var/lib/broker"), {}, 0.1)
    assert "/var/lib/broker  (flush sync)" in banner
    assert "flush async, every 50 ms" in compose_banner(Settings(flush="async", flush_interval_ms=50), {}, 0.1)


def test_a_protocol_that_does_not_listen_is_not_shown() -> None:
    assert "Kafka" not in compose_banner(Settings(), {"http": "127.0.0.1:8180"}, 0.1)


def test_an_unknown_listener_is_shown_with_its_address() -> None:
    assert "other     127.0.0.1:1" in compose_banner(Settings(), {"other": "127.0.0.1:1"}, 0.1)
