"""Exchanges, bindings and routing."""

from __future__ import annotations

import pytest
from doubles import PassRunner

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.routing.bindings import Binding, MessageHeaders
from trimq.core.routing.exchanges import Exchanges
from trimq.core.routing.router import Router, copied_keys
from trimq.errors import Refusal
from trimq.errors.queues import (
    DefaultExchange,
    ExchangeInUse,
    Inequivalent,
    InvalidHash,
    InvalidHeader,
    InvalidMatch,
    InvalidWeight,
    ReservedName,
    SystemExchange,
    UnknownExchange,
    UnknownExchangeKind,
)
from trimq.formats.amqp_content.field_tables import FieldTable, Octets, Short, Value
from trimq.formats.amqp_content.property_list import EMPTY
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table


class World:
    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = files or MemoryFiles()
        self.runner = PassRunner(self.files)
        table = open_table(self.files, "tables", "catalogue", self.runner.passes, Definition, self.runner.offload)
        self.catalogue = Catalogue(table)
        self.exchanges = Exchanges(self.catalogue, lambda namespace, name: not name.startswith("transient"))
        self.router = Router(self.exchanges)
        self.exchanges.open()

    def restart(self) -> World:
        self.runner.settle()
        return World(self.files)

    def declare(
        self,
        name: str,
        kind: str = "direct",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable | None = None,
    ) -> None:
        self.exchanges.declare("", name, kind, durable, auto_delete, internal, arguments or {})

    def bind(self, source: str, queue: str, key: str = "", arguments: FieldTable | None = None) -> None:
        self.exchanges.bind("", Binding(source, queue, True, key, arguments or {}))

    def bind_exchange(self, source: str, destination: str, key: str = "") -> None:
        self.exchanges.bind("", Binding(source, destination, False, key, {}))

    def unbind(self, source: str, queue: str, key: str = "") -> None:
        self.exchanges.unbind("", Binding(source, queue, True, key, {}))

    def route(self, exchange: str, *keys: str, headers: FieldTable | None = None) -> list[str]:
        return sorted(
            self.router.route(self.exchanges.get("", exchange), keys, lambda: MessageHeaders(headers or {}, EMPTY))
        )


def test_each_kind_of_exchange_routes() -> None:
    world = World()
    for kind in ("direct", "fanout", "topic", "headers"):
        world.declare(f"my.{kind}", kind)
        world.bind(f"my.{kind}", "q1", "a.b")
        world.bind(f"my.{kind}", "q2", "a.*", {"x": Short(1)})
    assert world.route("my.direct", "a.b") == ["q1"]
    assert world.route("my.fanout", "other") == ["q1", "q2"]
    assert world.route("my.topic", "a.c") == ["q2"]
    assert world.route("my.headers", "", headers={"x": 1}) == ["q1", "q2"]
    assert world.route("my.headers", "") == ["q1"]
    assert world.route("", "q7", "q8") == ["q7", "q8"]


def test_a_cached_route_is_dropped_when_bindings_change() -> None:
    world = World()
    world.bind("amq.direct", "q1", "k")
    assert world.route("amq.direct", "k") == ["q1"]
    assert world.router.known("", "amq.direct", "k") == ("q1",)
    world.bind("amq.direct", "q2", "k")
    assert world.router.known("", "amq.direct", "k") is None
    assert world.route("amq.direct", "k") == ["q1", "q2"]
    world.bind("amq.match", "q1", arguments={"a": 1})
    assert world.route("amq.match", "", headers={"a": 1}) == ["q1"]
    assert world.router.known("", "amq.match", "") is None


def test_a_queue_is_routed_to_once_through_cycles_and_duplicate_bindings() -> None:
    world = World()
    world.declare("x", "fanout")
    world.declare("y", "fanout")
    world.bind_exchange("x", "y")
    world.bind_exchange("y", "x")
    for key in ("1", "2"):
        world.bind("x", "q", key)
        world.bind("y", "q", key)
    assert world.route("x", "k") == ["q"]


