"""The pytest plugin, in separate runs of pytest."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2]
PLUGIN = "trimq.testing.plugin"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """pytest runs with this plugin and no other, whether or not it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    return pytester


def run_test(run: pytest.Pytester, source: str) -> pytest.RunResult:
    run.makepyfile(source)
    return run.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider")


def test_the_plugin_is_declared_for_pytest_to_find() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"trimq": PLUGIN}
    assert import_module(PLUGIN)


def test_the_fixtures_give_brokers(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        import threading

        def test_one(trimq_broker):
            trimq_broker.create_topic("orders")
            assert trimq_broker.send("orders", "one") == 0

        def test_many(trimq_broker_factory):
            wide, narrow = trimq_broker_factory(kafka_num_partitions=3), trimq_broker_factory()
            assert wide.kafka != narrow.kafka

        def test_none_is_left():
            assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
        """,
    )
    result.assert_outcomes(passed=3)
    assert "what the broker" not in result.stdout.str()


def test_a_failing_test_prints_the_requests_that_the_broker_recorded(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        import urllib.error, urllib.request

        def test_it(trimq_broker):
            trimq_broker.create_topic("orders", partitions=2)
            try:
                urllib.request.urlopen(trimq_broker.http + "/api/topics/gone")
            except urllib.error.HTTPError as error:
                error.close()
            assert False
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*events of the broker at kafka 127.0.0.1:*, http 127.0.0.1:*, oldest first*",
            "*started: kafka 127.0.0.1:*",
            "*topic orders was created with 2 streams",
            "*http 127.0.0.1:*: connected",
            "*GET /api/topics/gone -> 404",
        ]
    )


def test_a_refusal_to_a_kafka_client_is_named(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        from confluent_kafka import KafkaException, Producer

        def test_it(trimq_broker_factory):
            broker = trimq_broker_factory(kafka_auto_create_topics=False)
            producer = Producer({"bootstrap.servers": broker.kafka, "message.timeout.ms": 500, "log_level": 0})
            producer.produce("gone", b"lost")
            assert producer.flush(10) == 0
            assert broker.records("gone")
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: Metadata v* by rdkafka -> gone UNKNOWN_TOPIC_OR_PARTITION*"])


def test_brokers_that_the_test_made_itself_are_reported_too(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        from trimq.testing import Broker

        def test_before():
            with Broker() as broker:
                broker.create_topic("of-an-earlier-test")

        def test_it():
            with Broker() as broker:
                broker.create_topic("inside")
            with Broker() as broker:
                broker.create_topic("also-inside")
                assert False
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*topic inside was created*", "*topic also-inside was created*"])
    result.stdout.no_fnmatch_line("*of-an-earlier-test*")


def test_a_failure_inside_the_broker_is_an_error_of_the_test(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        import asyncio

        def fail():
            raise LookupError("inside the broker")

        def test_it(trimq_broker):
            trimq_broker.on_loop(lambda node: asyncio.get_running_loop().call_soon(fail))
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*BrokerFailed: the broker failed: LookupError('inside the broker')*"])
    result.stdout.fnmatch_lines(["*FAILED: LookupError('inside the broker')*"])


def test_a_broker_that_cannot_start_is_an_error_of_the_test(run: pytest.Pytester) -> None:
    result = run_test(run, "def test_it(trimq_broker_factory): trimq_broker_factory(flush='never')\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*StartupError: flush: expected sync, async or pooled, got 'never'*"])


def test_the_plugin_alone_imports_nothing_of_the_broker(run: pytest.Pytester) -> None:
    result = run_test(
        run,
        """
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.split(".")[0] == "trimq"}
            assert ours == {"trimq", "trimq.testing", "trimq.testing.plugin"}
            assert "asyncio" not in sys.modules or "trimq.clock" not in sys.modules
        """,
    )
    result.assert_outcomes(passed=1)
