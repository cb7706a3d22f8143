"""Embedded broker for tests: `from trimq.testing import Broker`. The broker is imported at first use, so that the
pytest plugin of this package costs nothing if no test uses a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimq.testing.broker import Broker as Broker
    from trimq.testing.broker import BrokerFailed as BrokerFailed

__all__ = ["Broker", "BrokerFailed"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from trimq.testing import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
