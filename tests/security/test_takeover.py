"""Attack t1: whoever comes first must not become the administrator of a broker that demands logins, and nobody opens it
again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pika
import pytest
from protocols.kafka.frames import request_frame
from security.attacked import connect, is_closed

from tools.broker import running
from tools.rocketmq_wire import Wire
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest

ROOT = "root:secret"
EVIL = {"password": "e", "administrator": True}
HASH = "scrypt$1$8$1$c2FsdA==$AAAA"

ATTEMPTS: dict[str, tuple[str, str, object]] = {
    "a user": ("PUT", "/api/users/evil", EVIL),
    "guest": ("PUT", "/api/users/guest", EVIL),
    "another password": ("PUT", "/api/users/root", EVIL),
    "no users": ("DELETE", "/api/users/root", None),
    "definitions": (
        *("POST", "/api/definitions"),
        {"users": [{"name": "evil", "password_hash": HASH, "administrator": True}]},
    ),
    "a permission": ("PUT", "/api/permissions/anonymous", {"configure": ".*", "write": ".*", "read": ".*"}),
    "an entry": ("PUT", "/api/acls?user=*&resource=topic&name=*&action=all", None),
}


def request(
    addresses: dict[str, str], method: str, path: str, body: object = None, login: str | None = None
) -> tuple[int, Any]:
    """Returns status and content."""
    headers = {} if login is None else {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    content = None if body is None else json.dumps(body).encode()
    made = Request(f"http://{addresses['http']}{path}", content, headers, method=method)
    try:
        with urlopen(made, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.fixture(params=["with an administrator", "without a user"])
def closed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    with running(tmp_path, flags(tmp_path, request.param == "with an administrator")) as addresses:
        yield addresses


def flags(folder: Path, has_administrator: bool) -> list[str]:
    if not has_administrator:
        return ["--security-mode", "required"]
    password = folder / "password"
    password.touch(0o600)
    password.write_text("secret")
    return [
        *("--security-mode", "required", "--security-administrator", "root"),
        *("--security-administrator-password-file", str(password)),
    ]


def test_without_a_login_nobody_changes_users_or_rights(closed: dict[str, str], tmp_path: Path) -> None:
    for attempt, (method, path, body) in ATTEMPTS.items():
        assert request(closed, method, path, body)[0] == 401, attempt
    if (tmp_path / "password").exists():
        code, users = request(closed, "GET", "/api/users", login=ROOT)
        assert (code, [user["name"] for user in users["users"]]) == (200, ["root"])
        assert request(closed, "GET", "/api/permissions", login=ROOT) == (200, {"permissions": []})
        assert request(closed, "GET", "/api/acls", login=ROOT) == (200, {"acls": []})


def test_without_a_login_nobody_makes_topics_or_queues(closed: dict[str, str], tmp_path: Path) -> None:
    with connect(closed["kafka"]) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        connection.sendall(request_frame(CreateTopicsRequest(topics=[topic]), 5))
        assert is_closed(connection, 10)
    with Wire(closed["rocketmq_broker"]) as wire:
        header, _ = wire.ask(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
        assert header["code"] == 16  # NO_PERMISSION
    host, _, port = closed["amqp"].rpartition(":")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    assert request(closed, "POST", "/api/topics", {"name": "t", "partitions": 1})[0] == 401
    if (tmp_path / "password").exists():
        code, topics = request(closed, "GET", "/api/topics", login=ROOT)
        assert code == 200
        assert "t" not in {topic["name"] for topic in topics["topics"]}


def test_the_last_administrator_is_neither_deleted_nor_demoted_and_a_restart_opens_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        with running(tmp_path, flags(tmp_path, True)) as addresses:
            assert request(addresses, "DELETE", "/api/users/root", login=ROOT)[0] == 400
            assert request(addresses, "PUT", "/api/users/root", {"administrator": False}, login=ROOT)[0] == 400
            assert request(addresses, "GET", "/api/users")[0] == 401
            assert request(addresses, "PUT", "/api/users/evil", EVIL)[0] == 401
            _, users = request(addresses, "GET", "/api/users", login=ROOT)
            assert [(user["name"], user["administrator"]) for user in users["users"]] == [("root", True)]
        (tmp_path / "ready.json").unlink()