def test_an_alternate_exchange_gets_unrouted_messages() -> None:
    world = World()
    world.declare("x", arguments={"alternate-exchange": "ae"})
    world.bind("x", "q", "k")
    assert world.route("x", "other") == []  # the alternate exchange may be missing
    world.declare("ae", "fanout")
    world.bind("ae", "rest")
    assert world.route("x", "other") == ["rest"]
    assert world.route("x", "k") == ["q"]


def test_an_auto_delete_exchange_is_deleted_with_its_last_binding_as_source() -> None:
    world = World()
    world.declare("x", auto_delete=True)
    world.declare("source", "fanout")
    world.bind_exchange("source", "x")
    world.exchanges.unbind("", Binding("source", "x", False, "", {}))
    assert world.exchanges.find("", "x") is not None
    world.bind("x", "q", "1")
    world.bind("x", "q", "2")
    world.unbind("x", "q", "1")
    assert world.exchanges.find("", "x") is not None
    world.exchanges.unbind_queue("", "q")
    assert world.exchanges.find("", "x") is None


def test_a_chain_of_auto_delete_exchanges_is_deleted_together() -> None:
    world = World()
    world.declare("x", auto_delete=True)
    world.declare("y", auto_delete=True)
    world.bind_exchange("x", "y")
    world.bind("y", "q")
    world.exchanges.unbind_queue("", "q")
    assert world.exchanges.find("", "y") is None
    assert world.exchanges.find("", "x") is None


def test_only_durable_definitions_survive_a_restart() -> None:
    world = World()
    world.declare("x", "topic", arguments={"alternate-exchange": "ae", "other": [1, b"x"]})
    world.declare("transient", "fanout", durable=False)
    world.bind("x", "q", "a.#", {"n": 1})
    world.bind("x", "transient queue", "a.#")
    world.bind("amq.fanout", "q")
    world.bind("transient", "q")
    world = world.restart()
    assert world.route("x", "a.b") == ["q"]
    assert world.route("amq.fanout", "") == ["q"]
    assert world.exchanges.find("", "transient") is None
    assert world.exchanges.get("", "x").arguments == {"alternate-exchange": "ae", "other": [1, b"x"]}
    world.exchanges.delete("", "x", if_unused=False)
    world = world.restart()
    assert world.exchanges.find("", "x") is None
    assert world.exchanges.bindings_of("", "q") == [Binding("amq.fanout", "q", True, "", {})]


def test_definitions_of_a_refused_pass_are_undone() -> None:
    world = World()
    world.declare("old")
    world.bind("old", "q", "kept")
    world.runner.settle()
    world.declare("new")
    world.bind("new", "q", "k")
    world.bind("old", "q", "k")
    world.unbind("old", "q", "kept")
    world.catalogue._table.undo_pass(Refusal(), type("D", (), {"files": set(), "folders": set()})())  # type: ignore[attr-defined]
    assert world.exchanges.find("", "new") is None
    assert world.route("old", "k") == []
    assert world.route("old", "kept") == ["q"]


def test_namespaces_do_not_see_each_other() -> None:
    world = World()
    world.exchanges.declare("other", "x", "direct", True, False, False, {})
    assert world.exchanges.find("", "x") is None
    assert world.exchanges.get("other", "amq.topic").kind == "topic"


CHANGES: list[tuple[str, dict[str, object], str]] = [
    ("type", {"kind": "fanout"}, "direct"),
    ("durable", {"durable": False}, "True"),
    ("auto_delete", {"auto_delete": True}, "False"),
    ("internal", {"internal": True}, "False"),
    ("alternate-exchange", {"arguments": {"alternate-exchange": "b"}}, "a"),
]


@pytest.mark.parametrize(("argument", "change", "current"), CHANGES)
def test_another_declaration_of_the_same_name_is_refused(
    argument: str, change: dict[str, object], current: str
) -> None:
    world = World()
    same: dict[str, object] = {"arguments": {"alternate-exchange": "a"}}
    world.declare("x", **same)  # type: ignore[arg-type]
    world.declare("x", arguments={"alternate-exchange": "a", "not compared": 1})
    with pytest.raises(Inequivalent) as refused:
        world.declare("x", **{**same, **change})  # type: ignore[arg-type]
    assert (refused.value.argument, str(refused.value.current)) == (argument, current)


