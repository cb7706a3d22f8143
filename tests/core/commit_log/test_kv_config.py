"""KV configuration that clients store with the broker, and the definitions of groups."""

from __future__ import annotations

import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import CommitLogApi
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.errors import InvalidName, NameTooLong
from trimq.model import SYSTEM

SETTINGS = Settings(rocketmq=RocketMQ(listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16))


def commit_log_of(opened: CoreBench) -> CommitLogApi:
    assert opened.core.commit_log_service is not None
    return opened.core.commit_log_service.commit_log


def test_values_are_stored_by_namespace_and_key() -> None:
    opened = CoreBench(SETTINGS)
    commit_log_of(opened).kv_config.put(SYSTEM, "n", "a", "1")
    commit_log_of(opened).kv_config.put(SYSTEM, "n", "b", "2")
    opened.settle()
    opened.kill()
    commit_log = commit_log_of(opened)
    assert commit_log.kv_config.all(SYSTEM, "n") == {"a": "1", "b": "2"}
    assert commit_log.kv_config.all(SYSTEM, "other") is None
    assert commit_log.kv_config.delete(SYSTEM, "n", "a") is not None
    assert commit_log.kv_config.delete(SYSTEM, "n", "a") is None
    assert commit_log.kv_config.delete(SYSTEM, "other", "a") is None
    assert commit_log.kv_config.all(SYSTEM, "n") == {"b": "2"}


def test_a_value_whose_write_is_refused_is_undone() -> None:
    opened = CoreBench(SETTINGS)
    opened.fail_writes()
    ticket = commit_log_of(opened).kv_config.put(SYSTEM, "n", "a", "1")
    opened.settle()
    assert ticket.refusal is not None
    assert commit_log_of(opened).kv_config.all(SYSTEM, "n") is None


def test_groups_are_stored_and_deleted() -> None:
    opened = CoreBench(SETTINGS)
    group = CommitLogGroup("g", retry_limit=3)
    commit_log_of(opened).groups.define(SYSTEM, CommitLogGroup("g"))
    commit_log_of(opened).groups.define(SYSTEM, group)
    opened.settle()
    opened.kill()
    commit_log = commit_log_of(opened)
    assert commit_log.groups.all(SYSTEM) == [group]
    assert commit_log.groups.delete(SYSTEM, "g", True) is not None
    assert commit_log.groups.delete(SYSTEM, "g", True) is None
    assert commit_log.groups.find(SYSTEM, "g") is None


def test_the_name_of_a_group_has_a_length_limit() -> None:
    commit_log = commit_log_of(CoreBench(SETTINGS))
    with pytest.raises(InvalidName):
        commit_log.groups.define(SYSTEM, CommitLogGroup(""))
    with pytest.raises(NameTooLong):
        commit_log.groups.define(SYSTEM, CommitLogGroup("g" * 256))
