"""Text that `trimq serve` prints when the broker is ready: addresses that clients can use, how to connect, and what is
missing or open to everybody."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from trimq.cli.version import version
from trimq.config import EVERY_INTERFACE, Address, Settings, is_login_required, parse_address

# Keys are the names in the ready file. A listener that is not listed is shown with its address only.
HOW_TO_CONNECT = {
    "kafka": ("Kafka", "bootstrap.servers={address}"),
    "rocketmq": ("RocketMQ", "namesrvAddr={address}"),
    "rocketmq_broker": ("", "{address}  broker, found by the name server"),
    "rocketmq_vip": ("", "{address}  broker, VIP channel of old clients"),
    "rocketmq_grpc": ("", "{address}  gRPC clients"),
    "amqp": ("RabbitMQ", "{amqp}://{login}{address}/{note}"),
    "http": ("HTTP", "{http}://{address}  /readyz  /metrics  /api/topics"),
}

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def compose_banner(
    settings: Settings,
    addresses: Mapping[str, str],
    opened_seconds: float,
    has_users: bool = False,
    missing: Collection[str] = (),
    is_colored: bool = False,
) -> str:
    """Returns the banner as plain text, since a library for terminals would slow down the start. `missing`: keys of
    listeners that are off because their packages are not installed."""
    flush = "sync" if settings.flush == "sync" else f"{settings.flush}, every {settings.flush_interval_ms} ms"
    lines = [
        f"TriMQ {version()} is ready after {opened_seconds:.2f} s, process {addresses.get('pid', os.getpid())}.",
        f"  {'data':<8}  {os.path.abspath(settings.data_dir)}  (flush {flush})",
    ]
    bound = {name: parse_address(address) for name, address in addresses.items() if name != "pid"}
    usable = usable_addresses(settings, bound)
    requires_login = is_login_required(settings)
    encrypted = {name: settings.tls.mode_of(name) == "required" for name in ("amqp", "http")}
    words = {name: f"{name}s" if is_encrypted else name for name, is_encrypted in encrypted.items()}
    for name, address in bound.items():
        title, how = HOW_TO_CONNECT.get(name, (name, "{address}"))
        login, note = _login(address, has_users, requires_login) if name == "amqp" else ("", "")
        lines.append(f"  {title:<8}  {how.format(address=usable[name], login=login, note=note, **words)}")
    if "rocketmq.grpc_listen" in missing and "rocketmq_grpc" not in bound and "rocketmq" in bound:
        lines.append(f'  {"":<8}  gRPC is off, since it is not installed: pip install "trimq[grpc]"')
    for warning in [] if has_users else _warnings(settings, bound):
        lines.append(f"{_RED}{warning}{_PLAIN}" if is_colored else warning)
    if not has_users and not requires_login:
        lines.append("  security  open: clients of this broker need no login (to close it: trimq users set NAME")
        lines.append("            --administrator yes; docs/security.md)")
    lines.append("Stop it with Ctrl-C or SIGTERM.")
    return "\n".join(lines)


def usable_addresses(settings: Settings, bound: Mapping[str, Address]) -> dict[str, Address]:
    """Returns the addresses that clients connect to: the advertised ones, or this machine's name where a listener is
    bound to every interface."""
    from trimq.server.front_ends import advertised_addresses  # late import: the banner is needed once it is loaded

    usable = advertised_addresses(settings, bound)
    for name, address in usable.items():
        if address.host in EVERY_INTERFACE:
            advertised = settings.rocketmq.advertise if name.startswith("rocketmq") else settings.kafka.advertise
            host = os.uname().nodename if advertised is None else advertised.host
            usable[name] = Address(host, address.port)
    return usable


def _login(amqp: Address, has_users: bool, requires_login: bool) -> tuple[str, str]:
    """Returns the login of an AMQP address, and a remark. `guest` is refused from other machines, and as soon as a user
    is defined."""
    if has_users or requires_login:
        return "", "  log in as one of the users (trimq users list)"
    if amqp.is_loopback:
        return "guest:guest@", ""
    return "", "  needs a user (trimq users set NAME); from this machine guest:guest"


def _warnings(settings: Settings, bound: Mapping[str, Address]) -> Iterator[str]:
    if is_login_required(settings):
        yield "WARNING: only users may do anything here (security.mode), and none is defined."
        yield "To define one: stop the broker, then trimq users bootstrap NAME"
        return
    # AMQP is not open: without users it accepts clients of this machine only.
    names = [name for name, address in bound.items() if name != "amqp" and not address.is_loopback]
    if names:
        yield f"WARNING: open to the network, and no user is defined: {', '.join(names)}."
        yield "Everybody who reaches these ports may read, write and delete everything."
        yield "To define a user, on this machine: trimq users set NAME --administrator yes"
