"""What a handler may use: the broker, who asks, and the connection's way out."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from trimq.clock import Clock
from trimq.core.broker import Broker
from trimq.core.topics import Topic
from trimq.model import Caller, Home
from trimq.protocols.contract import Outlet


@dataclass(slots=True)
class Context:
    broker: Broker
    caller: Caller
    clock: Clock
    outlet: Outlet

    def topic(self, name: str, id: bytes) -> Topic:
        """The topic that a request names, by its name or in newer versions by its id; a refusal if there is none."""
        if name:
            return self.broker.topic(self.caller, name, Home.PARTITION_LOG)
        return self.broker.topic_by_id(self.caller, UUID(bytes=id))
