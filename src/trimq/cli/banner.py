"""Text that `trimq serve` prints when the broker is ready: its addresses and how to connect."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trimq.cli.version import version
from trimq.config import Settings

# Keys are the names in the ready file. A listener that is not listed is shown with its address only.
HOW_TO_CONNECT = {
    "kafka": ("Kafka", "bootstrap.servers={address}"),
    "rocketmq": ("RocketMQ", "namesrvAddr={address}"),
    "rocketmq_broker": ("", "{address}  broker, found by the name server"),
    "rocketmq_vip": ("", "{address}  broker, VIP channel of old clients"),
    "rocketmq_grpc": ("", "{address}  gRPC clients"),
    "amqp": ("RabbitMQ", "amqp://guest:guest@{address}/"),
    "http": ("HTTP", "http://{address}  /readyz  /metrics  /api/topics"),
}


def compose_banner(settings: Settings, addresses: Mapping[str, str], opened_seconds: float) -> str:
    """Returns the banner as plain text, since a library for terminals would slow down the start."""
    flush = "sync" if settings.flush == "sync" else f"async, every {settings.flush_interval_ms} ms"
    lines = [
        f"TriMQ {version()} is ready after {opened_seconds:.2f} s, process {addresses.get('pid', os.getpid())}.",
        f"  {'data':<8}  {os.path.abspath(settings.data_dir)}  (flush {flush})",
    ]
    for name, address in addresses.items():
        if name != "pid":
            title, how = HOW_TO_CONNECT.get(name, (name, "{address}"))
            lines.append(f"  {title:<8}  {how.format(address=address)}")
    lines.append("Stop it with Ctrl-C or SIGTERM.")
    return "\n".join(lines)
