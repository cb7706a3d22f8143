"""POP groups with the real broker in the simulation: ordered or not, unacked messages are revived or dead-lettered. In
some worlds part of the clients use gRPC."""

from __future__ import annotations

from clients import Client
from grpc_clients import GRPC_PORT, GrpcPopper, GrpcSender
from popping_clients import Popper
from popping_promises import PoppingPromises
from rocketmq_clients import Auditor, Delayer, RocketMQClient, Sender
from rocketmq_workload import RocketMQWorkload

from trimq.config import Address

NEVER = 1_000_000
"""More retries than any message has: ordered messages are never dead-lettered."""


class PoppingWorkload(RocketMQWorkload):
    def _make_clients(self) -> list[Client]:
        """A group of two, ordered in every third world."""
        senders: list[type[RocketMQClient]] = [Sender]
        senders += [Delayer] if self._random.random() < 0.3 else []
        clients: list[Client] = []
        for number, kind in enumerate(senders):
            name = f"{kind.__name__.lower()}{number}"
            clients.append(kind(name, self._source(name), self._surroundings, self.message_promises))
        if self._random.random() < 0.33:
            group = PoppingPromises("inorder", is_ordered=True, limit=NEVER)
        else:
            group = PoppingPromises("any", is_ordered=False, limit=self._random.choice((1, 16)))
        self.message_promises.add_pop_group(group)
        for number in range(2):
            name = f"popper-{group.group}{number}"
            clients.append(Popper(name, self._source(name), self._surroundings, self.message_promises, group))
        clients.append(Auditor("auditor", self._source("auditor"), self._surroundings, self.message_promises, []))
        return clients


class CallingWorkload(RocketMQWorkload):
    """Senders and members of one group, over both front-ends."""

    grpc_listen = Address("127.0.0.1", GRPC_PORT)

    def _make_clients(self) -> list[Client]:
        group = PoppingPromises("any", is_ordered=False, limit=self._random.choice((1, 16)))
        self.message_promises.add_pop_group(group)
        clients: list[Client] = []
        for sender in (Sender, GrpcSender):
            name = sender.__name__.lower()
            clients.append(sender(name, self._source(name), self._surroundings, self.message_promises))
        for kind in (GrpcPopper, self._random.choice((GrpcPopper, Popper))):
            name = f"{kind.__name__.lower()}{len(clients)}"
            clients.append(kind(name, self._source(name), self._surroundings, self.message_promises, group))
        clients.append(Auditor("auditor", self._source("auditor"), self._surroundings, self.message_promises, []))
        return clients
