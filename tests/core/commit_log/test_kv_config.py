"""Small texts that clients leave with the broker, and groups that are kept beside them."""

from __future__ import annotations

import pytest
from core.core_bench import CoreBench

from trimq.config import Address, RocketMQ, Settings
from trimq.core.api.commit_log import Sharing
from trimq.core.commit_log.groups import SharedGroup
from trimq.errors import InvalidName, NameTooLong
from trimq.model import SYSTEM

SETTINGS = Settings(rocketmq=RocketMQ(listen=Address("127.0.0.1", 0), commit_file_bytes=1 << 16))


def sharing_of(opened: CoreBench) -> Sharing:
    assert opened.core.shared_log is not None
    return opened.core.shared_log.sharing


def test_notes_are_kept_by_namespace_and_key() -> None:
    opened = CoreBench(SETTINGS)
    sharing_of(opened).put_note(SYSTEM, "n", "a", "1")
    sharing_of(opened).put_note(SYSTEM, "n", "b", "2")
    opened.settle()
    opened.kill()
    sharing = sharing_of(opened)
    assert sharing.notes(SYSTEM, "n") == {"a": "1", "b": "2"}
    assert sharing.notes(SYSTEM, "other") is None
    assert sharing.delete_note(SYSTEM, "n", "a") is not None
    assert sharing.delete_note(SYSTEM, "n", "a") is None
    assert sharing.delete_note(SYSTEM, "other", "a") is None
    assert sharing.notes(SYSTEM, "n") == {"b": "2"}


def test_a_note_that_is_refused_is_taken_back() -> None:
    opened = CoreBench(SETTINGS)
    opened.fail_writes()
    ticket = sharing_of(opened).put_note(SYSTEM, "n", "a", "1")
    opened.settle()
    assert ticket.refusal is not None
    assert sharing_of(opened).notes(SYSTEM, "n") is None


def test_groups_are_kept_and_deleted() -> None:
    opened = CoreBench(SETTINGS)
    group = SharedGroup("g", retry_limit=3)
    sharing_of(opened).define_group(SYSTEM, SharedGroup("g"))
    sharing_of(opened).define_group(SYSTEM, group)
    opened.settle()
    opened.kill()
    sharing = sharing_of(opened)
    assert sharing.groups(SYSTEM) == [group]
    assert sharing.delete_group(SYSTEM, "g", True) is not None
    assert sharing.delete_group(SYSTEM, "g", True) is None
    assert sharing.group(SYSTEM, "g") is None


def test_a_group_has_a_name_of_its_length() -> None:
    sharing = sharing_of(CoreBench(SETTINGS))
    with pytest.raises(InvalidName):
        sharing.define_group(SYSTEM, SharedGroup(""))
    with pytest.raises(NameTooLong):
        sharing.define_group(SYSTEM, SharedGroup("g" * 256))
