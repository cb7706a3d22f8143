"""Detection of cross-origin requests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from trimq.server.http.cross_origin import is_cross_origin
from trimq.testing import Broker


@pytest.mark.parametrize(
    ("method", "origin", "host", "foreign"),
    [
        ("POST", None, "127.0.0.1:8180", False),
        ("POST", None, "evil.example", False),
        ("GET", "http://evil.example", "127.0.0.1:8180", False),
        ("POST", "http://evil.example", "127.0.0.1:8180", True),
        ("DELETE", "http://evil.example", "127.0.0.1:8180", True),
        ("POST", "null", "127.0.0.1:8180", True),
        ("POST", "http://[", "127.0.0.1:8180", True),
        ("POST", "http://127.0.0.1:8180", "127.0.0.1:8180", False),
        ("PATCH", "http://[::1]:8180", "[::1]:8180", False),
        ("POST", "https://localhost:8180", "localhost:8180", False),
        ("POST", "http://127.0.0.1:3000", "127.0.0.1:8180", True),
        ("POST", "http://rebound.example:8180", "rebound.example:8180", True),
    ],
)
def test_a_page_is_same_origin_only_at_the_host_of_the_request(
    method: str, origin: str | None, host: str, foreign: bool
) -> None:
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    assert is_cross_origin(method.encode(), headers) is foreign


def test_a_page_of_another_origin_changes_nothing() -> None:
    with Broker() as broker:
        body = json.dumps({"name": "planted", "streams": 1}).encode()
        headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
        request = urllib.request.Request(f"{broker.http}/api/topics", body, headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as answer:
            assert answer.status == 403
        with urllib.request.urlopen(f"{broker.http}/api/topics") as answer:
            assert b"planted" not in answer.read()
