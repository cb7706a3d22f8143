"""SCRAM exchange: the RFC's example, the client of another library, wrong proofs, and messages that are not SCRAM."""

from __future__ import annotations

import base64
import hashlib
import warnings
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.core.security.scram_credentials import ScramCredential, credentials_of_password, derive_credential
from trimq.core.security.scram_exchange import (
    BadScramMessage,
    ScramExchange,
    WrongProof,
    read_client_final,
    read_client_first,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka.net.sasl.scram import ScramClient

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = derive_credential("user", SHA_256, 4096, SALT, hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096))


def exchange(credential: ScramCredential = PENCIL, nonce: str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0") -> ScramExchange:
    return ScramExchange(credential.mechanism, lambda user: credential, nonce)


def test_the_messages_are_those_of_the_rfcs_example() -> None:
    # RFC 7677, section 3.
    server = exchange()
    assert server.start(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.user == "user"
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.finish(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize(("user", "password"), [("alice", "hers"), ("a.b", "with, comma"), ("zoë", "pässwörd")])
def test_the_client_of_another_library_logs_in_with_a_password_that_was_set(
    mechanism: str, user: str, password: str
) -> None:
    (credential,) = (
        made for made in credentials_of_password(user, password, b"salt" * 4) if made.mechanism == mechanism
    )
    client, server = ScramClient(user, password, mechanism), exchange(credential, "server")
    client.process_server_first_message(server.start(client.first_message()))
    client.process_server_final_message(server.finish(client.final_message()))


FIRST = b"n,,n=user,r=abc"
PROOF = base64.b64encode(bytes(32))


@pytest.mark.parametrize(
    ("final", "error"),
    [
        (b"c=biws,r=abcserver,p=" + PROOF, WrongProof),
        (b"c=biws,r=abcserver,p=AAAA", WrongProof),
        (b"c=biws,r=abc,p=" + PROOF, BadScramMessage),
        (b"c=biws,r=abcserverX,p=" + PROOF, BadScramMessage),
        (b"c=eSws,r=abcserver,p=" + PROOF, BadScramMessage),
        (b"c=biws,r=abcserver,p=", BadScramMessage),
        (b"c=biws,r=abcserver", BadScramMessage),
        (b"c=biws,r=abcserver,p=***", BadScramMessage),
        (b"r=abcserver,c=biws,p=" + PROOF, BadScramMessage),
        (b"", BadScramMessage),
    ],
)
def test_a_wrong_final_message_is_refused(final: bytes, error: type[Exception]) -> None:
    server = exchange(nonce="server")
    server.start(FIRST)
    with pytest.raises(error):
        server.finish(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2Xer,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,user,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=us\0er,r=abc",
        "n,,n=user,r=äbc".encode(),
        b"n,,n=user,r=" + b"a" * 9000,
    ],
)
def test_a_wrong_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(BadScramMessage):
        exchange().start(first)


def test_names_may_hold_commas_and_equals_signs_and_extensions_are_ignored() -> None:
    found = read_client_first(b"n,a=o=2Cne,n=t=3Dwo,r=abc,tokenauth=true")
    assert (found.acts_for, found.user, found.nonce) == ("o,ne", "t=wo", "abc")
    assert (found.header, found.bare) == ("n,a=o=2Cne,", "n=t=3Dwo,r=abc,tokenauth=true")
    final = read_client_final(b"c=biws,r=abc,x=1,p=" + PROOF)
    assert (final.without_proof, final.channel, final.proof) == ("c=biws,r=abc,x=1", b"n,,", bytes(32))


@given(st.binary(max_size=200) | st.text("nyac=,r23CDpiws+/", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(token: bytes) -> None:
    for read in (read_client_first, read_client_final):
        with suppress(BadScramMessage):
            read(token)
    server = exchange(nonce="server")
    server.start(FIRST)
    with pytest.raises((BadScramMessage, WrongProof)):
        server.finish(token)
