"""Consumer groups of Kafka and RocketMQ in JSON under /api/groups. If both have a group of the same name, the query
`protocol=rocketmq` selects that of RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin, GroupMember, GroupSubscription, GroupSummary
from trimq.core.api.group_lag import GroupLagApi, StreamLag
from trimq.core.api.groups import GroupApi
from trimq.core.api.records import RecordsApi
from trimq.core.groups.group import NO_MEMBER, CursorChange, GroupDescription
from trimq.errors import GroupNotEmpty, Refusal, UnknownGroup
from trimq.model import Caller, StreamId
from trimq.server.http.commit_log_topics import CommitLogTopicsApi
from trimq.server.http.responses import JSON, DeferredResponse, HttpResponse, error_response, not_allowed
from trimq.server.http.slices import SliceRunner, list_response
from trimq.storage.group_commit.passes import Ticket

ROCKETMQ = "rocketmq"


class MovedCursor(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    stream: int
    offset: Annotated[int, msgspec.Meta(ge=0)]


class MovedCursors(msgspec.Struct, forbid_unknown_fields=True):
    """Committed offsets set by a client that is not a member of the group. `note`: metadata of each offset."""

    cursors: list[MovedCursor]
    note: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class NewGroup(msgspec.Struct, forbid_unknown_fields=True):
    """`retries`: maximum number of retries of a message before it is dead-lettered."""

    name: str
    orderly: bool = False
    retries: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = 16


class GroupsApi:
    """`group_admin`: RocketMQ groups; `shared`: creates them. Both are None if RocketMQ is off."""

    def __init__(
        self,
        group_api: GroupApi,
        records_api: RecordsApi,
        group_admin: CommitLogGroupAdmin | None = None,
        shared: CommitLogTopicsApi | None = None,
        slices: SliceRunner | None = None,
    ) -> None:
        self._shared = shared
        self._slices = SliceRunner() if slices is None else slices
        self._group_api = group_api
        self._records_api = records_api
        self._group_admin = group_admin
        self._lag_api = GroupLagApi(group_api, records_api)

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        match words:
            case ["api", "groups"] if method == "GET":
                return self._slices.respond("GET /api/groups", list_response("groups", self._list(caller)))
            case ["api", "groups"] if method == "POST":
                return self._create(caller, body)
            case ["api", "groups", name] if method == "GET":
                group_admin = self._commit_log_groups_with(name, query)
                return (
                    self._describe(caller, name)
                    if group_admin is None
                    else _describe_commit_log_group(group_admin, caller, name)
                )
            case ["api", "groups", name] if method == "DELETE":
                group_admin = self._commit_log_groups_with(name, query)
                ticket = (
                    self._group_api.delete(caller, name) if group_admin is None else group_admin.delete(caller, name)
                )
                return HttpResponse(204, b"", JSON, ticket)
            case ["api", "groups", name, "cursors"] if method == "PUT":
                return self._move_cursors(caller, name, query.get("protocol") == ROCKETMQ, body)
            case ["api", "groups"]:
                return not_allowed(method, "GET, HEAD, POST")
            case ["api", "groups", _]:
                return not_allowed(method, "GET, HEAD, DELETE")
            case ["api", "groups", _, "cursors"]:
                return not_allowed(method, "PUT")
        return None

    def _create(self, caller: Caller, body: bytes) -> HttpResponse:
        """Creates a RocketMQ group. Kafka groups need no creation: the first member creates them."""
        try:
            asked = msgspec.json.decode(body, type=NewGroup)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_response(400, "BadRequest", f"invalid description of the group: {error}")
        if self._shared is None:
            return error_response(409, "NotServed", "RocketMQ is off: set the address of one of its listeners")
        ticket = self._shared.define_group(caller, asked.name, asked.orderly, asked.retries)
        return HttpResponse.json(201, msgspec.to_builtins(asked), ticket)

    def _list(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        for group in self._group_api.iterate(caller):
            yield None if group is None else _group(group)
        for shared in () if self._group_admin is None else self._group_admin.iterate(caller):
            yield None if shared is None else _commit_log_group(shared)

    def _commit_log_groups_with(self, name: str, query: Mapping[str, str]) -> CommitLogGroupAdmin | None:
        """Returns the RocketMQ groups if they have this group, or None if it is a Kafka group. Raises UnknownGroup if
        RocketMQ is requested but off."""
        wanted = query.get("protocol")
        if wanted == ROCKETMQ:
            if self._group_admin is None:
                raise UnknownGroup(name)
            return self._group_admin
        is_only_there = wanted is None and self._group_admin is not None and self._group_admin.has(name)
        return self._group_admin if is_only_there and not self._group_api.has(name) else None

    def _describe(self, caller: Caller, name: str) -> HttpResponse | DeferredResponse:
        group = self._group_api.describe(caller, name)
        members = [
            {"id": member.id, "instance": member.instance, "client_id": member.client_id, "host": member.host}
            for member in group.members
        ]
        rows = map(_cursor, self._lag_api.streams(caller, group))
        shown = _group(group) | {"last_commit_ms": self._group_api.last_commit_ms(name), "members": members}
        shown["rebalances"] = msgspec.to_builtins(self._group_api.rebalances(caller, name))
        steps = list_response("cursors", rows, shown, lambda: self._group_api.latest_commit)
        return self._slices.respond(f"GET /api/groups/{name}", steps)

    def _move_cursors(self, caller: Caller, name: str, is_rocketmq: bool, body: bytes) -> HttpResponse:
        try:
            asked = msgspec.json.decode(body, type=MovedCursors)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_response(400, "BadRequest", f"invalid description of the cursors: {error}")
        if is_rocketmq:
            return HttpResponse(204, b"", JSON, self._reset_cursors(caller, name, asked.cursors))
        changes = []
        for at in asked.cursors:
            topic = self._records_api.topic(caller, at.topic)
            topic.ends(at.stream)
            changes.append(CursorChange(StreamId(topic.id, at.stream), at.offset, metadata=asked.note))
        ticket: Ticket | None = None
        for outcome in self._group_api.commit(caller, name, NO_MEMBER, changes):
            if isinstance(outcome, Refusal):
                raise outcome
            ticket = outcome
        return HttpResponse(204, b"", JSON, ticket)

    def _reset_cursors(self, caller: Caller, name: str, cursors: Sequence[MovedCursor]) -> Ticket | None:
        """Sets the cursors of a RocketMQ group. Refused while it has members: those hold offsets of their own and
        would commit them again."""
        if self._group_admin is None or self._shared is None:
            raise UnknownGroup(name)
        if self._group_admin.describe(caller, name).group_members.members:
            raise GroupNotEmpty(name)
        for at in cursors:
            self._records_api.topic(caller, at.topic).ends(at.stream)
        ticket: Ticket | None = None
        for at in cursors:
            ticket = self._shared.reset_cursor(caller, name, at.topic, at.stream, at.offset)
        return ticket


def _cursor(at: StreamLag) -> dict[str, Any]:
    row = {"topic": at.topic, "stream": at.number, "offset": at.offset, "end": at.end, "lag": at.lag}
    return row | {"note": at.metadata} if at.metadata else row


def _group(group: GroupDescription) -> dict[str, Any]:
    return {
        "name": group.name,
        "protocol": group.protocol_type,
        "state": group.state.value,
        "members": len(group.members),
    }


# -- RocketMQ groups


def _commit_log_group(group: GroupSummary) -> dict[str, Any]:
    members = len(group.group_members.members)
    return {"name": group.name, "protocol": ROCKETMQ, "state": group.state.value, "members": members}


def _describe_commit_log_group(group_admin: CommitLogGroupAdmin, caller: Caller, name: str) -> HttpResponse:
    group = group_admin.describe(caller, name)
    odd = group.group_members.inconsistent_members()
    members = [_commit_log_member(member, member.client_id in odd) for member in group.group_members.members]
    rows = [
        {"topic": at.topic, "stream": at.number, "offset": at.offset, "end": at.end, "lag": at.lag}
        for at in group_admin.consume_progress(caller, name)
    ]
    shown = {"members": members, "subscriptions": _subscriptions(group.group_members.subscription), "cursors": rows}
    return HttpResponse.json(200, _commit_log_group(group) | shown, group_admin.latest)


def _commit_log_member(member: GroupMember, is_odd: bool) -> dict[str, Any]:
    shown = {"client_id": member.client_id, "host": member.host, "language": member.language}
    return shown | {"version": member.version, "subscriptions": _subscriptions(member.subscription), "differs": is_odd}


def _subscriptions(subscription: GroupSubscription) -> list[dict[str, str]]:
    return [{"topic": topic, "expression": expression} for topic, expression in sorted(subscription)]
