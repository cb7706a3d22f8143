"""What a producer in a transaction can be refused, one class per idea. Only front-ends that have transactions over many
streams need codes for these."""

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
    """The transaction is not known, or belongs to another producer id."""

    producer_id: int

    def __str__(self) -> str:
        return f"the transaction does not belong to producer {self.producer_id}"


@dataclass(eq=False)
class ProducerFenced(Refusal):
    """Another producer has taken over the transaction, or it was aborted because it took too long."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} of producer {self.producer_id} is not the present one"


@dataclass(eq=False)
class TransactionUnderWay(Refusal):
    """The last transaction of this name is being ended; ask again in a moment."""

    retriable = True

    def __str__(self) -> str:
        return "the last transaction is still being ended"


@dataclass(eq=False)
class WrongTransactionState(Refusal):
    """What is asked cannot be done in the transaction's present state."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class InvalidTransactionTimeout(Refusal):
    timeout_ms: int
    most_ms: int

    def __str__(self) -> str:
        return f"a transaction may last 1 to {self.most_ms} ms, not {self.timeout_ms}"
