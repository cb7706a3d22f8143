"""Encodes messages that the broker sends to gRPC clients without a request, over their telemetry stream."""

from __future__ import annotations

from trimq.formats.rocketmq_unit.unit import read_unit
from trimq.model import Buffer
from trimq.protocols.rocketmq.clients.notifications import TransactionCheck
from trimq.protocols.rocketmq.grpc.clients.message_view import to_grpc_message
from trimq.protocols.rocketmq.grpc.wire import wire


class GrpcDialect:
    def members_changed(self, group: str, opaque: int) -> list[Buffer]:
        """Returns nothing: gRPC clients do not divide queues among themselves."""
        return []

    def check_back(self, question: TransactionCheck, opaque: int) -> list[Buffer]:
        unit = read_unit(question.unit)
        asked = wire.RecoverOrphanedTransactionCommand(
            message=to_grpc_message(unit, unit.topic.decode()), transaction_id=question.unique
        )
        return [wire.TelemetryCommand(recover_orphaned_transaction_command=asked).SerializeToString()]


GRPC = GrpcDialect()
