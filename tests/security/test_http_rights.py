"""Every HTTP route with every right: what is refused, that a refusal changes nothing, and the audit record of each."""

from __future__ import annotations

import ast
import base64
import http.client
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from security.rights_cells import (
    ADMINISTRATORS,
    CLUSTER,
    GROUP,
    SINGLES,
    TOPIC,
    USERS,
    AuditRecords,
    Need,
    Ways,
    all_of,
    audited,
    is_allowed,
    one_of,
    set_entries,
)

import trimq.server.http
from trimq.core.metadata.catalogue import Definition
from trimq.core.security.passwords import hash_password
from trimq.core.security.resources import Action
from trimq.core.security.users import User
from trimq.model import SYSTEM
from trimq.server.http.tenant_limits import _TENANTS
from trimq.server.node import Node
from trimq.testing import Broker

READ, WRITE, CREATE, DELETE = Action.READ, Action.WRITE, Action.CREATE, Action.DELETE
ALTER, DESCRIBE, ALTER_CONFIGS = Action.ALTER, Action.DESCRIBE, Action.ALTER_CONFIGS


class Row(NamedTuple):
    """`seen`: text that the answer has only if the caller may see it, for lists. `is_change`: leaves one audit record
    if it is allowed."""

    method: str
    target: str
    ways: Ways
    body: Any = None
    seen: str = ""
    is_change: bool = False

    @property
    def id(self) -> str:
        return f"{self.method} {self.target} {self.body or ''}".strip().replace(" ", "-")


_TOPIC_READER = all_of((READ, TOPIC))
_MOVED = {"cursors": [{"topic": "orders", "stream": 0, "offset": 0}]}
_MOVED_THERE = {"cursors": [{"topic": "rt", "stream": 0, "offset": 0}]}
_POLICY = {"pattern": "^q", "definition": {"max-length": 9}}
_ACL = "/api/acls?user=bob&resource=topic&action=read&name=orders"

