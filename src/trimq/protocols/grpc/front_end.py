"""gRPC transport of a front-end: opens a conversation for each connection of a gRPC client."""

from __future__ import annotations

from trimq.clock import Timeline
from trimq.config import Settings
from trimq.protocols.contract import CallFrontEnd, SessionControl
from trimq.protocols.grpc.connection import Http2Limits
from trimq.protocols.grpc.conversation import GrpcConversation
from trimq.protocols.grpc.request_headers import GrpcMethod
from trimq.wire.receive_buffer import ReceiveMemory


class GrpcTransport:
    """Transport of one service. `held_bytes` counts the memory of its connections, possibly shared with other
    transports."""

    def __init__(
        self, front_end: CallFrontEnd, limits: Http2Limits, liveness: Timeline, held_bytes: ReceiveMemory | None = None
    ) -> None:
        self._front_end = front_end
        self._limits = limits
        self._liveness = liveness
        self._held_bytes = ReceiveMemory() if held_bytes is None else held_bytes
        named = [(name, False) for name in front_end.calls] + [(name, True) for name in front_end.streams]
        self._methods = {f"/{front_end.service}/{name}": GrpcMethod(name, is_stream) for name, is_stream in named}

    def open_conversation(self, address: str, outlet: SessionControl) -> GrpcConversation:
        return GrpcConversation(
            self._front_end, self._methods, address, outlet, self._limits, self._liveness, self._held_bytes
        )


def limits_of(settings: Settings) -> Http2Limits:
    """Returns the limits of a connection. The broker stops reading from a connection with too many pending replies. It
    allows half as many calls, so that a client whose calls all wait can still cancel them."""
    given = settings.limits
    return Http2Limits(
        streams=max(given.pending_requests_per_connection // 2, 1),
        header_bytes=settings.rocketmq.grpc_header_bytes,
        message_bytes=settings.rocketmq.frame_bytes,
        idle_frames=settings.rocketmq.grpc_idle_frames,
        unsent_bytes=given.unsent_bytes_per_connection,
    )
