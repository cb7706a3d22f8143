"""A whole broker in this process: life cycle, clock, crashes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trimq.errors import StartupError, UnknownTopic
from trimq.model import SYSTEM
from trimq.server.embedded import NotQuiet
from trimq.server.node import Node
from trimq.testing import Broker, BrokerFailed


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def bodies(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.body for record in broker.records(topic, partition)]


def place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rpartition(":")
    return host, int(port)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- from start to end ------------------------------------------------------------------------------------------------


def test_a_broker_serves_while_its_block_lasts() -> None:
    with Broker() as broker:
        assert get(f"{broker.http}/readyz") == "ready\n"
        assert broker.addresses == {
            "kafka": broker.kafka,
            "amqp": broker.amqp.removeprefix("amqp://guest:guest@").rstrip("/"),
            "rocketmq": broker.rocketmq,
            "rocketmq_broker": broker.addresses["rocketmq_broker"],
            "rocketmq_grpc": broker.rocketmq_grpc,
            "http": broker.http.removeprefix("http://"),
        }
        url = broker.http
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_nothing_is_left_of_a_broker() -> None:
    with Broker():
        pass  # imports and opens the things that stay
    threads, open_before = threading.enumerate(), descriptors()
    with Broker(on_disk=True) as broker:
        broker.create_topic("orders", 3)
        broker.send("orders", "one")
        get(f"{broker.http}/readyz")
        broker.crash()
        broker.restart()
        folder = broker.folder
        assert folder is not None
        assert (folder / "broker.lock").exists()
    assert threading.enumerate() == threads
    assert descriptors() == open_before
    assert not folder.exists()


def test_nothing_is_left_of_a_broker_whose_test_fails() -> None:
    with Broker():
        pass
    threads, open_before = threading.enumerate(), descriptors()
    with pytest.raises(LookupError), Broker() as broker, socket.create_connection(place(broker.kafka)):
        raise LookupError
    assert threading.enumerate() == threads
    assert descriptors() == open_before


def test_nothing_is_left_of_a_broker_that_cannot_start(tmp_path: Path) -> None:
    with Broker(folder=tmp_path):
        threads, open_before = threading.enumerate(), descriptors()
        with pytest.raises(StartupError, match="is in use by the broker with pid"):
            Broker(folder=tmp_path).start()
    with Broker() as other:
        threads, open_before = threading.enumerate(), descriptors()
        with pytest.raises(StartupError, match="is taken by another program"):
            Broker(http_listen=other.http.removeprefix("http://")).start()
        assert threading.enumerate() == threads
        assert descriptors() == open_before


def test_a_broker_can_be_started_and_closed_by_hand() -> None:
    broker = Broker().start()
    with pytest.raises(RuntimeError, match="started already"):
        broker.start()
    broker.close()
    broker.close()
    with pytest.raises(RuntimeError, match="use `with Broker"):
        broker.advance("1s")
    with broker:  # started anew
        broker.create_topic("orders")


def test_many_brokers_run_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        one.create_topic("orders")
        assert one.kafka != other.kafka
        with pytest.raises(UnknownTopic):
            other.records("orders")


def test_settings_are_keywords() -> None:
    with Broker(kafka_num_partitions=3, http_listen="off") as broker:
        assert broker.on_loop(lambda node: node.core.broker.settings.kafka.num_partitions) == 3
        with pytest.raises(RuntimeError, match="no http listener"):
            _ = broker.http


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="did you mean flush"):
        Broker(flusch="sync")
    with pytest.raises(TypeError, match="either folder= or on_disk=True"):
        Broker(folder="here", on_disk=True)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_records_are_sent_and_read() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, retention_ms=60_000)
        assert broker.send("orders", "first", key="k", headers={"a": b"1", "b": None}) == 0
        assert broker.send("orders", None, headers=[("a", b"1"), ("a", b"2")], timestamp_ms=5) == 1
        assert broker.send("orders", b"other", partition=1) == 0
        first, second = broker.records("orders")
        assert (first.body, first.key, first.headers) == (b"first", b"k", (("a", b"1"), ("b", None)))
        assert first.timestamp_ms == broker.now_ms()
        assert (second.body, second.headers, second.timestamp_ms) == (None, (("a", b"1"), ("a", b"2")), 5)
        assert bodies(broker, "orders", 1) == [b"other"]


def test_a_refusal_is_raised_in_the_test() -> None:
    with Broker() as broker, pytest.raises(UnknownTopic, match="there is no topic orders"):
        broker.send("orders", "lost")


def test_methods_may_be_called_from_many_threads() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        threads = [threading.Thread(target=broker.send, args=("orders", str(number))) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(bodies(broker, "orders")) == sorted(str(number).encode() for number in range(20))


# --- time -------------------------------------------------------------------------------------------------------------


def test_time_begins_now_and_does_not_move() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    with Broker() as broker:
        began = broker.now()
        assert before <= began <= datetime.now(UTC)
        broker.create_topic("orders")
        broker.send("orders", "one")
        assert broker.now() == began
        broker.advance("1h30m")
        assert broker.now() == began + timedelta(hours=1, minutes=30)
        broker.advance(timedelta(seconds=1))
        broker.advance(0.5)
        assert broker.now_ms() == round(began.timestamp() * 1000) + 5_401_500


def test_time_may_begin_at_another_date() -> None:
    noon = datetime(2021, 7, 1, 12, tzinfo=UTC)
    with Broker(now=noon) as broker:
        broker.create_topic("orders")
        broker.send("orders", "x")
        broker.advance("1h")
        assert broker.now() == noon + timedelta(hours=1)
        assert [record.timestamp_ms for record in broker.records("orders")] == [int(noon.timestamp() * 1000)]
    local = datetime(2021, 7, 1, 12)
    with Broker(now=local) as broker:
        assert broker.now() == local.astimezone(UTC)


def test_time_goes_forward_only_and_not_for_ever() -> None:
    with Broker() as broker:
        for wrong in ("yesterday", "-1s", -1):
            with pytest.raises(ValueError, match="is not a duration"):
                broker.advance(wrong)
        with pytest.raises(ValueError, match="after the year 9999"):
            broker.advance("9000000d")


def test_advancing_runs_each_timer_at_its_time_and_durably() -> None:
    seen: list[tuple[int, int, bool]] = []

    def every_hour(node: Node) -> None:
        message = node._platform.clock.message
        stream = node.core.broker.topics.get(SYSTEM, "ticks").streams[0]

        def tick() -> None:
            seen.append((message.now_ms(), stream.durable_end, node.passes.is_idle))
            topic = node.core.broker.topics.get(SYSTEM, "ticks")
            node.core.broker.partitions.append_records(SYSTEM, topic, topic.streams[0], records)
            message.call_at(message.now_ms() + 3_600_000, tick)

        message.call_at(message.now_ms() + 3_600_000, tick)

    with Broker() as broker:
        broker.create_topic("ticks")
        broker.send("ticks", "tick")
        records = broker.records("ticks")
        began_ms = broker.now_ms()
        broker.on_loop(every_hour)
        broker.advance("3h")
        assert seen == [(began_ms + hour * 3_600_000, hour, True) for hour in (1, 2, 3)]
        assert len(broker.records("ticks")) == 4


def test_advancing_lets_old_records_expire() -> None:
    with Broker() as broker:
        broker.create_topic("orders", retention_ms=3_600_000)
        broker.create_topic("kept", retention_ms=-1)
        for topic in ("orders", "kept"):
            broker.send(topic, "old")
        broker.advance("55m")
        assert bodies(broker, "orders") == [b"old"]
        broker.advance("2h")
        assert bodies(broker, "orders") == []
        assert bodies(broker, "kept") == [b"old"]
        assert broker.send("orders", "new") == 1


def test_advancing_syncs_the_unsynced_writes_of_flush_async() -> None:
    with Broker(flush="async", flush_interval_ms=3_600_000) as broker:
        broker.create_topic("orders")
        broker.send("orders", "synced")
        broker.advance("1ms")
        broker.send("orders", "not synced")
        broker.crash()
        broker.restart()
        assert bodies(broker, "orders") == [b"synced"]


def test_liveness_follows_real_time_unless_it_is_advanced() -> None:
    fired: list[str] = []
    with Broker() as broker:

        def schedule(node: Node) -> None:
            clock = node._platform.clock
            clock.liveness.call_at(clock.liveness.now_ms() + 1_800_000, lambda: fired.append("heartbeat missed"))
            clock.message.call_at(clock.message.now_ms() + 7_000_000, lambda: fired.append("message due"))

        broker.on_loop(schedule)
        broker.advance("1h")
        assert fired == []
        broker.advance("1h", liveness=True)
        assert fired == ["heartbeat missed", "message due"]


def test_time_goes_on_where_it_was_after_a_crash() -> None:
    with Broker() as broker:
        broker.advance("2d")
        then = broker.now()
        broker.crash()
        assert broker.now() == then
        broker.restart()
        assert broker.now() == then


# --- crash and restart ------------------------------------------------------------------------------------------------


def test_a_crash_loses_unsynced_data_and_nothing_else() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.send("orders", "acknowledged")

        def append_and_crash(node: Node) -> None:
            topic = node.core.broker.topics.get(SYSTEM, "orders")
            node.core.broker.partitions.append_records(SYSTEM, topic, topic.streams[0], records)
            node.abort()

        records = broker.records("orders")
        broker.on_loop(append_and_crash)
        assert "unsynced data is lost" in broker.crash()
        broker.restart()
        assert bodies(broker, "orders") == [b"acknowledged"]
        assert broker.send("orders", "goes on") == 1


def test_a_crash_on_a_folder_warns_that_it_loses_no_page_cache(tmp_path: Path) -> None:
    with Broker(folder=tmp_path, flush="async", flush_interval_ms=3_600_000) as broker:
        broker.create_topic("orders")
        broker.send("orders", "written, not synced")
        assert "page cache of the machine outlives a process" in broker.crash()
        assert "page cache of the machine outlives a process" in "\n".join(broker.sightings())
        broker.restart()
        assert bodies(broker, "orders") == [b"written, not synced"]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("flush", ["sync", "async", "pooled"])
def test_a_stop_loses_nothing(on_disk: bool, flush: str) -> None:
    intervals = {"flush_interval_ms": 3_600_000, "rocketmq_commit_interval_ms": 3_600_000}
    with Broker(on_disk=on_disk, flush=flush, **intervals) as broker:
        addresses = broker.addresses
        broker.create_topic("orders")
        broker.create_topic("payments", home="commit-log")
        broker.send("orders", "one")
        broker.send("payments", "one")
        broker.stop()
        with pytest.raises(RuntimeError, match=r"call restart\(\) first"):
            broker.send("orders", "two")
        broker.restart()
        broker.restart()  # while it runs
        assert broker.addresses == addresses
        assert bodies(broker, "orders") == bodies(broker, "payments") == [b"one"]
        assert get(f"{broker.http}/readyz") == "ready\n"


def test_a_folder_is_kept_and_opened_by_the_next_broker(tmp_path: Path) -> None:
    with Broker(folder=tmp_path) as broker:
        broker.create_topic("orders")
        broker.send("orders", "one")
    with Broker(folder=tmp_path) as broker:
        assert broker.folder == tmp_path
        assert bodies(broker, "orders") == [b"one"]


def test_connections_end_with_a_crash() -> None:
    with Broker() as broker, socket.create_connection(place(broker.kafka)) as client:
        client.settimeout(10)
        get(f"{broker.http}/readyz")  # by now the connection above is accepted
        broker.crash()
        assert client.recv(1) == b""


def test_a_waiting_caller_is_notified_of_the_crash() -> None:
    heard: list[str] = []
    with Broker() as broker:
        broker.create_topic("orders")
        broker.on_loop(lambda node: setattr(node, "_is_aborted", True))  # its passes are never finished any more

        def send() -> None:
            try:
                broker.send("orders", "never acknowledged")
            except RuntimeError as error:
                heard.append(str(error))

        thread = threading.Thread(target=send)
        thread.start()
        while not broker.on_loop(lambda node: not node.passes.is_idle):
            pass
        broker.crash()
        thread.join(10)
    assert heard == ["the broker ended before it responded"]


# --- failures surface -------------------------------------------------------------------------------------------------


def fail_on_loop(broker: Broker) -> None:
    def fail() -> None:
        raise LookupError("inside the broker")

    async def wait() -> None:
        await asyncio.sleep(0)

    broker.on_loop(lambda node: asyncio.get_running_loop().call_soon(fail))
    broker._call(wait)


def test_an_exception_on_the_brokers_loop_fails_the_test() -> None:
    with pytest.raises(BrokerFailed, match="inside the broker") as caught, Broker() as broker:
        fail_on_loop(broker)
    assert isinstance(caught.value.__cause__, LookupError)


def test_an_exception_is_raised_by_the_next_advance_and_only_once() -> None:
    with Broker() as broker:
        fail_on_loop(broker)
        with pytest.raises(BrokerFailed, match="inside the broker"):
            broker.advance("1s")
        broker.advance("1s")


def test_the_tests_own_failure_comes_first() -> None:
    def fail_twice() -> None:
        with Broker() as broker:
            fail_on_loop(broker)
            raise KeyError

    with pytest.raises(KeyError) as caught:
        fail_twice()
    assert caught.value.__notes__ == ["the broker failed: LookupError('inside the broker')"]


def test_a_request_that_fails_unexpectedly_fails_the_test() -> None:
    def log_failure(node: Node) -> None:
        try:
            raise LookupError("in a handler")
        except LookupError:
            logging.getLogger("trimq.server.connection.session").exception("a request failed unexpectedly")

    with pytest.raises(BrokerFailed, match="in a handler"), Broker() as broker:
        broker.on_loop(log_failure)


def test_a_failed_disk_does_not_hang_callers() -> None:
    broker = Broker().start()
    broker.create_topic("orders")
    broker.on_loop(lambda node: node._fail(OSError("no more room")))
    with pytest.raises(BrokerFailed):
        broker.send("orders", "lost")
    with pytest.raises(BrokerFailed, match="no more room"):
        broker.close()


def test_a_client_that_does_not_read_fails_the_advance_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimq.testing.broker._PATIENCE_S", 0.2)
    with Broker() as broker, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(place(broker.http))
        client.setblocking(False)
        request = b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n"
        sent = True
        while sent:
            try:
                client.send(request * 100)
            except BlockingIOError:
                sent = False
        with pytest.raises(NotQuiet, match="a client of http does not read its responses"):
            broker.advance("1s")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda broker: broker.send(3, 4), "topic must be str, not int: 3"),
        (lambda broker: broker.send("orders", 4), "body must be bytes or str or None, not int: 4"),
        (lambda broker: broker.send("orders", "x", 5.0), "key must be bytes or str or None, not float: 5.0"),
        (lambda broker: broker.records(None), "topic must be str, not NoneType: None"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_at_the_call(call: Callable[[Broker], object], message: str) -> None:
    with Broker() as broker, pytest.raises(TypeError) as mistake:
        call(broker)
    assert str(mistake.value) == message
