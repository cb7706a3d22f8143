"""Detection of cross-origin requests."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request

import pytest

from trimq.config import load
from trimq.server.http.cross_origin import KnownHosts, is_cross_origin, known_hosts
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


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1:8180", True),
        ("[::1]:8180", True),
        ("10.1.2.3", True),
        ("localhost:8180", True),
        ("app.localhost", True),
        ("Broker.Example.:8180", True),
        ("kafka.example", True),
        ("evil.example:8180", False),
        ("broker.example.evil", False),
        ("[", False),
        ("", True),
    ],
)
def test_a_request_names_a_known_host(host: str, is_known: bool) -> None:
    settings = load({"http.hosts": "broker.example;other", "kafka.advertise": "kafka.example"}, {})
    headers = [(b"host", host.encode())]
    assert (known_hosts(settings).find_unknown(headers) is None) is is_known
    assert KnownHosts("*").find_unknown(headers) is None


@pytest.mark.parametrize("path", ["/api/topics", "/log/orders/0", "/metrics", "/api/users", "/nowhere"])
def test_a_page_that_has_rebound_its_name_reads_nothing(path: str) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        host, _, port = broker.http.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        try:
            connection.request("GET", path, headers={"Host": f"evil.example:{port}"})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["error"]) == (403, "UnknownHost")
            connection.request("GET", "/healthz", headers={"Host": f"evil.example:{port}"})
            assert connection.getresponse().read() == b"ok\n"
        finally:
            connection.close()
