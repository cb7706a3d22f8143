"""The start-up banner."""

from __future__ import annotations

import os

from trimq.cli.banner import compose_banner
from trimq.config import Advertised, Kafka, RocketMQ, Settings, Tls


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


OPEN = {"kafka": "0.0.0.0:9092", "amqp": "0.0.0.0:5672", "rocketmq": "0.0.0.0:9876", "http": "0.0.0.0:8180"}


def test_it_shows_the_addresses_that_are_advertised() -> None:
    settings = Settings(
        kafka=Kafka(advertise=Advertised("kafka.example.com", 19092)),
        rocketmq=RocketMQ(advertise=Advertised("mq.example.com")),
    )
    banner = compose_banner(settings, OPEN, 0.1)
    assert "bootstrap.servers=kafka.example.com:19092" in banner
    assert "namesrvAddr=mq.example.com:9876" in banner
    assert "0.0.0.0" not in banner


def test_without_an_advertised_address_it_shows_the_name_of_the_machine() -> None:
    banner = compose_banner(Settings(), {"http": "0.0.0.0:8180", "amqp": "[::]:5672"}, 0.1)
    assert f"http://{os.uname().nodename}:8180" in banner
    assert f"amqp://{os.uname().nodename}:5672/" in banner


def test_guest_is_offered_only_where_it_may_log_in() -> None:
    assert "guest:guest@" in compose_banner(Settings(), {"amqp": "127.0.0.1:5672"}, 0.1)
    assert "guest:guest@" in compose_banner(Settings(), {"amqp": "[::1]:5672"}, 0.1)
    assert "needs a user" in compose_banner(Settings(), {"amqp": "0.0.0.0:5672"}, 0.1)
    with_users = compose_banner(Settings(), {"amqp": "127.0.0.1:5672"}, 0.1, has_users=True)
    assert "guest" not in with_users
    assert "amqp://127.0.0.1:5672/  log in as one of the users" in with_users
    assert "guest:guest@" not in compose_banner(Settings(), {"amqp": "0.0.0.0:5672"}, 0.1)


def test_it_warns_where_everybody_may_do_everything() -> None:
    banner = compose_banner(Settings(), OPEN, 0.1)
    assert "WARNING: open to the network, and no user is defined: kafka, rocketmq, http." in banner
    assert "\x1b" not in banner
    assert "\x1b[31mWARNING" in compose_banner(Settings(), OPEN, 0.1, is_colored=True)
    assert "WARNING" not in compose_banner(Settings(), OPEN, 0.1, has_users=True)
    assert "WARNING" not in compose_banner(Settings(), {"kafka": "127.0.0.1:9092", "http": "localhost:1"}, 0.1)
    # without users, AMQP accepts clients of this machine only
    assert "WARNING" not in compose_banner(Settings(), {"amqp": "0.0.0.0:5672"}, 0.1)


def test_grpc_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    missing = ["rocketmq.grpc_listen"]
    addresses = {"rocketmq": "127.0.0.1:9876"}
    assert 'pip install "trimq[grpc]"' in compose_banner(Settings(), addresses, 0.1, missing=missing)
    assert "trimq[grpc]" not in compose_banner(Settings(), addresses, 0.1)
    assert "trimq[grpc]" not in compose_banner(Settings(), {"kafka": "127.0.0.1:9092"}, 0.1, missing=missing)


def test_where_tls_is_required_the_addresses_say_so() -> None:
    settings = Settings(tls=Tls(mode="required"))
    banner = compose_banner(settings, {"amqp": "127.0.0.1:5672", "http": "127.0.0.1:8180"}, 0.1)
    assert "https://127.0.0.1:8180" in banner
    assert "amqps://guest:guest@127.0.0.1:5672/" in banner
