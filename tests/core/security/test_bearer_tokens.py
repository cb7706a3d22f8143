"""Bearer tokens: signature, claims and times, keys that are replaced, and tokens that are none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from doubles import ManualOffload
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from trimq.clock import Clock, ManualTime
from trimq.core.security.bearer_tokens import BadToken, Bearer, BearerTokens, Expected
from trimq.errors import StartupError

NOW_MS = 1_700_000_000_000
EXPIRES_S = NOW_MS // 1000 + 300
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
NEW = ECKey.generate_key("P-256", {"kid": "two"})
CLAIMS = {"sub": "alice", "exp": EXPIRES_S, "iss": "https://idp", "aud": ["kafka", "web"], "scope": "read write"}
EXPECTED = Expected("https://idp", "kafka", "write")


def jwks(*keys: Any) -> bytes:
    return json.dumps(KeySet(list(keys)).as_dict(private=False)).encode()


def token(key: Any = KEY, algorithm: str = "RS256", **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    header = {"alg": algorithm, "kid": key.kid}
    return jwt.encode(header, claims, key, algorithms=[algorithm])


class Desk:
    def __init__(self, read: Callable[[], bytes] = lambda: jwks(KEY), expected: Expected = EXPECTED) -> None:
        self.offload, self.liveness = ManualOffload(), ManualTime(0)
        self.tokens = BearerTokens(read, expected, self.offload, Clock(ManualTime(NOW_MS), self.liveness))

    def check(self, text: str) -> Bearer | BadToken:
        found: list[Bearer | BadToken] = []
        self.tokens.check(text, found.append)
        self.offload.run_all()
        (outcome,) = found
        return outcome


def test_a_token_of_the_issuer_names_its_principal_and_its_end() -> None:
    assert Desk().check(token()) == Bearer("alice", EXPIRES_S * 1000)
    assert Desk().check(token(aud="kafka", scope=None, scp=["write"])) == Bearer("alice", EXPIRES_S * 1000)
    anything = Desk(expected=Expected(principal_claim="preferred"))
    assert anything.check(token(preferred="bob", aud=None, iss=None)) == Bearer("bob", EXPIRES_S * 1000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": EXPIRES_S - 331}, "claim exp"),
        ({"exp": None}, "claim exp"),
        ({"exp": "soon"}, "claim exp"),
        ({"nbf": EXPIRES_S}, "claim nbf"),
        ({"iss": "https://other"}, "claim iss"),
        ({"iss": None}, "claim iss"),
        ({"aud": "web"}, "claim aud"),
        ({"aud": None}, "claim aud"),
        ({"scope": "read"}, "scope write"),
        ({"scope": None}, "scope write"),
        ({"scope": 7}, "scope write"),
        ({"sub": ""}, "claim sub"),
        ({"sub": None}, "claim sub"),
        ({"sub": ["alice"]}, "claim sub"),
    ],
)
def test_a_token_with_wrong_claims_is_refused(changes: dict[str, Any], reason: str) -> None:
    outcome = Desk().check(token(**changes))
    assert isinstance(outcome, BadToken)
    assert reason in str(outcome)


def unsigned(**header: str) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none", **header}, CLAIMS))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def test_only_signatures_with_the_issuers_private_key_count() -> None:
    desk = Desk()
    shared = OctKey.import_key(jwks(KEY), {"kid": "one"})
    text = token()
    for wrong in (
        token(OTHER),
        token(shared, "HS256"),
        unsigned(),
        unsigned(kid="one"),
        text[:-4] + "AAAA",
        text.rpartition(".")[0] + ".",
        "",
        "a.b.c",
        "é",
        "x" * 20_000,
    ):
        assert isinstance(desk.check(wrong), BadToken), wrong[:80]


def test_a_key_that_was_added_to_the_file_is_found_and_a_broken_file_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = [jwks(KEY)]
    desk = Desk(lambda: files[-1])
    files.append(b"broken")
    new = token(NEW, "ES256")
    desk.liveness.call_at(10_000, lambda: None)
    assert desk.liveness.step(10_000)
    assert isinstance(desk.check(new), BadToken)
    assert "the old ones are used" in caplog.text
    assert isinstance(desk.check(token()), Bearer)
    files.append(jwks(KEY, NEW))
    assert isinstance(desk.check(new), BadToken)  # read a moment ago
    desk.liveness.call_at(20_000, lambda: None)
    assert desk.liveness.step(20_000)
    assert isinstance(desk.check(new), Bearer)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [7]}', b'{"keys": [{"kty": "RSA"}]}'])
def test_a_file_that_is_no_jwks_prevents_the_start(text: bytes) -> None:
    with pytest.raises(StartupError, match="JWKS"):
        Desk(lambda: text)


@given(st.text(max_size=100) | st.binary(max_size=60).map(lambda raw: f"e30.{base64.urlsafe_b64encode(raw).decode()}."))
def test_any_text_is_refused(text: str) -> None:
    assert isinstance(DESK.check(text), BadToken)


DESK = Desk()
