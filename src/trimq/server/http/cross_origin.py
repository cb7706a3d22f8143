"""Detects requests that a web page of another origin sends through a browser. Browsers send the header Origin with
changing requests; other programs do not and are accepted. A page whose host name was pointed at this machine (DNS
rebinding) is of the same origin for the browser: the host of every request must be a known name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from trimq.config import Settings

_READING = (b"GET", b"HEAD", b"OPTIONS")


def is_cross_origin(method: bytes, headers: Iterable[tuple[bytes, bytes]], hosts: KnownHosts | None = None) -> bool:
    """Returns whether a changing request has another origin than the host it is sent to. A host name that is not
    listed in `hosts` counts as cross-origin, too: its owner may have pointed it at this machine (DNS rebinding)."""
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
    name = asked.hostname or ""
    return page.netloc != host or not (_is_plain(name) or (hosts is not None and hosts.lists(name)))


class KnownHosts:
    """Host names under which the broker is reached, besides localhost and IP addresses, which nobody else can own."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.lower() for name in names)

    def lists(self, name: str) -> bool:
        """Returns whether this host name is listed by itself."""
        return name.rstrip(".").lower() in self._names

    def find_unknown(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Returns the host that a request names, if it is not known. A request without a host, in HTTP/1.0, comes from
        no browser."""
        host = dict(headers).get(b"host", b"").decode("latin-1")
        if not host or "*" in self._names:
            return None
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return host
        return None if _is_plain(name) or name.rstrip(".") in self._names else host


def known_hosts(settings: Settings) -> KnownHosts:
    """Returns the names that the settings list, listen on or advertise."""
    listeners = (settings.http.listen, settings.kafka.listen, settings.amqp.listen, settings.rocketmq.broker_listen)
    addresses = (*listeners, settings.kafka.advertise, settings.rocketmq.advertise)
    return KnownHosts(
        [*settings.http.hosts.split(";"), *(address.host for address in addresses if address is not None)]
    )


def _is_plain(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
