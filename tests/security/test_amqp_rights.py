"""Every AMQP method with every right: what is refused, that a refusal changes nothing, and the audit record of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from protocols.amqp.desk import Client, Desk
from protocols.amqp.wires import command, publish
from security.rights_cells import (
    EXCHANGE,
    SINGLES,
    TOPIC,
    USERS,
    AuditRecords,
    Need,
    Ways,
    all_of,
    audited,
    is_allowed,
    set_entries,
)

from trimq.core.metadata.catalogue import Definition
from trimq.core.security.passwords import hash_password
from trimq.core.security.resources import Action
from trimq.core.security.users import User
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.handlers import CONNECTION_HANDLERS, HANDLERS

READ, WRITE, CREATE, DELETE, DESCRIBE = Action.READ, Action.WRITE, Action.CREATE, Action.DELETE, Action.DESCRIBE


class Row(NamedTuple):
    """`is_change`: leaves one audit record if it is allowed. `after`: method that must come first on the channel."""

    method: methods.Method
    ways: Ways
    is_change: bool = False
    after: methods.Method | None = None

    @property
    def id(self) -> str:
        return str(self.method).replace(" ", "")


_BOUND = all_of((WRITE, TOPIC), (READ, EXCHANGE))
_BETWEEN = all_of((WRITE, EXCHANGE), (READ, EXCHANGE))
_DEAD: Any = {"x-dead-letter-exchange": "x"}
_ALTERNATE: Any = {"alternate-exchange": "x"}

ROWS = (
    Row(methods.QueueDeclare(queue="new", is_durable=True), all_of((CREATE, TOPIC)), is_change=True),
    Row(methods.QueueDeclare(queue="q", is_durable=True), all_of((CREATE, TOPIC))),
    Row(methods.QueueDeclare(queue="new", is_durable=True, arguments=_DEAD),
        all_of((CREATE, TOPIC), (READ, TOPIC), (WRITE, EXCHANGE)), is_change=True),
    Row(methods.QueueDeclare(queue="q", is_passive=True), all_of((DESCRIBE, TOPIC))),
    Row(methods.QueueDeclare(queue="none", is_passive=True), all_of((DESCRIBE, TOPIC))),
    Row(methods.QueueBind(queue="q", exchange="y", routing_key="k"), _BOUND),
    Row(methods.QueueUnbind(queue="q", exchange="x", routing_key="k"), _BOUND),
    Row(methods.QueuePurge(queue="q"), all_of((READ, TOPIC)), is_change=True),
    Row(methods.QueueDelete(queue="q"), all_of((DELETE, TOPIC)), is_change=True),
    Row(methods.QueueDelete(queue="none"), all_of((DELETE, TOPIC))),
    Row(methods.ExchangeDeclare(exchange="new", type="direct", is_durable=True), all_of((CREATE, EXCHANGE)),
        is_change=True),
    Row(methods.ExchangeDeclare(exchange="new", type="direct", arguments=_ALTERNATE),
        all_of((CREATE, EXCHANGE), (READ, EXCHANGE), (WRITE, EXCHANGE)), is_change=True),
    Row(methods.ExchangeDeclare(exchange="x", type="direct", is_passive=True), all_of((DESCRIBE, EXCHANGE))),
    Row(methods.ExchangeDelete(exchange="x"), all_of((DELETE, EXCHANGE)), is_change=True),
    Row(methods.ExchangeDelete(exchange="none"), all_of((DELETE, EXCHANGE))),
    Row(methods.ExchangeBind(destination="y", source="x", routing_key="k"), _BETWEEN),
    Row(methods.ExchangeUnbind(destination="y", source="x", routing_key="k"), _BETWEEN),
    Row(methods.BasicPublish(exchange="x", routing_key="k"), all_of((WRITE, EXCHANGE))),
    Row(methods.BasicPublish(exchange="", routing_key="q"), all_of((WRITE, EXCHANGE))),
    Row(methods.BasicPublish(exchange="none", routing_key="k"), all_of((WRITE, EXCHANGE))),
    Row(methods.BasicPublish(exchange="x", routing_key="k"), all_of((WRITE, EXCHANGE)), after=methods.TxSelect()),
    Row(methods.BasicGet(queue="q"), all_of((READ, TOPIC))),
    Row(methods.BasicGet(queue="none"), all_of((READ, TOPIC))),
    Row(methods.BasicConsume(queue="q"), all_of((READ, TOPIC))),
    Row(methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True), USERS),
    *(
        Row(method, USERS)
        for method in (
            methods.ChannelFlow(active=True),
            methods.AccessRequest(),
            methods.BasicQos(prefetch_count=1),
            methods.BasicCancel(consumer_tag="none"),
            methods.BasicCancelOk(consumer_tag="none"),
            methods.BasicAck(delivery_tag=1),
            methods.BasicNack(delivery_tag=1),
            methods.BasicReject(delivery_tag=1),
            methods.BasicRecover(requeue=True),
            methods.BasicRecoverAsync(requeue=True),
            methods.ConfirmSelect(),
            methods.TxSelect(),
        )
    ),
    Row(methods.TxCommit(), USERS, after=methods.TxSelect()),
    Row(methods.TxRollback(), USERS, after=methods.TxSelect()),
)  # fmt: skip

OUTSIDE_OF_HANDLERS = {methods.BasicPublish.ID, methods.BasicAck.ID}
"""Methods of a channel that have a path of their own."""

HASHES = {name: hash_password(f"{name}'s", b"salt" * 4) for name in ("root", "alice")}


class World:
    """A broker with the queue `q` and the exchanges `x` and `y`; alice has logged in while she had a right."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.access = self.desk.core.broker._access
        for name, hashed in HASHES.items():
            self.access.put_user(User(name, hashed, is_administrator=name == "root"))
        set_entries(self.access, SINGLES)
        self.desk.settle()
        self._clients: dict[str, Client] = {}
        self._last = 1
        self.prepare()

    def _client(self, user: str) -> Client:
        client = self._clients.get(user)
        if client is None or client.is_closed:
            assert user == "root" or client is None, f"the connection of {user} was closed"
            client = self._clients[user] = self.desk.client(user=user, password=f"{user}'s")
        return client

    def log_in(self) -> None:
        self._client("alice")

    def prepare(self) -> None:
        """Restores what an allowed request may have changed."""
        for method in (
            methods.QueueDelete(queue="new"),
            methods.ExchangeDelete(exchange="new"),
            methods.QueueDeclare(queue="q", is_durable=True),
            methods.QueuePurge(queue="q"),
            *(methods.ExchangeDeclare(exchange=name, type="direct", is_durable=True) for name in ("x", "y")),
            methods.QueueUnbind(queue="q", exchange="y", routing_key="k"),
            methods.QueueBind(queue="q", exchange="x", routing_key="k"),
            methods.ExchangeUnbind(destination="y", source="x", routing_key="k"),
            methods.BasicPublish(exchange="", routing_key="q"),
        ):
            assert not self.refusals("root", Row(method, USERS))

    def set_entries(self, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
        set_entries(self.access, allowed, denied)
        self.desk.settle()

    def refusals(self, user: str, row: Row) -> list[int]:
        """Sends the method on a channel of its own. Returns the reply codes of refusals."""
        client = self._client(user)
        self._last = channel = self._last % 2000 + 1
        client.tell(channel, methods.ChannelOpen())
        if row.after is not None:
            client.tell(channel, row.after)
        method = row.method
        is_publish = isinstance(method, methods.BasicPublish)
        client.feed(publish(channel, method, b"hello") if is_publish else command(channel, method))  # type: ignore[arg-type]
        self.desk.settle()
        heard = client.heard()
        closed = [answer for answer in heard if isinstance(answer, methods.ChannelClose | methods.ConnectionClose)]
        if any(isinstance(answer, methods.ConnectionClose) for answer in closed):
            client.is_closed = True
        elif closed:
            client.tell(channel, methods.ChannelCloseOk())
        else:
            client.tell(channel, methods.ChannelClose())
            self.desk.settle()
            client.heard()
        return [answer.reply_code for answer in closed if answer.reply_code == 403]

    def state(self) -> dict[str, Any]:
        """Everything that a method could change, except entries."""
        kinds: dict[str, dict[str, Definition]] = self.access._users._catalogue._kinds
        queues = self.desk.core.queues.parts.queues
        return {
            "definitions": {kind: dict(found) for kind, found in kinds.items() if kind != "acl"},
            "messages": {queue.name: (queue.ready_count, queue.consumer_count) for queue in queues},
        }

    def is_refused(self, row: Row, user: str) -> bool:
        """Returns whether the method was refused, after checking that nothing was changed."""
        before = self.state()
        if self.refusals(user, row):
            assert self.state() == before
            return True
        self.prepare()
        return False


@pytest.fixture(scope="module")
def world() -> World:
    world = World()
    world.log_in()
    return world


@pytest.fixture
def audit() -> Iterator[AuditRecords]:
    with audited() as records:
        yield records


def test_every_method_has_a_row() -> None:
    assert {row.method.ID for row in ROWS} == HANDLERS.keys() | OUTSIDE_OF_HANDLERS


def check(world: World, audit: AuditRecords, row: Row, granted: Iterable[Need], about: str) -> None:
    audit.take("")
    refused = world.is_refused(row, "alice")
    told = "refused" if refused else "allowed"
    assert refused is not is_allowed(row.ways, granted), f"{row.id} was {told} to {about}"
    if refused:
        (record,) = audit.take("refused")
        assert (record["principal"], record["protocol"]) == ("alice", "amqp"), row.id


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_method_is_allowed_by_exactly_the_rights_that_its_row_names(
    world: World, audit: AuditRecords, row: Row
) -> None:
    world.set_entries([])
    check(world, audit, row, [], "a user without a right")
    for single in SINGLES:
        world.set_entries([single])
        check(world, audit, row, [single], f"a user who may {single}")
    for way in row.ways:
        world.set_entries(way)
        check(world, audit, row, way, "a user with all rights that are needed")
    world.set_entries([])
    audit.take("")
    assert not world.refusals("root", row)
    changes = audit.take("changed")
    assert [change["principal"] for change in changes] == ["root"] * row.is_change, changes
    world.prepare()


@pytest.mark.parametrize("row", [row for row in ROWS if any(row.ways)], ids=lambda row: row.id)
def test_a_denial_beats_everything_that_allows(world: World, row: Row) -> None:
    for need in {need for way in row.ways for need in way}:
        world.set_entries(SINGLES, [need])
        assert world.is_refused(row, "alice"), f"{row.id} was allowed in spite of a denial of {need}"
    assert not world.is_refused(row, "root")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_without_a_login_a_method_ends_the_connection_and_changes_nothing(world: World, row: Row) -> None:
    before = world.state()
    client = Client(world.desk)
    client.feed(b"AMQP\0\0\x09\x01" + command(1, methods.ChannelOpen()) + command(1, row.method))
    world.desk.settle()
    assert client.is_closed
    assert world.state() == before
    client.lose()


@pytest.mark.parametrize("granted", [None, *SINGLES])
def test_a_virtual_host_is_opened_with_any_right_in_it(world: World, audit: AuditRecords, granted: Need | None) -> None:
    world.set_entries([] if granted is None else [granted])
    audit.take("")
    client = Client(world.desk)
    client.log_in(user="alice", password="alice's")
    if granted is None:
        assert client.is_closed
        (record,) = audit.take("refused")
        assert (record["principal"], record["action"], record["resource"]) == ("alice", "open", "vhost")
    client.lose()


def test_a_wrong_password_is_refused_and_recorded(world: World, audit: AuditRecords) -> None:
    audit.take("")
    client = Client(world.desk)
    client.log_in(user="alice", password="a planted guess")
    assert client.is_closed
    (record,) = audit.take("login")
    assert (record["principal"], record["result"], record["mechanism"]) == ("alice", "failure", "PLAIN")
    assert "planted" not in str(record)
    client.lose()


def test_every_method_of_a_connection_is_part_of_its_login_or_end() -> None:
    assert CONNECTION_HANDLERS.keys() == {
        *(methods.ConnectionStartOk.ID, methods.ConnectionTuneOk.ID, methods.ConnectionOpen.ID),
        *(methods.ConnectionClose.ID, methods.ConnectionUpdateSecret.ID),
    }
