"""Refusals to transactional producers, one class per idea. Only front-ends with transactions over several streams need
codes for these."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.errors import Refusal


@dataclass(eq=False)
class UnknownTransaction(Refusal):
    name: str

    def __str__(self) -> str:
        return f"there is no transaction {self.name!r}"


@dataclass(eq=False)
class ForeignProducer(Refusal):
    """The transaction is unknown, or belongs to another producer id."""

    producer_id: int

    def __str__(self) -> str:
        return f"the transaction does not belong to producer {self.producer_id}"


@dataclass(eq=False)
class ProducerFenced(Refusal):
    """Another producer has taken over the transactional id, or the transaction was aborted on time-out."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} of producer {self.producer_id} is not the current one"


@dataclass(eq=False)
class TransactionUnderWay(Refusal):
    """The previous transaction of this id is still being committed or aborted; retry shortly."""

    retriable = True

    def __str__(self) -> str:
        return "the previous transaction is still being completed"


@dataclass(eq=False)
class WrongTransactionState(Refusal):
    """The request is not allowed in the current state of the transaction."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class InvalidTransactionTimeout(Refusal):
    timeout_ms: int
    max_ms: int

    def __str__(self) -> str:
        return f"a transaction may last 1 to {self.max_ms} ms, not {self.timeout_ms}"
