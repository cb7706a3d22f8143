"""Which front-end listens where. The one place that names them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trimq.clock import Clock
from trimq.config import Address, Settings, told_address
from trimq.core.counts import CountsOfAll
from trimq.core.opening import Core
from trimq.metrics import Metrics
from trimq.protocols.amqp.front_end import AmqpFrontEnd
from trimq.protocols.contract import FrontEnd
from trimq.protocols.kafka.front_end import KafkaFrontEnd
from trimq.server.http import HttpFrontEnd


@dataclass(frozen=True, slots=True)
class FrontEndParts:
    """What a front-end is built from."""

    settings: Settings
    core: Core
    clock: Clock
    metrics: Metrics
    counts: CountsOfAll
    chance: random.Random
    is_ready: Callable[[], bool]


MakeFrontEnd = Callable[[FrontEndParts], FrontEnd]


class Planned(NamedTuple):
    address: Address
    make: MakeFrontEnd


Plan = Callable[[Settings], Mapping[str, Planned]]


# Those that tell whether the broker is ready do so until everything else has stopped.
LAST_TO_STOP = ("http",)


def configured_front_ends(settings: Settings) -> dict[str, Planned]:
    """By the names that the ready file uses; those that are off are left out."""
    wanted = {
        "kafka": (settings.kafka.listen, _kafka),
        "amqp": (settings.amqp.listen, _amqp),
        "http": (settings.http.listen, _http),
    }
    return {name: Planned(address, make) for name, (address, make) in wanted.items() if address is not None}


def _kafka(parts: FrontEndParts) -> FrontEnd:
    return KafkaFrontEnd(parts.core.broker, parts.clock, parts.counts.of("kafka"))


def _amqp(parts: FrontEndParts) -> FrontEnd:
    core = parts.core
    cluster_name = f"trimq@{core.cluster.id}"
    return AmqpFrontEnd(core.broker.queueing, core.logins, parts.clock, parts.settings.amqp, parts.chance, cluster_name)


def _http(parts: FrontEndParts) -> FrontEnd:
    return HttpFrontEnd(parts.core.broker, parts.metrics, parts.is_ready)


def told_addresses(settings: Settings, bound: Mapping[str, Address]) -> dict[str, Address]:
    """What clients of each protocol are told to connect to."""
    advertised = {"kafka": settings.kafka.advertise}
    return {name: told_address(advertised.get(name), address) for name, address in bound.items()}
