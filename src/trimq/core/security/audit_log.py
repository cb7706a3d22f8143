"""Audit log: logins, refusals for lack of rights, and changes, as records of the logger `trimq.audit`. Never sees a
password, a secret or a message."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass

from trimq.clock import Timeline, Timer
from trimq.core.log_text import json_line
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.metrics import Metrics
from trimq.model import Caller

AUDIT_LOGGER = "trimq.audit"

log = logging.getLogger(AUDIT_LOGGER)

_MINUTE_MS = 60_000

# The longest name of a topic or a group is shorter.
_NAME_CHARACTERS = 512

KINDS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group",
    ResourceKind.ROUTE: "exchange",
    ResourceKind.TRANSACTION: "transactional-id",
    ResourceKind.BROKER: "broker",
}
"""Kinds of resources as `trimq acls` names them."""

_Fields = dict[str, object]


class AuditLog:
    """Writes each change. Of equal logins and of equal refusals, writes the first of each minute, and then their
    number."""

    def __init__(self, metrics: Metrics, timeline: Timeline, per_minute: int) -> None:
        """`per_minute`: different logins, and different refusals, that are written; the others are counted. 0: all."""
        help = "Requests that were refused for lack of rights, by protocol and action."
        self._denied = metrics.counters("denied", help, ("protocol", "action"))
        self._logins = _Repeats(timeline, per_minute, "login")
        self._refusals = _Repeats(timeline, per_minute, "refused")

    def login(self, protocol: str, mechanism: str, user: str, address: str, reason: str = "") -> None:
        """`reason`: of a failure; empty for a success."""
        fields: _Fields = {
            "event": "login",
            "result": "failure" if reason else "success",
            "principal": _short(user),
            "address": address,
            "protocol": protocol,
            "mechanism": mechanism,
        }
        if reason:
            fields["reason"] = reason
        self._logins.write((protocol, mechanism, _short(user), _host(address), reason), fields)

    def denied(self, caller: Caller, action: Action, resource: Resource) -> None:
        """Records that the caller was refused this action."""
        self.denied_on(caller, action_name(action), KINDS[resource.kind], resource.name, resource.namespace)

    def denied_on(self, caller: Caller, action: str, kind: str, name: str, namespace: str = "") -> None:
        """Same as `denied`, for what is no resource of rights."""
        self._denied.labelled(caller.protocol, action).add()
        key = _short(caller.principal), _host(caller.address), caller.protocol, action, kind, _short(name), namespace
        self._refusals.write(key, _record("refused", caller, action, kind, name, namespace))

    def changed(
        self, caller: Caller, action: str, kind: str, name: str, namespace: str = "", /, **details: object
    ) -> None:
        """Records a change that the caller has made. `details` must name no secret and no value that may be one."""
        if log.isEnabledFor(logging.INFO):
            _write({**_record("changed", caller, action, kind, name, namespace), **details})

    def entry_changed(self, caller: Caller, action: str, entry: AclEntry) -> None:
        """Same as `changed`, for an access control entry."""
        described = {
            "type": "allow" if entry.is_allowed else "deny",
            "principal": entry.principal,
            "operation": "all" if entry.action is None else action_name(entry.action),
            "resource": KINDS[entry.kind],
            "prefix": entry.is_prefix,
            "host": entry.host,
        }
        self.changed(caller, action, "acl", entry.name, entry.namespace, entry=described)

    def close(self) -> None:
        """Writes the numbers of this minute."""
        self._logins.close()
        self._refusals.close()


def action_name(action: Action) -> str:
    return action.name.lower().replace("_", "-")


def _record(event: str, caller: Caller, action: str, kind: str, name: str, namespace: str) -> _Fields:
    fields: _Fields = {
        "event": event,
        "principal": _short(caller.principal),
        "address": caller.address,
        "protocol": caller.protocol,
        "action": action,
        "resource": kind,
        "name": _short(name),
    }
    if namespace:
        fields["vhost"] = namespace
    return fields


def _write(fields: _Fields) -> None:
    log.info("%s", json_line(fields), extra={"audit": fields})


def _short(name: str) -> str:
    """Returns the beginning of a name: a request may name what no resource can be called."""
    return name if len(name) <= _NAME_CHARACTERS else name[:_NAME_CHARACTERS] + "…"


def _host(address: str) -> str:
    return address.rpartition(":")[0]


@dataclass(slots=True)
class _Repeated:
    fields: _Fields
    repeats: int = 0


class _Repeats:
    """Records of the current minute, by what makes them equal."""

    def __init__(self, timeline: Timeline, limit: int, event: str) -> None:
        self._timeline = timeline
        self._limit = limit
        self._written: dict[Hashable, _Repeated] = {}
        self._others = _Repeated({"event": event, "others": True})
        self._timer: Timer | None = None

    def write(self, key: Hashable, fields: _Fields) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        known = self._written.get(key)
        if known is not None:
            known.repeats += 1
        elif self._limit and len(self._written) >= self._limit:
            self._others.repeats += 1
        else:
            _write(fields)
            if self._limit:
                self._written[key] = _Repeated(fields)
                if self._timer is None:
                    self._timer = self._timeline.call_at(self._timeline.now_ms() + _MINUTE_MS, self._end_minute)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._end_minute()

    def _end_minute(self) -> None:
        self._timer = None
        for repeated in (*self._written.values(), self._others):
            if repeated.repeats:
                _write({**repeated.fields, "repeats": repeated.repeats})
        self._written.clear()
        self._others.repeats = 0
