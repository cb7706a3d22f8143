"""Files of RocketMQ's `config` folder: read once, when the store of another broker is opened, and written periodically
and at stop, so that Apache RocketMQ can continue with our store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any

import msgspec

from trimq.clock import Clock, Timer
from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.commit_log.config_sync import ConfigSync
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.topics import READABLE, CommitLogTopicDefinition
from trimq.errors import Refusal, StartupError
from trimq.formats.rocketmq_unit.schedule import SCHEDULE_TOPIC, WHEEL_TOPIC
from trimq.model import DEFAULT_NAMESPACE, SYSTEM
from trimq.protocols.rocketmq.handlers import groups, topics
from trimq.protocols.rocketmq.handlers.forbidden_topics import forbidden_table, with_forbidden
from trimq.protocols.rocketmq.schedule.scheduler import GROUP as DELAY_GROUP
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json, write_object_keyed

log = logging.getLogger(__name__)

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"
TIMERS = "timercheck"
_OPTIONAL = "forbiddenTable"  # not written by RocketMQ before 5.0

# Last time read, end of the timer log, queue offset read to, and that of the master. We have no timer log: Apache
# RocketMQ reads the waiting messages again.
_TIMERS = Struct(">qqqq")
_TIMERS_BYTES = 4096

# Limits of one turn of the loop, which takes 1 to 2 ms: rows, and bytes of cursors.
_ROWS_AT_ONCE = 256
_BYTES_AT_ONCE = 16 * 1024


class ConfigFiles:
    def __init__(
        self,
        topic_api: CommitLogTopicApi,
        group_api: CommitLogGroupApi,
        config: ConfigSync,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._topic_api = topic_api
        self._group_api = group_api
        self._config = config
        self._now_ms = clock.message.now_ms
        self._timeline = clock.liveness
        self._interval_ms = interval_ms
        self._timer: Timer | None = None
        self._steps: Iterator[None] = iter(())
        self._is_saving = False

    def start(self) -> None:
        """Imports the files of another broker; call before anything else uses the store."""
        if not self._config.is_imported:
            self._adopt()
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_saving:
            self._config.mark_all_changed()  # restart the unfinished save
        for _ in self._save():
            pass

    # -- import

    def _adopt(self) -> None:
        if self._config.files.names():
            log.info("RocketMQ store of another broker: importing its topics, groups and offsets")
        self._read(TOPICS, "topicConfigTable", self._define_topic)
        if TOPICS not in self._config.files.names():
            for name, count in self._config.strays().items():
                self._define_topic(name, {"readQueueNums": count, "writeQueueNums": count})
        self._read(GROUPS, "subscriptionGroupTable", self._define_group)
        self._read(GROUPS, _OPTIONAL, self._forbid)
        self._read(OFFSETS, "offsetTable", self._commit)
        self._read(DELAYS, "offsetTable", self._commit_level)
        self._config.finish_import()

    def _read(self, name: str, table: str, take: Callable[[str, Any], None]) -> None:
        for data in self._config.files.versions(name):
            try:
                found = read_json(data, lenient_bytes=None)
                rows: Mapping[str, Any] = (found.get(table) if table == _OPTIONAL else found[table]) or {}
                items = list(rows.items())
            except (BadJson, TypeError, KeyError, AttributeError) as error:
                log.warning("%s: cannot be read, trying the previous version (%s)", name, error)
                continue
            for key, value in items:
                try:
                    take(key, value)
                except (Refusal, TypeError, ValueError, KeyError, AttributeError) as error:
                    if name == TOPICS and key in self._config.strays():
                        raise StartupError(f"cannot import topic {key} of the RocketMQ store: {error}") from None
                    log.warning("%s: entry %.100s not imported (%s)", name, key, error)
            return

    def _define_topic(self, name: str, row: dict[str, Any]) -> None:
        if self._topic_api.find(SYSTEM, name) is not None:
            return
        given = {
            "namespace": DEFAULT_NAMESPACE,
            "name": name,
            "read_streams": row["readQueueNums"],
            "write_streams": row["writeQueueNums"],
            "permissions": row.get("perm", 6) & 7,
            "is_ordered": row.get("order", False),
            "flags": row.get("topicSysFlag", 0),
            "attributes": row.get("attributes") or {},
        }
        self._topic_api.prepare(msgspec.convert(given, CommitLogTopicDefinition))

    def _define_group(self, name: str, row: dict[str, Any]) -> None:
        for field, kept in groups.FIXED.items():
            if row.get(field, kept) != kept:
                log.warning("group %.100s: %s changed to %.40r (the only supported value)", name, field, kept)
        self._group_api.define(SYSTEM, groups.read_group(name, row))

    def _forbid(self, name: str, topics: dict[str, int]) -> None:
        found = self._group_api.find(SYSTEM, name) or CommitLogGroup(name)
        kept = [topic for topic, bits in topics.items() if bits & READABLE]
        self._group_api.define(SYSTEM, with_forbidden(found, kept))

    def _commit(self, key: str, offsets: dict[str, int]) -> None:
        topic, _, group = key.partition("@")
        self._commit_all(group, topic, {int(number): offset for number, offset in offsets.items()})

    def _commit_level(self, level: str, offset: int) -> None:
        self._commit_all(DELAY_GROUP, SCHEDULE_TOPIC, {int(level) - 1: offset})

    def _commit_all(self, group: str, name: str, offsets: Mapping[int, int]) -> None:
        topic = self._topic_api.get(SYSTEM, name)
        for number, offset in offsets.items():
            self._group_api.commit(SYSTEM, group, topic, number, int(offset))

    # -- export

    def _arm(self) -> None:
        self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._tick)

    def _tick(self) -> None:
        self._steps = self._save()
        self._run_step()

    def _run_step(self) -> None:
        """Runs one step per turn of the loop, so that many topics, groups or cursors do not block connections."""
        for _ in self._steps:
            self._timer = self._timeline.call_at(self._timeline.now_ms(), self._run_step)
            return
        self._arm()

    def _save(self) -> Iterator[None]:
        if not self._config.is_imported:
            return  # the files are not imported yet
        changed = self._config.changes()
        self._is_saving = True
        try:
            if changed.topics:
                yield from self._save_topics()
            if changed.groups:
                yield from self._save_groups()
            if changed.cursors:
                yield from self._save_cursors()
        except OSError as error:
            self._config.mark_all_changed()
            log.warning("RocketMQ config files: write failed, will be retried (%s)", error)
        self._is_saving = False

    def _save_topics(self) -> Iterator[None]:
        table = {}
        for number, topic in enumerate(self._topic_api.all(SYSTEM), 1):
            table[topic.name.name] = topics.described(topic)
            if number % _ROWS_AT_ONCE == 0:
                yield
        self._write(TOPICS, {"topicConfigTable": table})

    def _save_groups(self) -> Iterator[None]:
        known, table = self._group_api.all(SYSTEM), {}
        for number, group in enumerate(known, 1):
            table[group.name] = groups.described(group)
            if number % _ROWS_AT_ONCE == 0:
                yield
        self._write(GROUPS, {"forbiddenTable": forbidden_table(known), "subscriptionGroupTable": table})

    def _write(self, name: str, tables: dict[str, Any]) -> None:
        data = {"dataVersion": self._version(), **tables}
        self._config.files.write(name, msgspec.json.format(msgspec.json.encode(data), indent=2))

    def _version(self) -> dict[str, int]:
        now_ms = self._now_ms()
        return {"counter": now_ms, "stateVersion": 0, "timestamp": now_ms}

    def _save_cursors(self) -> Iterator[None]:
        files, pieces, size = self._config.files, [], 0
        for piece in groups.encode_each_offset(self._topic_api, self._group_api, SYSTEM, frozenset((DELAY_GROUP,))):
            pieces.append(piece)
            size += len(piece)
            if size >= _BYTES_AT_ONCE:
                size = 0
                yield
        files.write(OFFSETS, groups.join_offsets(pieces))
        levels = {number + 1: offset for number, offset in self._delayed(SCHEDULE_TOPIC).items()}
        version = msgspec.json.encode(self._version())
        files.write(DELAYS, b'{"dataVersion":%b,"offsetTable":%b}' % (version, write_object_keyed(levels.items())))
        done = self._delayed(WHEEL_TOPIC).get(0, 0)
        files.write(TIMERS, _TIMERS.pack(self._now_ms(), 0, done, done).ljust(_TIMERS_BYTES, b"\0"))

    def _delayed(self, name: str) -> dict[int, int]:
        """Offset of each queue before which all delayed messages are delivered."""
        topic = self._topic_api.find(SYSTEM, name)
        cursors = self._group_api.cursors(SYSTEM, DELAY_GROUP)
        return {
            stream.number: cursor.offset
            for stream, cursor in cursors.items()
            if topic is not None and stream.topic == topic.id
        }
