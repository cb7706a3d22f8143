"""SCRAM credentials: derivation by RFC 5802, storage, replacement and removal."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials, derive_credential
from trimq.errors import InvalidSetting, UnknownUser
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def opened(files: Files) -> tuple[ScramCredentials, PassRunner]:
    runner = PassRunner(files)
    catalogue = Catalogue(open_table(files, "meta", "catalogue", runner.passes, Definition, runner.offload))
    return ScramCredentials(catalogue, random.Random(3).randbytes), runner


def credential(user: str = "alice", mechanism: str = SHA_256, iterations: int = 4096) -> ScramCredential:
    return derive_credential(user, mechanism, iterations, b"salt", b"p" * 32)


def test_the_keys_are_those_of_the_rfcs_example() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    found = derive_credential("user", SHA_256, 4096, salt, salted)
    assert found.stored_key == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert found.server_key == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert base64.b64encode(salted).decode() not in str(found)


@pytest.mark.parametrize(
    "change",
    [
        {"user": ""},
        {"mechanism": "PLAIN"},
        {"iterations": 4095},
        {"iterations": 16_385},
        {"salt": b""},
        {"salted_password": b""},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_weak_or_incomplete_credential_is_refused(change: dict[str, object]) -> None:
    good = {"user": "u", "mechanism": SHA_512, "iterations": 8192, "salt": b"s", "salted_password": b"p"}
    derive_credential(**good)
    with pytest.raises(InvalidSetting):
        derive_credential(**{**good, **change})


def test_a_user_has_one_credential_for_each_mechanism() -> None:
    credentials, _ = opened(FaultyFiles(MemoryFiles()))
    credentials.put(credential(iterations=4096))
    credentials.put(credential(iterations=5000))
    credentials.put(credential(mechanism=SHA_512))
    assert {(found.mechanism, found.iterations) for found in credentials.of("alice")} == {
        (SHA_256, 5000),
        (SHA_512, 4096),
    }
    assert credentials.users() == ["alice"]
    assert credentials.of("bob") == []


def test_credentials_and_their_removal_survive_a_restart() -> None:
    files = FaultyFiles(MemoryFiles())
    credentials, runner = opened(files)
    credentials.put(credential("a/b"))
    credentials.put(credential("c"))
    runner.settle()
    credentials, runner = opened(files)
    assert credentials.of("a/b") == [credential("a/b")]
    credentials.delete("a/b", SHA_256)
    with pytest.raises(UnknownUser):
        credentials.delete("a/b", SHA_256)
    with pytest.raises(UnknownUser):
        credentials.delete("c", SHA_512)
    runner.settle()
    assert opened(files)[0].users() == ["c"]


def test_unknown_users_have_a_credential_of_their_own_that_stays_the_same() -> None:
    credentials, _ = opened(FaultyFiles(MemoryFiles()))
    first, again = credentials.unknown("nobody", SHA_256), credentials.unknown("nobody", SHA_256)
    assert first.salt == again.salt
    assert first.stored_key != again.stored_key
    assert credentials.unknown("somebody", SHA_256).salt != first.salt
    assert len(base64.b64decode(first.salt)) == len(credentials.new_salt()) == 16
    assert len(base64.b64decode(credentials.unknown("nobody", SHA_512).stored_key)) == 64


def test_all_credentials_of_a_user_can_be_deleted() -> None:
    credentials, _ = opened(FaultyFiles(MemoryFiles()))
    for mechanism in (SHA_256, SHA_512):
        credentials.put(credential(mechanism=mechanism))
    assert len(credentials.delete_all("alice")) == 2
    assert credentials.of("alice") == credentials.delete_all("alice") == []
    assert credentials.find("alice", SHA_256) is None
