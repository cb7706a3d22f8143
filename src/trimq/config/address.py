"""Network addresses as people write them. Resolves no name and opens no socket."""

from __future__ import annotations

from typing import NamedTuple

OFF = "off"


class Address(NamedTuple):
    """Where a listener is bound. Port 0: a free one is picked."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Advertised(NamedTuple):
    """What clients are told to connect to. Without a port it is the one that was bound."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def advertised_address(advertised: Advertised | None, bound: Address) -> Address:
    """The address that clients are told, of a listener that is bound."""
    if advertised is None:
        return bound
    return Address(advertised.host, bound.port if advertised.port is None else advertised.port)


def parse_address(text: str) -> Address:
    """`host:port` or `[IPv6]:port`. ValueError says what is wrong with it."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError("it has no host and port")
    return Address(_parse_host(host), _parse_port(port))


def parse_listen(text: str) -> Address | None:
    """An address, or None for `off`."""
    return None if text == OFF else parse_address(text)


def parse_advertised(text: str) -> Advertised:
    """`host` or `host:port`."""
    if text.endswith("]") or ":" not in text:
        return Advertised(_parse_host(text))
    address = parse_address(text)
    if address.port == 0:
        raise ValueError("no client can connect to port 0")
    return Advertised(*address)


def _parse_host(text: str) -> str:
    bracketed = text.startswith("[") and text.endswith("]") and ":" in text
    host = text[1:-1] if bracketed else text
    if not host.isascii() or not host.isprintable() or any(character in " []/@" for character in host):
        raise ValueError("its host is no host name")
    if bracketed:
        return host
    if ":" in host:
        raise ValueError("an IPv6 address goes in brackets, as in [::1]:9092")
    if not all(1 <= len(label) <= 63 for label in host.removesuffix(".").split(".")):
        raise ValueError("its host is no host name")  # the resolver would not refuse it but fail on it
    return host


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError("its port is no number from 0 to 65535")
    return int(text)
