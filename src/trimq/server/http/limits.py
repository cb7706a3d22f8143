"""Limits that can be changed while the broker runs, in JSON under /api/limits. Knows no socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.api.limits import RuntimeLimits
from trimq.model import Caller
from trimq.server.http.responses import HttpResponse, bad_request, not_allowed


class LimitsApi:
    def __init__(self, broker: Broker) -> None:
        self._limits = broker.limits

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if list(words) != ["api", "limits"]:
            return None
        if method == "PATCH":
            try:
                asked = msgspec.json.decode(body or b"{}", type=RuntimeLimits)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return bad_request("limits", error)
            self._limits.change(caller, asked)
        elif method != "GET":
            return not_allowed(method, "GET, HEAD, PATCH")
        return HttpResponse.json(200, self._limits.get(caller))
