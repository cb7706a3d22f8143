"""Secrets of signed requests: encrypted in the catalogue, decrypted with the same key only, and never shown."""

from __future__ import annotations

import base64
import errno
import random

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.signing_secrets import KEY_FILE, SecretKey, SigningSecrets, read_given_key
from trimq.errors import InvalidSetting
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

PLANTED = "planted-secret-key"


def opened(files: Files, key: bytes | None = None, seed: int = 5) -> tuple[SigningSecrets, PassRunner]:
    runner = PassRunner(files)
    catalogue = Catalogue(open_table(files, "meta", "catalogue", runner.passes, Definition, runner.offload))
    randomness = random.Random(seed).randbytes
    secrets = SigningSecrets(catalogue, SecretKey(files, key, randomness), randomness)
    secrets.open()
    return secrets, runner


def give(secrets: SigningSecrets, runner: PassRunner, user: str = "alice", secret: str = PLANTED) -> None:
    secrets.put(secrets.begin_seal(user, secret)())
    runner.settle()


def contents(files: MemoryFiles) -> bytes:
    names = [KEY_FILE, *(f"meta/{name}" for name in files.names("meta"))]
    return b"".join(files.open(name).read(0, 1 << 20) for name in names)


def test_a_secret_is_stored_encrypted_and_survives_a_restart() -> None:
    files = MemoryFiles()
    secrets, runner = opened(files)
    assert KEY_FILE not in files.names("")
    give(secrets, runner)
    stored = contents(files)
    assert PLANTED.encode() not in stored
    assert base64.b64encode(PLANTED.encode()) not in stored
    again, runner = opened(files, seed=6)
    assert again.users() == ["alice"]
    assert again.secret_of("alice") == PLANTED.encode()
    give(again, runner, "bob", "other")
    assert opened(files)[0].secret_of("bob") == b"other"
    assert again.secret_of("carol") is None


def test_a_secret_can_be_replaced_and_deleted() -> None:
    secrets, runner = opened(MemoryFiles())
    give(secrets, runner)
    before = secrets.revision
    give(secrets, runner, secret="new")
    assert secrets.secret_of("alice") == b"new"
    assert secrets.revision > before
    assert len(secrets.delete("alice")) == 1
    assert secrets.secret_of("alice") is None
    assert secrets.delete("alice") == []


def test_another_key_decrypts_nothing_and_is_logged_without_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    give(*opened(files, b"k" * 32))
    assert KEY_FILE not in files.names("")
    assert opened(files, b"k" * 32)[0].secret_of("alice") == PLANTED.encode()
    assert opened(files, b"x" * 32)[0].secret_of("alice") is None
    assert opened(files)[0].secret_of("alice") is None
    assert "encrypted with another key" in caplog.text
    assert "there is no key" in caplog.text
    assert PLANTED not in caplog.text


def test_a_secret_of_one_user_does_not_work_for_another() -> None:
    files = MemoryFiles()
    secrets, runner = opened(files)
    sealed = secrets.begin_seal("alice", PLANTED)()
    secrets.put(type(sealed)("mallory", sealed.key_id, sealed.sealed))
    runner.settle()
    assert secrets.secret_of("mallory") is None


def test_a_key_whose_creation_was_cut_off_is_made_again() -> None:
    files = MemoryFiles()
    files.open(KEY_FILE, create=True).write(0, [b"cut"])
    secrets, runner = opened(files)
    give(secrets, runner)
    assert opened(files)[0].secret_of("alice") == PLANTED.encode()


def test_the_key_is_private_before_it_holds_anything() -> None:
    steps: list[tuple[str, str]] = []
    files = FaultyFiles(MemoryFiles())
    secrets, _ = opened(files)
    files.before = lambda operation, name: steps.append((operation, name))
    secrets.begin_seal("alice", PLANTED)()
    assert [operation for operation, name in steps if name == KEY_FILE] == [
        "create",
        "restrict",
        "resize",
        "write",
        "sync",
    ]
    assert steps[-1] == ("sync_folder", "")


def test_a_key_that_cannot_be_stored_is_not_used() -> None:
    files = FaultyFiles(MemoryFiles())
    secrets, runner = opened(files)

    def refuse(operation: str, name: str) -> None:
        if operation == "sync" and name == KEY_FILE:
            raise OSError(errno.EIO, "the disk takes nothing")

    files.before = refuse
    with pytest.raises(OSError, match="takes nothing"):
        secrets.begin_seal("alice", PLANTED)()
    files.before = lambda operation, name: None
    give(secrets, runner)
    assert opened(files)[0].secret_of("alice") == PLANTED.encode()


@pytest.mark.parametrize("secret", ["", "x" * 257])
def test_an_empty_or_long_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSetting, match="bytes"):
        opened(MemoryFiles())[0].begin_seal("alice", secret)


def test_a_given_key_is_32_bytes_in_base64() -> None:
    assert read_given_key(base64.b64encode(b"k" * 32) + b"\n") == b"k" * 32
    for text in (b"", b"***", base64.b64encode(b"k" * 31), b"k" * 32):
        with pytest.raises(ValueError, match=r"base64"):
            read_given_key(text)
