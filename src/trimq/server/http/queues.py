"""Queues, policies and failed messages in JSON under /api/. Calls the broker's API; knows no socket."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.failures.ledger import Failure
from trimq.core.queues.policies import Policy
from trimq.core.queues.queue import Queue
from trimq.core.queues.work_queue import WorkQueue
from trimq.formats.amqp_content.field_tables import Value
from trimq.model import Caller
from trimq.server.http.responses import (
    JSON,
    DeferredResponse,
    HttpResponse,
    bad_request,
    error_response,
    guarded,
    not_allowed,
)
from trimq.server.http.slices import SliceRunner, list_response
from trimq.server.http.vhosts import DEFAULT_VHOST, namespace_of, vhost_of

_FAILURES = 100
_MAX_FAILURES = 1000
_SHOWN_BYTES = 10_000


class PolicyBody(msgspec.Struct, forbid_unknown_fields=True):
    pattern: str
    definition: dict[str, str | int | bool]
    priority: int = 0
    apply_to: str = "all"


class QueuesApi:
    def __init__(self, broker: Broker, slices: SliceRunner | None = None) -> None:
        self._broker = broker
        self._slices = SliceRunner() if slices is None else slices

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        namespace = namespace_of(query.get("vhost", DEFAULT_VHOST))
        caller = dataclasses.replace(caller, namespace=namespace)
        match words:
            case ["api", "queues"]:
                return self._list(caller) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "queues", name]:
                return self._queue(caller, method, name)
            case ["api", "queues", name, "messages"]:
                return self._purge(caller, name) if method == "DELETE" else not_allowed(method, "DELETE")
            case ["api", "policies"]:
                found = [_policy(policy) for policy in self._broker.policies.all(caller)]
                return (
                    HttpResponse.json(200, {"policies": found}) if method == "GET" else not_allowed(method, "GET, HEAD")
                )
            case ["api", "policies", name]:
                return self._policy(caller, method, name, body)
            case ["api", "failures"]:
                return self._failures(caller, query) if method == "GET" else not_allowed(method, "GET, HEAD")
            case ["api", "failures", number, "redrive"]:
                return self._redrive(caller, number) if method == "POST" else not_allowed(method, "POST")
        return None

    # -- queues

    def _list(self, caller: Caller) -> HttpResponse | DeferredResponse:
        queues = self._broker.queues.iterate(caller)
        rows = (None if queue is None else _queue(queue) for queue in queues)
        return self._slices.respond("GET /api/queues", list_response("queues", rows))

    def _queue(self, caller: Caller, method: str, name: str) -> HttpResponse:
        if method == "GET":
            return HttpResponse.json(200, _described(self._broker.queues.describe_queue(caller, name)))
        if method == "DELETE":
            self._broker.queues.describe_queue(caller, name)
            _, ticket = self._broker.queues.delete_queue(caller, name, False, False, None)
            return HttpResponse(204, b"", JSON, ticket)
        return not_allowed(method, "GET, HEAD, DELETE")

    def _purge(self, caller: Caller, name: str) -> HttpResponse:
        return HttpResponse.json(200, {"purged": self._broker.queues.purge_queue(caller, name, None)})

    # -- policies

    def _policy(self, caller: Caller, method: str, name: str, body: bytes) -> HttpResponse:
        if method == "PUT":
            try:
                asked = msgspec.json.decode(body, type=PolicyBody)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return bad_request("policy", error)
            self._broker.namespaces.require(caller, caller.namespace)
            definition = dict[str, Any](asked.definition)
            policy = Policy(caller.namespace, name, asked.pattern, definition, asked.priority, asked.apply_to)
            return HttpResponse(204, b"", JSON, self._broker.policies.define(caller, policy))
        if method == "DELETE":
            return HttpResponse(204, b"", JSON, self._broker.policies.delete(caller, name))
        return not_allowed(method, "PUT, DELETE")

    # -- failed messages

    def _failures(self, caller: Caller, query: Mapping[str, str]) -> HttpResponse | DeferredResponse:
        numbers = {}
        for name, value in {"from": query.get("from", "0"), "limit": query.get("limit", str(_FAILURES))}.items():
            if not (value.isascii() and value.isdigit()):
                return error_response(400, "BadRequest", f"{name} must be a number: {value!r}")
            numbers[name] = int(value)
        begin = partial(self._list_failures, caller, numbers["from"], min(numbers["limit"], _MAX_FAILURES))
        return DeferredResponse(begin)

    def _list_failures(self, caller: Caller, from_id: int, limit: int, done: Callable[[HttpResponse], None]) -> None:
        """Lists the failures once those recorded before the request are readable."""

        def make() -> HttpResponse:
            found = list(islice(self._broker.failures.all(caller, from_id), limit))
            next_id = found[-1].id + 1 if found else from_id
            return HttpResponse.json(200, {"failures": [_failure(failure) for failure in found], "next": next_id})

        self._broker.failures.when_readable(lambda: done(guarded("GET /api/failures", make)))

    def _redrive(self, caller: Caller, number: str) -> HttpResponse:
        if not (number.isascii() and number.isdigit()):
            return error_response(400, "BadRequest", f"{number!r} is not the id of a failure")
        return HttpResponse(204, b"", JSON, self._broker.failures.redrive(caller, int(number)))


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost_of(queue.namespace),
        "type": queue.kind,
        "durable": queue.definition.is_durable,
        "exclusive": queue.owner is not None,
        "auto_delete": queue.definition.is_auto_delete,
        "ready": queue.ready_count,
        "unacknowledged": len(queue.deliveries) if isinstance(queue, WorkQueue) else 0,
        "dead_letters": queue.pending_dead_letter_count if isinstance(queue, WorkQueue) else 0,
        "consumers": queue.consumer_count,
    }


def _described(queue: Queue) -> dict[str, Any]:
    consumers = [
        {
            "tag": consumer.tag,
            "prefetch": consumer.prefetch,
            "unacknowledged": consumer.in_flight,
            "acknowledges": not consumer.no_ack,
            "active": queue.consumers.is_active(consumer),
            "priority": consumer.priority,
        }
        for consumer in queue.consumers
    ]
    return _queue(queue) | {
        "id": str(queue.id),
        "arguments": {name: plain(value) for name, value in queue.arguments.items()},
        "bytes": sum(segment.segment.size for log in queue.logs for segment in log.segments),
        "consumer_details": consumers,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "vhost": vhost_of(policy.namespace),
        "pattern": policy.pattern,
        "definition": policy.definition,
        "priority": policy.priority,
        "apply_to": policy.apply_to,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    entry = failure.entry
    body = entry.record.body or b""
    return {
        "id": failure.id,
        "queue": entry.origin.topic.name,
        "vhost": vhost_of(entry.origin.topic.namespace),
        "group": entry.origin.group,
        "stream": entry.origin.stream.number,
        "offset": entry.origin.offset,
        "reason": entry.reason.value,
        "attempts": entry.attempts,
        "time_ms": entry.time_ms,
        "redriven": failure.is_redriven,
        "bytes": len(body),
        "body": base64.b64encode(body[:_SHOWN_BYTES]).decode(),
    }


def plain(value: Value) -> Any:
    """Returns the value of an AMQP field as a JSON value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value)