ROWS = (
    Row("GET", "/api/topics", all_of((DESCRIBE, TOPIC)), seen='"orders"'),
    Row("POST", "/api/topics", one_of((CREATE, TOPIC), (CREATE, CLUSTER)), {"name": "new"}, is_change=True),
    Row("POST", "/api/topics", all_of((CREATE, TOPIC)), {"name": "rnew", "home": "commit-log"}, is_change=True),
    Row("GET", "/api/topics/orders", all_of((DESCRIBE, TOPIC))),
    Row("GET", "/api/topics/rt", all_of((DESCRIBE, TOPIC))),
    Row("GET", "/api/topics/none", all_of((DESCRIBE, TOPIC))),
    Row("PATCH", "/api/topics/orders", all_of((DESCRIBE, TOPIC), (ALTER_CONFIGS, TOPIC)),
        {"settings": {"retention_ms": "60000"}}, is_change=True),
    Row("DELETE", "/api/topics/orders",
        (frozenset({(DELETE, TOPIC)}), frozenset({(DELETE, CLUSTER), (DESCRIBE, TOPIC)})), is_change=True),
    Row("DELETE", "/api/topics/rt", all_of((DELETE, TOPIC)), is_change=True),
    Row("GET", "/api/topic-settings", USERS),
    Row("GET", "/api/groups", one_of((DESCRIBE, GROUP), (DESCRIBE, CLUSTER)), seen='"billing"'),
    Row("POST", "/api/groups", all_of((READ, GROUP)), {"name": "newg"}, is_change=True),
    Row("GET", "/api/groups/billing", all_of((DESCRIBE, GROUP))),
    Row("GET", "/api/groups/rg", all_of((DESCRIBE, GROUP))),
    Row("DELETE", "/api/groups/billing", all_of((DELETE, GROUP)), is_change=True),
    Row("DELETE", "/api/groups/rg?protocol=rocketmq", all_of((DELETE, GROUP)), is_change=True),
    Row("PUT", "/api/groups/billing/cursors", all_of((READ, GROUP), (READ, TOPIC)), _MOVED),
    Row("PUT", "/api/groups/rg/cursors?protocol=rocketmq", all_of((READ, GROUP), (READ, TOPIC)), _MOVED_THERE,
        is_change=True),
    Row("GET", "/api/connections", ADMINISTRATORS),
    Row("DELETE", "/api/connections/none", ADMINISTRATORS),
    Row("GET", "/api/producers", ADMINISTRATORS),
    Row("GET", "/api/limits", ADMINISTRATORS),
    Row("PATCH", "/api/limits", ADMINISTRATORS, {"channel_max": 100}, is_change=True),
    Row("GET", "/api/queues", all_of((DESCRIBE, TOPIC)), seen='"q"'),
    Row("GET", "/api/queues/q", all_of((DESCRIBE, TOPIC))),
    Row("GET", "/api/queues/none", all_of((DESCRIBE, TOPIC))),
    Row("DELETE", "/api/queues/q", all_of((DELETE, TOPIC)), is_change=True),
    Row("DELETE", "/api/queues/q/messages", all_of((READ, TOPIC)), is_change=True),
    Row("GET", "/api/failures", ADMINISTRATORS),
    Row("POST", "/api/failures/0/redrive", ADMINISTRATORS),
    Row("GET", "/api/users", ADMINISTRATORS),
    Row("PUT", "/api/users/bob", ADMINISTRATORS, {"administrator": False, "tags": ["a"]}, is_change=True),
    Row("PUT", "/api/users/alice", ADMINISTRATORS, {"administrator": True}, is_change=True),
    Row("PUT", "/api/users/new", ADMINISTRATORS, {"password": "planted"}, is_change=True),
    Row("DELETE", "/api/users/bob", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/permissions", ADMINISTRATORS),
    Row("PUT", "/api/permissions/bob", ADMINISTRATORS, {"read": ".*"}, is_change=True),
    Row("PUT", "/api/permissions/bob?vhost=none", ADMINISTRATORS, {"read": ".*"}),
    Row("DELETE", "/api/permissions/bob", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/topic-permissions", ADMINISTRATORS),
    Row("PUT", "/api/topic-permissions/bob", ADMINISTRATORS, {"exchange": "amq.topic", "read": ".*"}, is_change=True),
    Row("PUT", "/api/topic-permissions/bob?vhost=none", ADMINISTRATORS, {"exchange": "amq.topic"}),
    Row("DELETE", "/api/topic-permissions/bob", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/vhost-limits", ADMINISTRATORS),
    Row("PATCH", "/api/vhost-limits/shop", ADMINISTRATORS, {"max-queues": 9}, is_change=True),
    Row("GET", "/api/user-limits", ADMINISTRATORS),
    Row("PATCH", "/api/user-limits/bob", ADMINISTRATORS, {"max-channels": 9}, is_change=True),
    Row("GET", "/api/acls", all_of((DESCRIBE, CLUSTER))),
    Row("PUT", _ACL, all_of((ALTER, CLUSTER)), is_change=True),
    Row("DELETE", _ACL, all_of((ALTER, CLUSTER))),
    Row("GET", "/api/vhosts", USERS),
    Row("PUT", "/api/vhosts/new", ADMINISTRATORS, is_change=True),
    Row("DELETE", "/api/vhosts/shop", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/firehose", ADMINISTRATORS),
    Row("PUT", "/api/firehose/shop", ADMINISTRATORS, is_change=True),
    Row("DELETE", "/api/firehose/shop", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/policies", ADMINISTRATORS),
    Row("PUT", "/api/policies/p", ADMINISTRATORS, _POLICY, is_change=True),
    Row("PUT", "/api/policies/p?vhost=none", ADMINISTRATORS, _POLICY),
    Row("DELETE", "/api/policies/kept", ADMINISTRATORS, is_change=True),
    Row("GET", "/api/definitions", ADMINISTRATORS),
    Row("POST", "/api/definitions", ADMINISTRATORS, {}),
    Row("GET", "/api/addresses", USERS),
    Row("GET", "/api/streams", all_of((DESCRIBE, TOPIC)), seen='"orders"'),
    Row("GET", "/api/streams/orders", _TOPIC_READER),
    Row("GET", "/api/streams/rt", _TOPIC_READER),
    Row("GET", "/api/streams/q", _TOPIC_READER),
    Row("GET", "/api/explain?topic=orders&offset=0", _TOPIC_READER),
    Row("GET", "/log/orders/0", _TOPIC_READER),
    Row("GET", "/log/q/0", _TOPIC_READER),
)  # fmt: skip

PREPARED: tuple[tuple[str, str, Any], ...] = (
    *(("DELETE", f"/api/{kind}/new", None) for kind in ("users", "vhosts", "topics")),
    ("DELETE", "/api/topics/rnew", None),
    ("DELETE", "/api/groups/newg?protocol=rocketmq", None),
    ("PUT", "/api/vhosts/shop", None),
    ("POST", "/api/topics", {"name": "orders"}),
    ("POST", "/api/topics", {"name": "rt", "home": "commit-log", "streams": 4}),
    ("POST", "/api/groups", {"name": "rg"}),
    ("PUT", "/api/groups/billing/cursors", _MOVED),
    ("POST", "/api/definitions", {"queues": [{"name": "q"}]}),
    ("PUT", "/api/policies/kept", {"pattern": "^kept", "definition": {"max-length": 9}}),
    ("PUT", "/api/permissions/bob", {"read": "^x"}),
    ("PUT", "/api/topic-permissions/bob", {"exchange": "amq.fanout", "read": ".*"}),
    ("PATCH", "/api/vhost-limits/shop", {"max-queues": 5}),
    ("PATCH", "/api/user-limits/bob", {"max-channels": 5}),
    ("PATCH", "/api/limits", {"channel_max": 2000}),
    ("DELETE", "/api/firehose/shop", None),
    ("DELETE", _ACL, None),
)
HASHES = {name: hash_password(f"{name}'s", b"salt" * 4) for name in ("root", "alice", "bob")}
WITHOUT_LOGIN = ("/healthz", "/readyz", "/metrics")


class World:
    """A broker with a topic, a group, a queue and more of each kind; `root` may administer, `alice` has the rights that
    a test gives her."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        host, _, port = broker.addresses["http"].rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=20)
        self.prepare()

    def close(self) -> None:
        self._connection.close()

    def prepare(self) -> None:
        """Restores what an allowed request may have changed."""
        self._broker.on_loop(_put_users)
        for method, target, body in PREPARED:
            status, text, _ = self.ask(method, target, "root", body)
            assert status < 300 or status in (404, 409), (target, status, text)

    def set_entries(self, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
        self._broker.on_loop(lambda node: set_entries(node.core.broker._access, allowed, denied))

    def ask(self, method: str, target: str, user: str | None, body: Any = None) -> tuple[int, str, Any]:
        headers = {}
        if user is not None:
            headers["authorization"] = "Basic " + base64.b64encode(f"{user}:{user}'s".encode()).decode()
        self._connection.request(method, target, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace"), response.headers

    def state(self) -> dict[str, Any]:
        """Everything that a request could change, except entries."""
        return self._broker.on_loop(_state)

    def is_refused(self, row: Row, user: str | None) -> bool:
        """Returns whether the request was refused, after checking that nothing was changed."""
        before = self.state()
        status, text, _ = self.ask(row.method, row.target, user, row.body)
        assert status < 500, (row.id, status, text)
        refused = status in (401, 403) or (bool(row.seen) and row.seen not in text)
        if refused:
            assert status == (401 if user is None else 200 if row.seen else 403), (row.id, status, text)
            assert self.state() == before
        elif row.method != "GET":
            self.prepare()
        return refused


def _put_users(node: Node) -> None:
    for name in ("root", "alice", "bob"):
        node.core.broker._access.put_user(User(name, HASHES[name], is_administrator=name == "root"))


def _state(node: Node) -> dict[str, Any]:
    core = node.core
    kinds: dict[str, dict[str, Definition]] = core.broker._access._users._catalogue._kinds
    return {
        "definitions": {kind: dict(found) for kind, found in kinds.items() if kind != "acl"},
        "ends": {str(topic.name): [(s.start, s.end) for s in topic.streams] for topic in core.topics},
        "cursors": {group: dict(core.cursors.all(group)) for group in ("billing", "rg")},
        "limits": core.broker.limits.get(SYSTEM),
        "firehose": core.broker.firehose.all(SYSTEM),
    }


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with Broker(log_audit_per_minute=0) as broker:
        world = World(broker)
        yield world
        world.close()


@pytest.fixture
def audit() -> Iterator[AuditRecords]:
    with audited() as records:
        yield records


def routes_of_source() -> dict[str, list[tuple[str, ...]]]:
    """Returns the paths that each module compares a request with: words, and `*` for a name."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(Path(trimq.server.http.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        if not any(isinstance(node, ast.FunctionDef) and node.name == "answer" for node in ast.walk(tree)):
            continue
        lists = [node.patterns for node in ast.walk(tree) if isinstance(node, ast.MatchSequence)]
        compared = [node.comparators[0] for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        lists += [node.elts for node in compared if isinstance(node, ast.List)]
        paths = {tuple(_word(part) for part in parts) for parts in lists}
        if path.stem == "tenant_limits":  # the first word after `api` is looked up
            paths = {("api", *rest) for name in _TENANTS for rest in ((name,), (name, "*"))}
        found[path.stem] = sorted(each for each in paths if each and each[0] in ("api", "log"))
    return found


def _word(part: Any) -> str:
    value = part.value if isinstance(part, ast.MatchValue) else part
    return str(value.value) if isinstance(value, ast.Constant) else "*"


def test_every_route_with_every_method_has_a_row(world: World) -> None:
    """The paths are those of the source; the methods of each are those that the broker lists for it."""
    by_module = routes_of_source()
    delegated = {"topics", "commit_log_topics"}  # the second serves paths of the first
    assert [name for name, paths in by_module.items() if not paths and name not in delegated] == []
    served = set()
    for route in {route for routes in by_module.values() for route in routes}:
        status, _, headers = world.ask("BREW", "/" + "/".join(route).replace("*", "0"), "root")
        assert status == 405, route
        served |= {(method, route) for method in headers["allow"].split(", ") if method != "HEAD"}
    words = {route for _, route in served}
    assert {(row.method, _route_of(row.target, words)) for row in ROWS} == served


def _route_of(target: str, routes: set[tuple[str, ...]]) -> tuple[str, ...]:
    words = target.partition("?")[0].split("/")[1:]
    fitting = [
        route
        for route in routes
        if len(route) == len(words) and all(part in ("*", word) for part, word in zip(route, words, strict=True))
    ]
    return max(fitting, key=lambda route: -route.count("*"))


def check(world: World, audit: AuditRecords, row: Row, granted: Iterable[Need], about: str) -> None:
    audit.take("")
    refused = world.is_refused(row, "alice")
    assert refused is not is_allowed(row.ways, granted), (
        f"{row.id} was {'refused' if refused else 'allowed'} to {about}"
    )
    if refused and not row.seen:
        check_record(audit, row, "alice")


def check_record(audit: AuditRecords, row: Row, principal: str) -> None:
    (record,) = audit.take("refused")
    assert (record["principal"], record["protocol"]) == (principal, "http"), row.id


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_request_is_allowed_by_exactly_the_rights_that_its_row_names(
    world: World, audit: AuditRecords, row: Row
) -> None:
    world.set_entries([])
    audit.take("")
    assert world.is_refused(row._replace(seen=""), None), f"{row.id} was allowed without a login"
    check_record(audit, row, "anonymous")
    check(world, audit, row, [], "a user without a right")
    for single in SINGLES:
        world.set_entries([single])
        check(world, audit, row, [single], f"a user who may {single}")
    for way in row.ways:
        world.set_entries(way)
        check(world, audit, row, way, "a user with all rights that are needed")
    world.set_entries([])
    world.prepare()
    audit.take("")
    status, text, _ = world.ask(row.method, row.target, "root", row.body)
    assert status not in (401, 403), text
    assert row.seen in text
    changes = audit.take("changed")
    assert [change["principal"] for change in changes] == ["root"] * row.is_change, changes
    world.prepare()


@pytest.mark.parametrize("row", [row for row in ROWS if any(row.ways)], ids=lambda row: row.id)
def test_a_denial_beats_everything_that_allows(world: World, audit: AuditRecords, row: Row) -> None:
    needs = {need for way in row.ways for need in way}
    for need in needs if len(row.ways) == 1 else ():
        world.set_entries(SINGLES, [need])
        assert world.is_refused(row, "alice"), f"{row.id} was allowed in spite of a denial of {need}"
    world.set_entries(SINGLES, needs)
    assert world.is_refused(row, "alice")
    assert not world.is_refused(row, "root")


@pytest.mark.parametrize("path", WITHOUT_LOGIN)
def test_health_and_metrics_need_no_login(world: World, path: str) -> None:
    assert world.ask("GET", path, None)[0] == 200
