"""Users of a broker that a test or a bench has started, created over its HTTP port."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from urllib.parse import quote
from urllib.request import Request, urlopen

ADMINISTRATOR = ("root", "root's")
_TIMEOUT_S = 30


def make_users(http: str, **rights: Mapping[str, str]) -> None:
    """Creates an administrator, and users with these rights in the virtual host `/`. A password is the user's name with
    's."""
    _put(http, "/api/users/root", {"password": ADMINISTRATOR[1], "administrator": True})
    for name, right in rights.items():
        _put(http, f"/api/users/{quote(name)}", {"password": f"{name}'s"})
        _put(http, f"/api/permissions/{quote(name)}", {"configure": "", "write": "", "read": "", **right})


def put_user(http: str, name: str, **fields: object) -> None:
    """Changes these fields of a user, as the administrator that `make_users` made."""
    _put(http, f"/api/users/{quote(name)}", fields)


def _put(http: str, path: str, body: Mapping[str, object]) -> None:
    login = base64.b64encode(":".join(ADMINISTRATOR).encode()).decode()
    request = Request(http + path, json.dumps(body).encode(), {"Authorization": f"Basic {login}"}, method="PUT")
    with urlopen(request, timeout=_TIMEOUT_S):
        pass
