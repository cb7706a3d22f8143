"""DescribeCluster, versions 0 to 2: returns the nodes of the cluster and the id of the controller.

Not served: the endpoints of controllers (refused with MISMATCHED_ENDPOINT_TYPE).
"""

from __future__ import annotations

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.names.operations import UNKNOWN, cluster_operations
from trimq.protocols.kafka.wire.connection import Request, encode_response

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeClusterRequest)
    return Reply.now(encode_response(request, _describe(context, message)))


def _describe(context: Context, message: DescribeClusterRequest) -> DescribeClusterResponse:
    kind = message.endpoint_type
    if kind == _CONTROLLERS:
        return _failed(Code.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller")
    if kind != _BROKERS:
        return _failed(Code.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {kind}")
    cluster = context.broker.cluster
    brokers = [
        DescribeClusterBroker(broker_id=node.id, host=address.host, port=address.port, rack=node.rack)
        for node in cluster.nodes()
        if (address := node.addresses.get("kafka")) is not None
    ]
    operations = UNKNOWN
    if message.include_cluster_authorized_operations:
        operations = cluster_operations(context.broker, context.caller)
    return DescribeClusterResponse(
        cluster_id=cluster.id,
        controller_id=cluster.controller.id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


def _failed(code: Code, reason: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=reason)


HANDLERS = {"DescribeCluster": handle}
