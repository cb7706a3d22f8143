"""Access control entries over HTTP: `/api/acls`. An entry is named by all of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimq.core.api.acl_entries import AclEntryApi
from trimq.core.security.acl_entries import AclEntry
from trimq.model import Caller
from trimq.server.http.acl_form import AclForm, form_of
from trimq.server.http.responses import JSON, DeferredResponse, HttpResponse, bad_request, not_allowed


class AclsApi:
    def __init__(self, entries: AclEntryApi) -> None:
        self._entries = entries

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if words != ["api", "acls"]:
            return None
        if method == "GET":
            forms = [form_of(entry) for entry in sorted(self._entries.all(caller), key=str)]
            return HttpResponse.json(200, {"acls": msgspec.to_builtins(forms)})
        if method not in ("PUT", "DELETE"):
            return not_allowed(method, "GET, HEAD, PUT, DELETE")
        self._entries.require_change(caller)
        try:
            entry = _entry(query)
        except (msgspec.ValidationError, ValueError) as error:
            return bad_request("entry", error)
        change = self._entries.create if method == "PUT" else self._entries.delete
        return HttpResponse(204, b"", JSON, change(caller, entry))


def _entry(query: Mapping[str, str]) -> AclEntry:
    return msgspec.convert(dict(query), AclForm).to_entry()
