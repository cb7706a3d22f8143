"""Sends the steps of a sequence to one Kafka broker.

Arguments of a step are the fields of the request, its `version`, and `save`, a name for the ids in the answer. In
strings, `%` is the unique part of names. `{"$": "x0.epoch", "plus": 1, "default": -1}` is a saved value, `{"batches":
[...]}` are records, `{"subscription": [...], "owned": {...}, "format": 1}` and `{"assigned": {...}}` are what consumers
of classic groups send. `cut` removes bytes from the end of a batch or subscription."""

from __future__ import annotations

import gzip
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from differential.kafka_answers import Normaliser
from differential.kafka_codec import kwire
from differential.sequences import Step

_ANSWER_S = 4.0
# A request that waits for other members has no answer after this time.
_BLOCKED_S = 0.6
_SETTLED_S = 3.0
_UNKNOWN_ID = "5f" * 16
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_BLOCKING = ("JoinGroup", "SyncGroup")
_CHANGES = (
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterClientQuotas",
    "AlterUserScramCredentials",
)
# The coordinator is loading or moving, or the markers of the last transaction are being written.
_BUSY = {14, 15, 16, 51}
_NOT_READY = {3, 5}


class Connection(kwire.Conn):  # type: ignore[misc]
    """A connection to the broker at an address; its requests carry one client id."""

    def __init__(self, address: tuple[str, int], client: str) -> None:
        self.s = socket.create_connection(address, _ANSWER_S)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.t, self.corr, self.want = _ANSWER_S, 0, {}
        self.client = client

    def send(self, api: str, ver: int, **fields: Any) -> int:
        return int(super().send(api, ver, client=self.client, **fields))


