"""The first administrator: by command, by setting, and when the password is lost; and what an open broker says."""

from __future__ import annotations

import base64
import json
import logging
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.broker import running

REQUIRED = ("--security-mode", "required")
NEW = {"TRIMQ_NEW_PASSWORD": "secret"}
PATIENCE_S = 20
SILENT = logging.getLogger("silent")
SILENT.setLevel(logging.CRITICAL)


def ask(address: str, method: str, path: str, body: object = None, login: str = "root:secret") -> tuple[int, Any]:
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    headers = {"authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        received = response.read()
        return response.status, json.loads(received) if received else None
    finally:
        connection.close()


def administrators(address: str, login: str = "root:secret") -> list[str]:
    users = ask(address, "GET", "/api/users", login=login)[1]["users"]
    return [user["name"] for user in users if user["administrator"]]


def kafka_logs_in(address: str, mechanism: str, password: str) -> bool:
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    client = AdminClient(
        {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "logger": SILENT, **login}
    )
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def test_the_first_administrator_is_defined_while_the_broker_is_stopped(trimq, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    done = trimq("users", "bootstrap", "root", "--data-dir", data, environment=NEW)
    assert (done.returncode, done.stdout) == (0, f"defined administrator root in {data}\n")
    with running(tmp_path, REQUIRED) as broker:
        assert administrators(broker["http"]) == ["root"]
        assert ask(broker["http"], "GET", "/api/users", login="")[0] == 401
        running_already = trimq("users", "bootstrap", "eve", "--data-dir", data, environment=NEW)
        assert running_already.returncode == 2
        assert "in use" in running_already.stderr


def test_a_lost_administrator_is_given_a_new_password_and_all_rights(trimq, tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        assert ask(broker["http"], "PUT", "/api/users/root", {"password": "x", "administrator": True}, "")[0] == 200
        assert ask(broker["http"], "PUT", "/api/users/alice", {"password": "forgotten"}, "root:x")[0] == 204
        assert ask(broker["http"], "POST", "/api/topics", {"name": "orders", "streams": 1}, "root:x")[0] == 201
    (tmp_path / "ready.json").unlink()
    done = trimq("users", "bootstrap", "alice", "--data-dir", str(tmp_path / "data"), environment=NEW)
    assert done.stdout.startswith("set the password of administrator alice")
    with running(tmp_path) as broker:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            assert kafka_logs_in(broker["kafka"], mechanism, "secret")
            assert not kafka_logs_in(broker["kafka"], mechanism, "forgotten")
        assert "alice" in administrators(broker["http"], "alice:secret")
        assert ask(broker["http"], "GET", "/api/topics/orders", login="alice:secret")[0] == 200
        assert ask(broker["http"], "GET", "/api/users", login="alice:forgotten")[0] == 401


def test_without_a_password_nothing_is_defined(trimq, tmp_path: Path) -> None:
    done = trimq("users", "bootstrap", "root", "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, done.stderr) == (2, "trimq: put the password of root into TRIMQ_NEW_PASSWORD\n")
    assert not (tmp_path / "data").exists()


def test_the_first_administrator_is_defined_at_the_start_from_a_file_and_only_once(tmp_path: Path) -> None:
    password = tmp_path / "password"
    words = (*REQUIRED, "--security-administrator", "root", "--security-administrator-password-file", str(password))
    password.write_text("secret\n")
    with running(tmp_path, words) as broker:
        assert ask(broker["http"], "GET", "/api/users")[0] == 200
    password.write_text("other\n")
    (tmp_path / "ready.json").unlink()
    with running(tmp_path, words) as broker:
        assert ask(broker["http"], "GET", "/api/users")[0] == 200
        assert ask(broker["http"], "GET", "/api/users", login="root:other")[0] == 401
    assert "secret" not in (tmp_path / "broker.log").read_text()


@pytest.mark.parametrize("content", [None, ""])
def test_an_administrator_without_a_password_stops_the_start(trimq, tmp_path: Path, content: str | None) -> None:
    password = tmp_path / "password"
    if content is not None:
        password.write_text(content)
    words = ("--security-administrator", "root", "--security-administrator-password-file", str(password))
    done = trimq("serve", "--data-dir", str(tmp_path / "data"), *words)
    assert done.returncode == 2
    assert "password" in done.stderr


def test_a_broker_that_requires_logins_and_has_no_user_serves_nobody_and_says_why(tmp_path: Path) -> None:
    with running(tmp_path, REQUIRED) as broker:
        assert ask(broker["http"], "PUT", "/api/users/eve", {"password": "e", "administrator": True}, "")[0] == 401
        assert ask(broker["http"], "GET", "/api/users", login="guest:guest")[0] == 401
        banner = (tmp_path / "broker.log").read_text()
        assert "trimq users bootstrap NAME" in banner
        assert "guest:guest" not in banner


def test_a_local_broker_is_open_and_says_how_to_close_it(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        assert ask(broker["http"], "GET", "/api/topics", login="")[0] == 200
        banner = (tmp_path / "broker.log").read_text()
        assert "open: clients of this broker need no login" in banner
        assert "WARNING" not in banner


# An address that is not known to be loopback before it is resolved, as a host name; it leads to this machine only.
ELSEWHERE = ("--http-listen", "127.1:0")


def test_a_broker_that_other_machines_may_reach_requires_logins(tmp_path: Path) -> None:
    with running(tmp_path, ELSEWHERE) as broker:
        assert ask(broker["http"], "GET", "/api/topics", login="")[0] == 401
        assert ask(broker["http"], "PUT", "/api/users/eve", {"password": "e", "administrator": True}, "")[0] == 401
        assert "only users may do anything here" in (tmp_path / "broker.log").read_text()


def test_a_broker_that_is_open_to_other_machines_warns(tmp_path: Path) -> None:
    with running(tmp_path, (*ELSEWHERE, "--security-mode", "open")) as broker:
        assert ask(broker["http"], "GET", "/api/topics", login="")[0] == 200
        log = (tmp_path / "broker.log").read_text()
        assert "WARNING" in log
        assert "security.mode is open for http.listen" in log