@pytest.mark.parametrize(
    ("verb", "refusal"),
    [
        (lambda world: world.declare("x", "x-nope"), UnknownExchangeKind),
        (lambda world: world.declare("amq.foo"), ReservedName),
        (lambda world: world.declare(""), DefaultExchange),
        (lambda world: world.exchanges.delete("", "amq.direct", False), SystemExchange),
        (lambda world: world.exchanges.delete("", "", False), DefaultExchange),
        (lambda world: world.exchanges.delete("", "used", True), ExchangeInUse),
        (lambda world: world.bind("nope", "q"), UnknownExchange),
        (lambda world: world.bind("", "q"), DefaultExchange),
        (lambda world: world.bind_exchange("amq.direct", "nope"), UnknownExchange),
        (lambda world: world.bind("amq.headers", "q", "", {"x-match": "foo"}), InvalidMatch),
        (lambda world: world.bind("hash", "q", "none"), InvalidWeight),
        (lambda world: world.declare("h", "x-consistent-hash", arguments={"hash-property": "type"}), InvalidHash),
        (lambda world: world.declare("h", "x-consistent-hash", arguments={"hash-header": 5}), InvalidHash),
        (
            lambda world: world.declare(
                "h", "x-consistent-hash", arguments={"hash-header": "a", "hash-property": "message_id"}
            ),
            InvalidHash,
        ),
    ],
)
def test_invalid_declarations_and_bindings_are_refused(verb: object, refusal: type[Refusal]) -> None:
    world = World()
    world.declare("used")
    world.bind("used", "q")
    world.declare("hash", "x-consistent-hash")
    with pytest.raises(refusal):
        verb(world)  # type: ignore[operator]


def test_deleting_a_missing_exchange_or_binding_is_no_error() -> None:
    world = World()
    assert world.exchanges.delete("", "nope", False) is None
    world.unbind("nope", "q")
    world.unbind("amq.direct", "q", "never bound")
    world.declare("amq.direct")


def test_a_hash_exchange_chooses_one_queue() -> None:
    world = World()
    world.declare("hash", "x-consistent-hash")
    world.declare("by header", "x-consistent-hash", arguments={"hash-header": "customer"})
    for queue in ("a", "b", "c"):
        world.bind("hash", queue, "2")
        world.bind("by header", queue, "1")
    assert {len(world.route("hash", f"key {number}")) for number in range(50)} == {1}
    assert len({world.route("hash", f"key {number}")[0] for number in range(50)}) == 3
    routes = {world.route("by header", "same", headers={"customer": str(number)})[0] for number in range(50)}
    assert len(routes) == 3


@pytest.mark.parametrize("value", ["text", 5, b"octets", {"a": 1}, None])
def test_a_cc_header_must_be_an_array_of_keys(value: Value) -> None:
    assert copied_keys({"CC": ["a", 1, None, Octets(b"\xff")], "BCC": ["b", "c"]}) == ["a", "\udcff", "b", "c"]
    with pytest.raises(InvalidHeader):
        copied_keys({"CC": value})


def test_a_modulus_hash_exchange_chooses_one_queue_by_key_and_ignores_the_keys_of_bindings() -> None:
    world = World()
    world.declare("hash", "x-modulus-hash")
    keys = [f"key {number}" for number in range(60)]
    assert world.route("hash", "any") == []
    for queue, key in (("c", ""), ("a", "1"), ("b", "anything"), ("b", "again")):
        world.bind("hash", queue, key)
    routes = [world.route("hash", key) for key in keys]
    assert {len(route) for route in routes} == {1}
    counts = [routes.count([queue]) for queue in ("a", "b", "c")]
    assert min(counts) > 10
    assert [world.restart().route("hash", key) for key in keys[:5]] == routes[:5]
    world.unbind("hash", "b", "anything")
    assert [world.route("hash", key) for key in keys] == routes
    world.unbind("hash", "b", "again")
    assert {world.route("hash", key)[0] for key in keys} == {"a", "c"}