class KafkaDriver:
    """`is_delayed`: the broker answers a change before all of its parts have seen it, so the driver waits for them."""

    def __init__(self, address: tuple[str, int], is_delayed: bool) -> None:
        self.address = address
        self.control = Connection(address, "control")
        self._runs = 0
        self._is_delayed = is_delayed
        self._changes = 0
        self._sentinel = f"sentinel-{secrets.token_hex(4)}"
        self._warm_up()

    def close(self) -> None:
        self.control.close()

    def run(self, steps: Sequence[Step]) -> list[Any]:
        self._runs += 1
        run = _Run(self, f"{kwire.RUN}-{self._runs}-")
        try:
            return [run.answer(step) for step in steps]
        finally:
            run.close()

    def settle(self) -> None:
        """Returns when every part of the broker has seen the changes made so far. Kafka's parts see one change after
        the other, and the list of settings is the first of them: the second change of a setting is visible there only
        after all parts have seen the first one."""
        if not self._is_delayed:
            return
        for _ in range(2):
            self._changes += 1
            value = str(1_000_000_000 + self._changes)
            change = {"name": "retention.ms", "config_operation": 0, "value": value}
            resource = {"resource_type": 2, "resource_name": self._sentinel}
            self.control.call("IncrementalAlterConfigs", 1, resources=[{**resource, "configs": [change]}])
            wanted = {**resource, "configuration_keys": ["retention.ms"]}

            def is_visible(wanted: dict[str, Any] = wanted, value: str = value) -> bool:
                results = self.control.call("DescribeConfigs", 4, resources=[wanted])["results"]
                return bool(results[0]["configs"] and results[0]["configs"][0]["value"] == value)

            _until(is_visible)

    def settle_transaction(self, transactional_id: str) -> None:
        """Returns when the markers of the transaction are written."""

        def is_decided() -> bool:
            described = self.control.call("DescribeTransactions", 0, transactional_ids=[transactional_id])
            return not described["transaction_states"][0]["transaction_state"].startswith("Prepare")

        if self._is_delayed:
            _until(is_decided)

    def _warm_up(self) -> None:
        """Creates the topic that `settle` changes, and Kafka's internal topics; waits until each of their partitions
        has a coordinator."""
        topic = {"name": self._sentinel, "num_partitions": 1, "replication_factor": 1}
        self.control.call("CreateTopics", 7, topics=[topic], timeout_ms=10_000)
        for number in range(24):
            name = f"warm-{self._sentinel}-{number}"
            self._until_free("FindCoordinator", 2, key=name, key_type=0)
            self._until_free("FindCoordinator", 2, key=name, key_type=1)
            self._until_free("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=1000)
            offset = {"partition_index": 0, "committed_offset": 0}
            self._until_free(
                "OffsetCommit", 7, group_id=name, topics=[{"name": self._sentinel, "partitions": [offset]}]
            )
        self.settle()

    def _until_free(self, api: str, version: int, **fields: Any) -> None:
        _until(lambda: not _codes(self.control.call(api, version, **fields)) & (_BUSY | _NOT_READY), 60)


def _until(is_done: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not is_done() and time.monotonic() < until:
        time.sleep(0.002)


def _codes(answer: Any) -> set[int]:
    return set(_find(answer, lambda key: key.endswith("error_code")))


def _find(value: Any, wanted: Callable[[str], bool]) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, each in value.items():
            if wanted(key) and not isinstance(each, (dict, list)):
                yield each
            else:
                yield from _find(each, wanted)
    elif isinstance(value, list):
        for each in value:
            yield from _find(each, wanted)


class _Run:
    """Connections, saved values and names of one sequence."""

    def __init__(self, driver: KafkaDriver, prefix: str) -> None:
        self._driver = driver
        self._prefix = prefix
        self._connections: dict[int, Connection] = {}
        self._blocked: dict[int, Step] = {}
        self._saved: dict[str, Any] = {}
        self._names: set[str] = set()
        self._normaliser = Normaliser(prefix)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        everything = self._driver.control.call("Metadata", 12, topics=None)["topics"]
        mine = [{"name": each["name"]} for each in everything if (each["name"] or "").startswith(self._prefix)]
        if mine:
            self._driver.control.call("DeleteTopics", 6, topics=mine, timeout_ms=10_000)

    def answer(self, step: Step) -> Any:
        late = self._late(step.connection)
        fields = {key: self._resolve(each) for key, each in step.arguments.items() if key not in ("version", "save")}
        version = step.arguments["version"]
        self._names.update(each for each in _find(fields, lambda key: True) if isinstance(each, str))
        try:
            connection = self._connection(step.connection)
            if step.request == "Produce" and fields["acks"] == 0:
                return self._unanswered(connection, version, fields)
            decoded = self._exchange(connection, step, version, fields)
        except (kwire.Closed, kwire.Silent) as reason:
            self._connections.pop(step.connection).close()
            self._settle(step, fields)
            return _with_late(str(reason), late)
        except kwire.Short as reason:
            self._connections.pop(step.connection).close()
            return _with_late(f"undecodable answer: {reason}", late)
        if decoded is None:
            self._blocked[step.connection] = step
            return _with_late("blocked", late)
        self._settle(step, fields)
        return _with_late(self._normalised(step, decoded), late)

    def _connection(self, number: int) -> Connection:
        if number not in self._connections:
            self._connections[number] = Connection(self._driver.address, f"{self._prefix}c{number}")
        return self._connections[number]

    def _exchange(self, connection: Connection, step: Step, version: int, fields: dict[str, Any]) -> Any:
        until = time.monotonic() + _SETTLED_S
        retried = _retried_codes(step)
        while True:
            connection.send(step.request, version, **fields)
            try:
                decoded = connection.recv(_BLOCKED_S if _may_block(step) else _ANSWER_S)
            except kwire.Silent:
                if _may_block(step):
                    return None
                raise
            if not _codes(decoded) & retried or time.monotonic() > until:
                return decoded
            time.sleep(0.01)

    def _unanswered(self, connection: Connection, version: int, fields: dict[str, Any]) -> Any:
        """A produce request with acks 0 has no answer; the next request shows that the broker has finished with it."""
        connection.send("Produce", version, **fields)
        connection.want.popitem()
        connection.call("ApiVersions", 0)
        return "no answer"

    def _late(self, number: int) -> Any:
        """Answer to the request of this connection that waited for other members."""
        step = self._blocked.pop(number, None)
        if step is None:
            return None
        try:
            return self._normalised(step, self._connections[number].recv(_BLOCKED_S))
        except (kwire.Closed, kwire.Silent, kwire.Short) as reason:
            self._connections.pop(number).close()
            return str(reason)

    def _settle(self, step: Step, fields: dict[str, Any]) -> None:
        if step.request in _CHANGES or _creates(step):
            self._driver.settle()
            self._learn_topics()
        elif step.request in ("InitProducerId", "EndTxn") and fields.get("transactional_id"):
            self._driver.settle_transaction(fields["transactional_id"])

    def _learn_topics(self) -> None:
        names = sorted(each for each in self._names if each.startswith(self._prefix)) + list(_INTERNAL_TOPICS)
        asked = [{"name": name, "topic_id": bytes(16)} for name in names]
        for topic in self._driver.control.call("Metadata", 12, topics=asked, allow_auto_topic_creation=False)["topics"]:
            if topic["error_code"] == 0:
                self._saved[f"topic.{topic['name'].removeprefix(self._prefix)}"] = topic["topic_id"]
                self._normaliser.learn_topic(topic["name"], topic["topic_id"])

    def _normalised(self, step: Step, decoded: dict[str, Any]) -> Any:
        save = step.arguments.get("save")
        if save is not None and decoded.get("error_code") in (0, 79):
            for field, value in decoded.items():
                if isinstance(value, (int, str)):
                    self._saved[f"{save}.{field}"] = value
            if decoded.get("assignment") and not isinstance(decoded["assignment"], bytes):
                self._saved[f"{save}.assignment"] = decoded["assignment"]["topic_partitions"]
        return self._normaliser.answer(step.request, decoded, self._names)

    # -- arguments

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("%", self._prefix)
        if isinstance(value, list):
            return [self._resolve(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$" in value:
            return self._saved_value(value)
        if "batches" in value:
            return b"".join(self._batch(each) for each in value["batches"])
        if "subscription" in value:
            return self._subscription(value)
        if "assigned" in value:
            return consumer_metadata({self._resolve(topic): each for topic, each in value["assigned"].items()})
        return {key: self._resolve(each) for key, each in value.items()}

    def _subscription(self, value: dict[str, Any]) -> bytes:
        topics = {self._resolve(topic): None for topic in value["subscription"]}
        owned = {self._resolve(topic): each for topic, each in value.get("owned", {}).items()}
        data = consumer_metadata(topics, owned, value.get("format", 0))
        return data[: len(data) - value.get("cut", 0)]

    def _saved_value(self, value: dict[str, Any]) -> Any:
        name = value["$"]
        default = _UNKNOWN_ID if name.startswith("topic.") else value.get("default", -1)
        saved = self._saved.get(name, default)
        return saved + value["plus"] if "plus" in value else saved

    def _batch(self, spec: dict[str, Any]) -> bytes:
        fields = {key: self._resolve(each) for key, each in spec.items()}
        values = [_record(each) for each in fields.pop("values", [])]
        if "ts" in fields:
            fields["ts"] = kwire.NOW + fields["ts"] if fields["ts"] != "none" else -1
        if "maxts" in fields:
            fields["maxts"] = kwire.NOW + fields["maxts"] if fields["maxts"] != "none" else -1
        cut = fields.pop("cut", 0)
        if "times" in fields:
            times = fields.pop("times")
            fields["payload"] = _records(values, times)
            fields.setdefault("maxts", fields.get("ts", kwire.NOW) + max(times))
        if fields.pop("gzip", False):
            payload = fields.get("payload", kwire.records_of(values, fields.get("dts", 0)))
            fields["payload"] = gzip.compress(payload, mtime=0)
            fields["attrs"] = fields.get("attrs", 0) | 1
        data: bytes = kwire.batch(values, **fields)
        return data[: len(data) - cut]


def _record(spec: Any) -> Any:
    """A value, or key, value and headers."""
    if isinstance(spec, list):
        key, value, headers = (*spec, [])[:3]
        return _bytes(key), _bytes(value), [(_bytes(name), _bytes(each)) for name, each in headers]
    return _bytes(spec)


def _records(values: Sequence[Any], times: Sequence[int]) -> bytes:
    """Records of a batch, each with a time of its own, relative to that of the batch."""
    encoded = []
    for number, (value, time_ms) in enumerate(zip(values, times, strict=False)):
        key, body, headers = value if isinstance(value, tuple) else (None, value, ())
        encoded.append(kwire.record(number, body, key, headers, dts=time_ms))
    return b"".join(encoded)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def consumer_metadata(
    topics: Mapping[str, list[int] | None], owned: Mapping[str, list[int]] = MappingProxyType({}), version: int = 0
) -> bytes:
    """What consumers put into JoinGroup (topics without partitions; from version 1 on with the partitions that the
    member owns) and SyncGroup."""
    parts = [struct.pack(">h", version), _named_partitions(topics), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(_named_partitions(owned))
    if version >= 2:
        parts.append(struct.pack(">i", -1))  # generation
    if version >= 3:
        parts.append(struct.pack(">h", -1))  # rack
    return b"".join(parts)


def _named_partitions(topics: Mapping[str, list[int] | None]) -> bytes:
    parts = [struct.pack(">i", len(topics))]
    for name, partitions in topics.items():
        parts.append(struct.pack(">h", len(name)) + name.encode())
        if partitions is not None:
            parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join(parts)


def _creates(step: Step) -> bool:
    arguments = step.arguments
    if step.request != "Metadata" or not arguments.get("topics"):
        return False
    return arguments["version"] < 4 or bool(arguments.get("allow_auto_topic_creation", True))


def _may_block(step: Step) -> bool:
    return step.request in _BLOCKING or step.arguments.get("max_wait_ms", 0) > 0


def _retried_codes(step: Step) -> set[int]:
    return _NOT_READY if _creates(step) else _BUSY


def _with_late(answer: Any, late: Any) -> Any:
    return answer if late is None else {"late": late, "answer": answer}
