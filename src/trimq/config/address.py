"""Parser of network addresses written as text. Resolves no name and opens no socket."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

OFF = "off"


class Address(NamedTuple):
    """Address that a listener binds to. With port 0 the system picks a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only programs on the same machine reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Advertised(NamedTuple):
    """Address that the broker announces to clients. Without a port, the bound port is announced."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def advertised_address(advertised: Advertised | None, bound: Address) -> Address:
    """Returns the address that the broker announces to clients of a bound listener."""
    if advertised is None:
        return bound
    return Address(advertised.host, bound.port if advertised.port is None else advertised.port)


def parse_address(text: str) -> Address:
    """Parses `host:port` or `[IPv6]:port`. Raises ValueError with the reason if the text is invalid."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError("host or port is missing")
    return Address(_parse_host(host), _parse_port(port))


def parse_listen(text: str) -> Address | None:
    """Parses an address; returns None for `off`."""
    return None if text == OFF else parse_address(text)


def parse_advertised(text: str) -> Advertised:
    """Parses `host` or `host:port`."""
    if text.endswith("]") or ":" not in text:
        return Advertised(_parse_host(text))
    address = parse_address(text)
    if address.port == 0:
        raise ValueError("port 0 cannot be advertised")
    return Advertised(*address)


def _parse_host(text: str) -> str:
    bracketed = text.startswith("[") and text.endswith("]") and ":" in text
    host = text[1:-1] if bracketed else text
    if not host.isascii() or not host.isprintable() or any(character in " []/@" for character in host):
        raise ValueError("the host name is invalid")
    if bracketed:
        return host
    if ":" in host:
        raise ValueError("write an IPv6 address in brackets, as in [::1]:9092")
    if not all(1 <= len(label) <= 63 for label in host.removesuffix(".").split(".")):
        raise ValueError("the host name is invalid")  # the resolver raises UnicodeError for such labels
    return host


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError("the port must be a number from 0 to 65535")
    return int(text)
