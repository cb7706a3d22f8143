"""Whether a request that changes something was sent by a web page of somebody else. Browsers say which page they act
for (the header Origin); programs do not, and are let through."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

_READING = (b"GET", b"HEAD", b"OPTIONS")


def is_cross_origin(method: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """A page is at home under an address that is also where the request went, and that is no name: a name may have been
    made to lead to this machine by whoever owns it."""
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
