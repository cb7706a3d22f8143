"""Which of Kafka's error codes a refusal about a transaction is: it depends on what the client knows."""

from __future__ import annotations

from trimq.errors import Refusal
from trimq.errors.transactions import ProducerFenced
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal
from trimq.protocols.kafka.names.group_codes import group_code


def transaction_code(refusal: Refusal, knows_fencing: bool) -> Code:
    """`knows_fencing`: the client has a name for having been replaced; older ones hear that their epoch is wrong."""
    if knows_fencing and isinstance(refusal, ProducerFenced):
        return Code.PRODUCER_FENCED
    return group_code(refusal)


def require_transactional_id(name: str) -> None:
    if not name:
        raise KafkaRefusal(Code.INVALID_REQUEST, "a transaction has a name")
