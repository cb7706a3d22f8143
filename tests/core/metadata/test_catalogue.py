from __future__ import annotations

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.errors import Changed
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table


def open_catalogue(files: Files, runner: PassRunner) -> Catalogue:
    return Catalogue(open_table(files, "meta", "catalogue", runner.passes, Definition, runner.offload))


def version(catalogue: Catalogue, kind: str, key: str) -> int:
    found = catalogue.get(kind, key)
    assert found is not None
    return found.version


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def runner(files: FaultyFiles) -> PassRunner:
    return PassRunner(files)


@pytest.fixture
def catalogue(files: FaultyFiles, runner: PassRunner) -> Catalogue:
    return open_catalogue(files, runner)


def test_a_definition_is_seen_at_once_and_after_a_restart(
    files: FaultyFiles, runner: PassRunner, catalogue: Catalogue
) -> None:
    value = {"streams": 3, "labels": ["a", None]}
    catalogue.put("topic", "a/b", value, None)
    seen = catalogue.get("topic", "a/b")
    runner.settle()
    again = open_catalogue(files, PassRunner(files))
    assert seen is not None
    assert seen.value == value
    assert again.get("topic", "a/b") == seen
    assert again.all("topic") == [("a/b", seen)]


def test_kinds_have_separate_keys(catalogue: Catalogue) -> None:
    catalogue.put("topic", "x", 1, None)
    catalogue.put("user", "x", 2, None)
    assert [(key, found.value) for key, found in catalogue.all("user")] == [("x", 2)]
    assert catalogue.all("group") == []
    assert catalogue.get("group", "x") is None


@pytest.mark.parametrize("kind", ["", "a/b"])
def test_an_ambiguous_kind_is_a_value_error(catalogue: Catalogue, kind: str) -> None:
    with pytest.raises(ValueError, match="kind"):
        catalogue.put(kind, "x", 1, None)


def test_a_put_that_saw_another_version_is_refused(catalogue: Catalogue) -> None:
    catalogue.put("topic", "x", 1, None)
    seen = version(catalogue, "topic", "x")
    catalogue.put("topic", "x", 2, seen)
    for stale in (None, seen):
        with pytest.raises(Changed, match="topic x"):
            catalogue.put("topic", "x", 3, stale)
    with pytest.raises(Changed):
        catalogue.delete("topic", "x", seen)
    found = catalogue.get("topic", "x")
    assert found is not None
    assert found.value == 2


def test_a_missing_definition_has_no_expected_version(catalogue: Catalogue) -> None:
    with pytest.raises(Changed):
        catalogue.put("topic", "x", 1, 1)
    with pytest.raises(Changed):
        catalogue.delete("topic", "x", 1)


@pytest.mark.parametrize("restart", [False, True])
def test_a_definition_created_again_does_not_match_the_version_of_the_deleted_one(
    files: FaultyFiles, runner: PassRunner, catalogue: Catalogue, restart: bool
) -> None:
    catalogue.put("topic", "x", 1, None)
    seen = version(catalogue, "topic", "x")
    catalogue.delete("topic", "x", seen)
    assert catalogue.get("topic", "x") is None
    if restart:
        runner.settle()
        catalogue = open_catalogue(files, PassRunner(files))
    catalogue.put("topic", "x", 1, None)
    with pytest.raises(Changed):
        catalogue.put("topic", "x", 2, seen)


def test_watchers_are_notified_of_each_change_of_their_kind(catalogue: Catalogue) -> None:
    notified: list[tuple[str, object]] = []
    catalogue.watch("topic", lambda key, found: notified.append((key, found and found.value)))
    catalogue.put("topic", "x", 1, None)
    catalogue.put("user", "y", 1, None)
    catalogue.put("topic", "x", 2, version(catalogue, "topic", "x"))
    catalogue.delete("topic", "x", version(catalogue, "topic", "x"))
    assert notified == [("x", 1), ("x", 2), ("x", None)]


def test_watchers_are_not_notified_of_a_refused_change(catalogue: Catalogue) -> None:
    notified: list[str] = []
    catalogue.watch("topic", lambda key, found: notified.append(key))
    with pytest.raises(Changed):
        catalogue.put("topic", "x", 1, 7)
    assert notified == []


def test_every_watcher_is_notified_in_order_even_if_one_makes_a_change(catalogue: Catalogue) -> None:
    notified: list[object] = []

    def answer(key: str, found: Definition | None) -> None:
        if found is not None and found.value == 1:
            catalogue.put("topic", key, 2, found.version)

    catalogue.watch("topic", answer)
    catalogue.watch("topic", lambda key, found: notified.append(found and found.value))
    catalogue.put("topic", "x", 1, None)
    assert notified == [1, 2]


def test_a_watcher_that_fails_is_logged_and_the_others_are_notified(
    catalogue: Catalogue, caplog: pytest.LogCaptureFixture
) -> None:
    notified: list[str] = []

    def fail(key: str, found: Definition | None) -> None:
        raise RuntimeError("planted")

    catalogue.watch("topic", fail)
    catalogue.watch("topic", lambda key, found: notified.append(key))
    catalogue.put("topic", "x", 1, None)
    assert notified == ["x"]
    assert "planted" in caplog.text


def test_changes_of_a_failed_pass_are_undone_and_watchers_notified(
    files: FaultyFiles, runner: PassRunner, catalogue: Catalogue
) -> None:
    catalogue.put("topic", "kept", 1, None)
    catalogue.put("topic", "deleted", 1, None)
    runner.settle()
    kept, deleted = version(catalogue, "topic", "kept"), version(catalogue, "topic", "deleted")
    notified: list[tuple[str, object]] = []
    sizes: list[int] = []

    def listen(key: str, found: Definition | None) -> None:
        notified.append((key, found and found.value))
        sizes.append(len(catalogue.all("topic")))

    files.room_bytes = 0
    tickets = [
        catalogue.put("topic", "kept", 2, kept),
        catalogue.delete("topic", "deleted", deleted),
        catalogue.put("topic", "new", 1, None),
    ]
    catalogue.watch("topic", listen)
    runner.settle()
    assert all(ticket.refusal is not None for ticket in tickets)
    assert sorted(notified, key=str) == [("deleted", 1), ("kept", 1), ("new", None)]
    assert sizes == [2, 2, 2], "a watcher was notified before all changes were undone"
    assert version(catalogue, "topic", "kept") == kept
    files.room_bytes = None
    catalogue.put("topic", "kept", 3, kept)
    assert version(catalogue, "topic", "kept") > deleted
