"""Normalised answers of a Kafka broker: without ids, times, addresses, wording and the unique part of names, and with
sorted lists where Kafka answers in the order of a hash map."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterable
from typing import Any

from differential.kafka_codec import kwire

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DROPPED = {
    "throttle_time_ms",
    "_corr",
    "cluster_id",
    "host",
    "port",
    "client_host",
    "node_endpoints",
    "finalized_features_epoch",
    "documentation",
    "log_dir",
    "total_bytes",
    "usable_bytes",
}
_TEXTS = {"error_message", "batch_index_error_message"}
_TIMES = {"timestamp", "log_append_time_ms", "last_timestamp", "transaction_start_time_ms", "ts", "maxts"}
_IDENTITY = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "resource_type",
    "resource_name",
    "user",
    "entity",
    "entity_type",
    "key",
    "member_id",
    "partition",
    "partition_index",
    "partition_id",
    "index",
)
# Lists in an order that the protocol or the request fixes.
_IN_ORDER = {"records", "recs", "headers", "replica_nodes", "isr_nodes", "record_errors"}
# Lists of everything in the cluster: only what the sequence made is compared.
_CLUSTER_WIDE = {
    "Metadata": ("topics", "name"),
    "ListGroups": ("groups", "group_id"),
    "ListTransactions": ("transaction_states", "transactional_id"),
    "ListConfigResources": ("config_resources", "resource_name"),
    "DescribeUserScramCredentials": ("results", "user"),
}


# Of no producer; it is in requests, and in the answers to some of them.
UNKNOWN_PRODUCER = 9_000_001


class Normaliser:
    """Names of one run. Ids that the broker chose are numbered in the order in which they appear."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._aliases: dict[tuple[str, Any], str] = {}
        self._topic_ids: dict[str, str] = {bytes(16).hex(): "no topic"}

    def learn_topic(self, name: str, topic_id: str) -> None:
        if topic_id in self._topic_ids or topic_id == bytes(16).hex():
            return
        short = self.shorten(name)
        older = sum(each.partition("#")[0] == short for each in self._topic_ids.values())
        self._topic_ids[topic_id] = f"{short}#{older}" if older else short

    def shorten(self, text: str) -> str:
        return _UUID.sub("<uuid>", text.replace(self._prefix, "%"))

    def answer(self, request: str, decoded: dict[str, Any], named: Iterable[str]) -> Any:
        """`named`: names in the request, which stay in a list of everything in the cluster."""
        if request == "ApiVersions":
            return {"error_code": decoded["error_code"]}
        if request in _CLUSTER_WIDE:
            key, name = _CLUSTER_WIDE[request]
            kept = set(named) - {""}
            found = decoded.get(key)
            if found is not None:
                mine = [each for each in found if self._is_mine(each.get(name), kept)]
                decoded = {**decoded, key: mine}
        if request == "DescribeClientQuotas" and decoded["entries"]:
            mine = [
                entry
                for entry in decoded["entries"]
                if all(self._is_mine(part.get("entity_name"), ()) for part in entry["entity"])
            ]
            decoded = {**decoded, "entries": mine}
        if request == "DescribeConfigs":
            decoded = {**decoded, "results": [_with_named_configs(each) for each in decoded["results"]]}
        return self._value("", decoded)

    def _is_mine(self, name: str | None, named: Iterable[str]) -> bool:
        return name is None or self._prefix in name or name in named

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(key, each) for key, each in value.items() if key not in _DROPPED}
        if isinstance(value, list):
            values = [self._value(field, each) for each in value]
            return values if field in _IN_ORDER else sorted(values, key=_identity)
        if isinstance(value, bytes):
            return self._batches(value) if field == "records" else self.shorten(value.decode("latin-1"))
        if field in _TEXTS:
            return "<text>" if value else value
        if field == "topic_id":
            return self._topic_ids.get(value) or self._alias("topic id", value)
        if field in ("producer_id", "pid", "session_id") and value > 0 and value != UNKNOWN_PRODUCER:
            return self._alias(field.removesuffix("_id"), value)
        if field in _TIMES:
            return _relative(value)
        if isinstance(value, str):
            short = self.shorten(value)
            if field in ("member_id", "leader") and short == value and value:
                return self._alias("member", value)
            return short
        return value

    def _alias(self, kind: str, value: Any) -> str:
        number = sum(each == kind for each, _ in self._aliases)
        return self._aliases.setdefault((kind, value), f"<{kind} {number}>")

    def _batches(self, data: bytes) -> Any:
        batches = kwire.parse(data)
        described = [self._batch(batch) for batch in batches]
        left = len(data) - sum(len(batch["raw"]) for batch in batches)
        return {"batches": described, "left": left}

    def _batch(self, batch: dict[str, Any]) -> Any:
        described = {key: each for key, each in batch.items() if key != "raw"}
        if batch["attrs"] & 7:
            payload = batch["raw"][61:]
            # A broker that compresses has an encoder of its own.
            described["payload"] = (zlib.decompress(payload, 31) if batch["attrs"] & 7 == 1 else payload).hex()
        if batch["attrs"] & 8:  # the checksum covers the append time
            described["recs"] = [{**each, "ts": batch["maxts"]} for each in described["recs"] or ()]
        return self._value("batch", described)


def _with_named_configs(result: dict[str, Any]) -> dict[str, Any]:
    """Settings by their names, so that a missing one is one difference."""
    return {**result, "configs": {each["name"]: each for each in result["configs"]}}


def _identity(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return json.dumps([[value.get(key) for key in _IDENTITY], value], default=str, sort_keys=True)


def _relative(milliseconds: Any) -> Any:
    """`now`: a time that the broker took from its clock."""
    base = kwire.NOW
    if not isinstance(milliseconds, int):
        return milliseconds
    if base + 55_000 <= milliseconds <= time.time() * 1000 + 5_000:
        return "now"
    if abs(milliseconds - base) < 1 << 40:
        return f"T{milliseconds - base:+}"
    return milliseconds
