"""Detects requests that a web page of another origin sends through a browser. Browsers send the header Origin; other
programs do not and are accepted."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

_READING = (b"GET", b"HEAD", b"OPTIONS")


def is_cross_origin(method: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Returns whether a changing request has another origin than the host it is sent to. A host name other than
    `localhost` counts as cross-origin, too: its owner may have pointed it at this machine (DNS rebinding)."""
    if method in _READING:
        return False
    named = dict(headers)
    origin = named.get(b"origin")
    if origin is None:
        return False
    host = named.get(b"host", b"").decode("latin-1")
    try:
        page = urlsplit(origin.decode("latin-1"))
        asked = urlsplit(f"//{host}")
    except ValueError:
        return True
    return page.netloc != host or not _is_plain(asked.hostname or "")


def _is_plain(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
