"""`trimq queues`, `failures`, `users`, `vhosts`, `policies` and `definitions` against a double of the HTTP port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

QUEUE = {
    "name": "orders", "vhost": "/", "type": "classic", "durable": True, "exclusive": False, "auto_delete": False,
    "ready": 12, "unacknowledged": 3, "consumers": 1,
}  # fmt: skip
CONSUMER = {"tag": "c", "prefetch": 5, "unacknowledged": 3, "acknowledges": True, "active": True, "priority": 0}
FAILURE = {
    "id": 7, "queue": "orders", "vhost": "/", "group": "g", "reason": "expired", "attempts": 2, "time_ms": 99,
    "redriven": False, "bytes": 5, "body": "aGVsbG8=",
}  # fmt: skip


def test_queues_are_listed_in_columns(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/queues?vhost=%2F"] = 200, {"queues": [QUEUE]}
    done = trimq("queues", "list", "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "name    vhost  type     ready  unacknowledged  consumers",
        "orders  /      classic     12               3          1",
    ]
    as_json = trimq("queues", "list", "--json", "--http", broker_http.address)
    assert json.loads(as_json.stdout) == {"queues": [QUEUE]}


def test_a_queue_is_described_with_its_consumers(trimq, broker_http) -> None:
    described = QUEUE | {
        "id": "5f",
        "arguments": {"x-max-length": 9, "x-expires": 60000},
        "bytes": 1,
        "consumer_details": [CONSUMER],
    }
    broker_http.answers["GET", "/api/queues/a%2Fb?vhost=shop"] = 200, described
    done = trimq("queues", "describe", "a/b", "--vhost", "shop", "--http", broker_http.address)
    lines = done.stdout.splitlines()
    assert "x-max-length    9" in lines
    assert "x-expires       60000 (1 minute)" in lines
    assert lines[-1].split() == ["c", "5", "3", "yes", "yes", "0"]


def test_a_queue_is_purged_and_deleted(trimq, broker_http) -> None:
    broker_http.answers["DELETE", "/api/queues/q/messages?vhost=%2F"] = 200, {"purged": 5}
    broker_http.answers["DELETE", "/api/queues/q?vhost=%2F"] = 204, None
    purged = trimq("queues", "purge", "q", "--http", broker_http.address)
    assert (purged.returncode, purged.stdout) == (0, "removed 5 messages of q\n")
    deleted = trimq("queues", "delete", "q", "--http", broker_http.address)
    assert (deleted.returncode, deleted.stdout) == (0, "deleted q\n")


def test_failures_are_listed_and_sent_again(trimq, broker_http) -> None:
    path = "/api/failures?vhost=%2F&from=5&limit=10"
    broker_http.answers["GET", path] = 200, {"failures": [FAILURE], "next": 8}
    broker_http.answers["POST", "/api/failures/7/redrive?vhost=%2F"] = 204, None
    flags = ("--from", "5", "--limit", "10", "--http", broker_http.address)
    listed = trimq("failures", "list", *flags, environment={"TZ": "Etc/GMT-2"})
    time = ["1970-01-01", "02:00:00"]
    assert listed.stdout.splitlines()[1].split() == ["7", "orders", "g", "expired", "2", *time, "no", "5", "hello"]
    sent = trimq("failures", "redrive", "7", "--http", broker_http.address)
    assert (sent.returncode, sent.stdout) == (0, "sent 7 again\n")
    missing = trimq("failures", "redrive", "8", "--http", broker_http.address)
    assert missing.returncode == 1
    assert "no resource at" in missing.stderr


def test_users_are_listed_with_their_permissions(trimq, broker_http) -> None:
    right = {"user": "alice", "vhost": "/", "configure": "^a", "write": ".*", "read": ""}
    broker_http.answers["GET", "/api/users"] = (
        200,
        {"users": [{"name": "alice", "administrator": False, "tags": ["monitoring"], "rocketmq_secret": True}]},
    )
    broker_http.answers["GET", "/api/permissions"] = 200, {"permissions": [right]}
    topic_right = {"user": "alice", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": ""}
    broker_http.answers["GET", "/api/topic-permissions"] = 200, {"topic_permissions": [topic_right]}
    limits = {"user": "alice", "limits": {"max-connections": 3}}
    broker_http.answers["GET", "/api/user-limits"] = 200, {"limits": [limits]}
    done = trimq("users", "list", "--http", broker_http.address)
    assert done.stdout.splitlines() == [
        "user   tags        RocketMQ secret  limits",
        "alice  monitoring  yes              max-connections=3",
        "",
        "user   vhost  configure  write  read",
        "alice  /      ^a         .*",
        "",
        "user   vhost  exchange   write  read",
        "alice  /      amq.topic  ^a",
    ]


def test_a_user_is_set_and_the_password_is_in_no_argument(trimq, broker_http) -> None:
    broker_http.answers["PUT", "/api/users/alice"] = 200, {"message": "every client must log in"}
    done = trimq(
        "users", "set", "alice", "--administrator", "yes", "--http", broker_http.address,
        environment={"TRIMQ_NEW_PASSWORD": "secret"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "set alice\n")
    assert "every client must log in (trimq users delete guest)" in done.stderr
    assert broker_http.asked == [("PUT", "/api/users/alice", {"password": "secret", "administrator": True})]
    nothing = trimq("users", "set", "alice", "--http", broker_http.address)
    assert nothing.returncode == 2


def test_a_login_is_taken_from_the_environment(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/vhosts"] = 200, {"vhosts": [{"name": "/", "limits": {}}]}
    login = {"TRIMQ_USER": "root", "TRIMQ_PASSWORD": "se:cret"}
    done = trimq("vhosts", "list", "--http", broker_http.address, environment=login)
    assert done.stdout == "name  limits\n/\n"
    assert broker_http.logins == ["Basic cm9vdDpzZTpjcmV0"]


@pytest.mark.parametrize(
    ("words", "method", "path", "body"),
    [
        (("users", "delete", "alice"), "DELETE", "/api/users/alice", None),
        (
            ("users", "grant", "alice", "--vhost", "shop", "--read", "^x"),
            "PUT",
            "/api/permissions/alice?vhost=shop",
            {"configure": "", "write": "", "read": "^x"},
        ),
        (("users", "revoke", "alice"), "DELETE", "/api/permissions/alice?vhost=%2F", None),
        (("vhosts", "create", "my shop"), "PUT", "/api/vhosts/my%20shop", {}),
        (("vhosts", "delete", "shop"), "DELETE", "/api/vhosts/shop", None),
        (
            ("policies", "set", "p", "^q", '{"max-length": 5}', "--priority", "2"),
            "PUT",
            "/api/policies/p?vhost=%2F",
            {"pattern": "^q", "definition": {"max-length": 5}, "priority": 2, "apply_to": "all"},
        ),
        (("policies", "delete", "p"), "DELETE", "/api/policies/p?vhost=%2F", None),
    ],
)
def test_a_change_is_requested(trimq, broker_http, words, method, path, body) -> None:
    broker_http.answers[method, path] = 204, None
    done = trimq(*words, "--http", broker_http.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert broker_http.asked == [(method, path, body)]


def test_policies_are_listed(trimq, broker_http) -> None:
    policy = {
        "name": "p", "vhost": "/", "pattern": "^q", "definition": {"expires": 5}, "priority": 1, "apply_to": "queues",
    }  # fmt: skip
    broker_http.answers["GET", "/api/policies?vhost=%2F"] = 200, {"policies": [policy]}
    done = trimq("policies", "list", "--http", broker_http.address)
    assert done.stdout.splitlines()[1].split() == ["p", "/", "^q", "queues", "1", '{"expires":5}']


def test_a_definition_that_is_not_json_is_refused(trimq, broker_http) -> None:
    done = trimq("policies", "set", "p", "^q", "max-length=5", "--http", broker_http.address)
    assert done.returncode == 2
    assert "not a JSON object" in done.stderr


def test_definitions_are_exported_and_imported(trimq, broker_http, tmp_path: Path) -> None:
    document = {"vhosts": ["/"], "users": []}
    broker_http.answers["GET", "/api/definitions"] = 200, document
    broker_http.answers["POST", "/api/definitions"] = 204, None
    exported = trimq("definitions", "export", "--http", broker_http.address)
    assert json.loads(exported.stdout) == document
    kept = tmp_path / "kept.json"
    kept.write_text(exported.stdout)
    imported = trimq("definitions", "import", str(kept), "--http", broker_http.address)
    assert (imported.returncode, imported.stdout) == (0, "imported the definitions\n")
    assert broker_http.asked[-1] == ("POST", "/api/definitions", document)
