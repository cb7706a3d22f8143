"""Switch of RabbitMQ's message tracer in JSON under /api/firehose. Knows no socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimq.core.api.broker import Broker
from trimq.model import Caller
from trimq.server.http.responses import JSON, HttpResponse, not_allowed
from trimq.server.http.vhosts import namespace_of, vhost_of


class FirehoseSwitchApi:
    def __init__(self, broker: Broker) -> None:
        self._firehose = broker.firehose

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        match words:
            case ["api", "firehose"]:
                if method != "GET":
                    return not_allowed(method, "GET, HEAD")
                traced = [{"vhost": vhost_of(namespace)} for namespace in self._firehose.all(caller)]
                return HttpResponse.json(200, {"firehose": traced})
            case ["api", "firehose", vhost]:
                if method == "PUT":
                    self._firehose.turn_on(caller, namespace_of(vhost))
                elif method == "DELETE":
                    self._firehose.turn_off(caller, namespace_of(vhost))
                else:
                    return not_allowed(method, "PUT, DELETE")
                return HttpResponse(204, b"", JSON)
        return None
