"""Secrets that clients send reach no log, no audit record, no metric and no error: all of them are searched for what
was planted, on a broker process that logs everything."""

from __future__ import annotations

import base64
import http.client
import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from protocols.amqp.desk import ALL_CAPABILITIES
from protocols.amqp.wires import command
from protocols.rocketmq.rocketmq_desk import request
from protocols.rocketmq.test_logins import signature
from security.attacked import ask, connect, receive

from tools.broker import running
from trimq.protocols.amqp import methods
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest

PLANT = "pLaNtEd"
ROOT, ALICE, SECRET = f"{PLANT}-root", f"{PLANT}-alice", f"{PLANT}-secret"


class Site:
    """A broker process with two users, and everything that it has written and answered."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self.answers: list[bytes] = []

    def http(self, method: str, target: str, login: str = f"root:{ROOT}", body: Any = None) -> int:
        connection = http.client.HTTPConnection(self.addresses["http"], timeout=20)
        headers = {"authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
        connection.request(method, target, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        self.answers.append(response.read())
        connection.close()
        return response.status

    def kafka(self, mechanism: str, token: bytes) -> int:
        with connect(self.addresses["kafka"]) as connection:
            ask(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
            answer = ask(connection, SaslAuthenticateRequest(auth_bytes=token), 1)
        self.answers.append(repr(answer).encode())
        return int(answer.error_code)

    def amqp(self, name: str, password: str) -> bytes:
        with connect(self.addresses["amqp"]) as connection:
            response = b"\0%b\0%b" % (name.encode(), password.encode())
            start = methods.ConnectionStartOk({"capabilities": ALL_CAPABILITIES}, "PLAIN", response, "en_US")
            connection.sendall(b"AMQP\0\0\x09\x01" + command(0, start))
            heard = b""
            for _ in range(2):  # connection.start, and tune or close
                head = receive(connection, 7)
                heard += head + receive(connection, int.from_bytes(head[3:7]) + 1)
        self.answers.append(heard)
        return heard

    def rocketmq(self, code: int, secret: str, fields: dict[str, Any], body: Any = b"") -> int:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = {**fields, "AccessKey": "root"}
        signed["Signature"] = signature(signed, data, secret)
        with connect(self.addresses["rocketmq_broker"]) as connection:
            connection.sendall(request(code, signed, data, 0, 479))
            (size,) = struct.unpack(">i", receive(connection, 4))
            answer = receive(connection, size)
        self.answers.append(answer)
        (length,) = struct.unpack(">I", answer[:4])
        return int(json.loads(answer[4 : 4 + (length & 0xFFFFFF)])["code"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("planted")
    with ExitStack() as stack:
        flags = ["--log-level", "debug", "--log-audit-file", "audit.jsonl", "--log-repeats-per-minute", "0"]
        site = Site(folder, stack.enter_context(running(folder, flags)))
        _use(site)
        yield site


def _use(site: Site) -> None:
    root = {"password": ROOT, "administrator": True, "rocketmq_secret": SECRET}
    assert site.http("PUT", "/api/users/root", "", root) in (200, 204)
    assert site.http("PUT", "/api/users/alice", body={"password": ALICE}) == 204
    assert site.http("PUT", "/api/users/alice", body={"rocketmq_secret": f"{PLANT}-hers"}) == 204
    assert site.http("PUT", "/api/users/alice", body={"password": ALICE, "administrator": "no"}) == 400
    assert site.http("GET", "/api/users", f"root:{PLANT}-wrong") == 401
    assert site.http("GET", "/api/users", f"alice:{ALICE}") == 403
    assert site.http("GET", "/api/definitions") == 200
    assert site.kafka("PLAIN", f"\0alice\0{ALICE}".encode()) == 0
    assert site.kafka("PLAIN", f"\0alice\0{PLANT}-guess".encode()) == 58
    assert site.kafka("PLAIN", f"{PLANT} in a broken token".encode()) == 58
    assert site.kafka("SCRAM-SHA-256", f"n,,n=alice,r={PLANT}".encode()) == 0
    assert site.kafka("SCRAM-SHA-256", f"n,,{PLANT}".encode()) == 58
    assert b"Login was refused" in site.amqp("alice", f"{PLANT}-guess")
    site.amqp("alice", ALICE)
    carol = {"username": "carol", "password": f"{PLANT}carol", "userType": "Normal"}
    assert site.rocketmq(3001, SECRET, {"username": "carol"}, carol) == 0
    assert site.rocketmq(3001, f"{PLANT}-wrong", {"username": "carol"}, carol) == 16
    assert site.rocketmq(100, SECRET, {"namespace": "n", "key": "k", "value": f"{PLANT}-text"}) in (0, 3)


def written(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text("utf-8", "replace") for path in folder.iterdir() if path.is_file() and path.suffix
    }


def test_no_log_and_no_answer_tells_a_secret(site: Site) -> None:
    assert site.http("GET", "/metrics") == 200
    logs = written(site.folder)
    assert set(logs) == {"audit.jsonl", "broker.log", "ready.json"}
    assert [name for name, text in logs.items() if PLANT in text] == []
    # The nonce of SCRAM is public, and the broker must repeat it.
    assert [
        answer for answer in site.answers if PLANT.encode() in answer and b"r=" + PLANT.encode() not in answer
    ] == []
    for hidden in (ROOT, ALICE, SECRET):
        encoded = base64.b64encode(hidden.encode()).decode().rstrip("=")[:-2]
        assert [name for name, text in logs.items() if encoded in text] == []


def test_password_hashes_are_in_no_log(site: Site) -> None:
    kept = json.loads(next(answer for answer in site.answers if b'"password_hash"' in answer))
    hashes = [user["password_hash"] for user in kept["users"]]
    assert len(hashes) >= 2
    for name, text in written(site.folder).items():
        assert not any(each in text or each.rpartition("$")[2] in text for each in hashes), name


def test_the_audit_file_has_a_record_of_each_login_refusal_and_change(site: Site) -> None:
    records = [json.loads(line) for line in (site.folder / "audit.jsonl").read_text().splitlines()]
    logins = {
        (record["protocol"], record["mechanism"], record["principal"], record["result"])
        for record in records
        if record["event"] == "login"
    }
    assert logins >= {
        ("http", "Basic", "root", "success"),
        ("http", "Basic", "root", "failure"),
        ("http", "Basic", "alice", "success"),
        ("kafka", "PLAIN", "alice", "success"),
        ("kafka", "PLAIN", "alice", "failure"),
        ("amqp", "PLAIN", "alice", "success"),
        ("amqp", "PLAIN", "alice", "failure"),
        ("rocketmq", "HMAC-SHA1", "root", "success"),
        ("rocketmq", "HMAC-SHA1", "root", "failure"),
    }
    assert all(record["address"].startswith("127.0.0.1:") for record in records)
    refused = [record for record in records if record["event"] == "refused"]
    assert [(record["principal"], record["action"]) for record in refused if record["protocol"] == "http"] == [
        ("alice", "administer")
    ]
    changed = [
        (record["action"], record["resource"], record["name"]) for record in records if record["event"] == "changed"
    ]
    assert changed[:4] == [
        ("create", "user", "root"),
        ("create", "user", "alice"),
        ("alter", "user", "alice"),
        ("create", "user", "carol"),
    ]
