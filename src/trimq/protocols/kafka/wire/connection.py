"""One Kafka connection without IO: parses received bytes into requests and writes responses. Knows frames, headers and
the codec; knows neither sockets nor handlers nor the order of responses."""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from trimq.model import Buffer
from trimq.protocols.kafka.messages.fetch import FetchResponse
from trimq.protocols.kafka.messages.produce import ProduceRequest, ProduceResponse
from trimq.protocols.kafka.messages.schema import RequestMessage, ResponseMessage
from trimq.protocols.kafka.wire import codec
from trimq.protocols.kafka.wire.apis import API_VERSIONS, APIS, Api, UnsupportedRequest
from trimq.protocols.kafka.wire.fast_fetch import write_fetch_response
from trimq.protocols.kafka.wire.fast_produce import ProduceRequestReader, read_legacy_string, write_produce_response
from trimq.protocols.kafka.wire.frames import START_SIZE, InvalidFrame, ReceivedFrames
from trimq.protocols.kafka.wire.primitives import MalformedMessage, skip_tags
from trimq.wire.receive_buffer import ReceiveMemory, copy_into

R = TypeVar("R", bound=RequestMessage)

DEFAULT_FRAME_LIMIT = 100 * 1024 * 1024
DEFAULT_COMMAND_LIMIT = 4 * 1024 * 1024
DEFAULT_ELEMENT_LIMIT = 100_000
PRODUCE = 0
HEADER_SIZE = 8  # up to the client id

unpack_header = struct.Struct(">hhi").unpack_from
pack_header = struct.Struct(">ii").pack  # length, correlation id
pack_flexible_header = struct.Struct(">iix").pack  # plus an empty list of tagged fields


class Request(msgspec.Struct, gc=False):
    """One request with its body not yet decoded.

    `is_supported` is False only for an unsupported version of ApiVersions, which is answered with a version 0 body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    _frame: bytes = b""
    _body: int = 0
    _produce: ProduceRequest | None = None
    _max_elements: int = DEFAULT_ELEMENT_LIMIT

    @property
    def is_supported(self) -> bool:
        api = APIS[self.api_key]
        return api.min_version <= self.api_version <= api.max_version

    def decode(self, kind: type[R]) -> R:
        """Decodes the body as `kind`, which must be the request class of this API. Raises MalformedMessage.

        A produce request can be decoded only once: it holds views of the receive buffer, and a request that waits for
        its response must not prevent the reuse of that buffer."""
        if self.api_key != kind.API_KEY:
            raise TypeError(f"request of API {self.api_key} is not a {kind.__name__}")
        if self.api_key == PRODUCE:
            taken: R | None = self._produce  # type: ignore[assignment]  # a cast would be one more call
            self._produce = None
            if taken is None:
                raise RuntimeError("a produce request can be decoded only once")
            return taken
        return codec.decode(kind, self.api_version, self._frame, self._body, self._max_elements)


class KafkaConnection:
    """Parses received bytes into requests.

    For `asyncio.BufferedProtocol` (`get_buffer`, `buffer_updated`). After each `buffer_updated`, call `next_event`
    until it returns None. If it or `Request.decode` raises a ProtocolError, the connection must close after the
    responses to earlier requests.

    The record batches of a produce request are writable views of the receive buffer. They stay valid and unchanged
    while they are held; dropping them soon lets the buffer be reused.

    `command_limit` limits requests without records, and `element_limit` the arrays of one request together: they become
    objects, many times as large as their bytes. `receive_memory` counts the bytes held by all connections; call `drop`
    when this connection is closed."""

    def __init__(
        self,
        frame_limit: int = DEFAULT_FRAME_LIMIT,
        buffer_size: int = START_SIZE,
        command_limit: int = DEFAULT_COMMAND_LIMIT,
        element_limit: int = DEFAULT_ELEMENT_LIMIT,
        receive_memory: ReceiveMemory | None = None,
    ) -> None:
        self._received = ReceivedFrames(frame_limit, buffer_size, receive_memory)
        self.memory = self._received.memory
        self._command_limit = command_limit
        self._element_limit = element_limit
        self._produce_requests = ProduceRequestReader(element_limit)
        self._client_id: str | None = None
        self._client_id_bytes = b"\xff\xff"  # null
        self.get_buffer = self._received.get_buffer
        self.buffer_updated = self._received.buffer_updated
        self.release_memory = self._received.release_memory
        self.drop = self._received.drop

    def limit_frames(self, limit: int) -> None:
        """Sets the largest frame that is accepted from now on."""
        self._received.frame_limit = limit

    def receive(self, data: Buffer) -> None:
        """Receives bytes by copying. For tests and transports without buffers."""
        copy_into(self, data)

    def next_event(self) -> Request | None:
        """Returns the next complete request, or None until more bytes arrive."""
        received = self._received
        frame = received.next_frame()
        if frame is None:
            return None
        begin, end = frame
        if end - begin < HEADER_SIZE:
            raise MalformedMessage(f"frame of {end - begin} bytes is too short for a request header")
        data = received.data
        api_key, api_version, correlation_id = unpack_header(data, begin)
        try:
            if api_key == PRODUCE:
                requests = self._produce_requests
                if api_version != requests.version:
                    find_api(api_key, api_version)
                client_id, message = requests.read(data, begin + HEADER_SIZE, end, api_version)
                return Request(api_key, api_version, correlation_id, client_id, b"", 0, message)
            api = find_api(api_key, api_version)
            if end - begin > self._command_limit:
                raise InvalidFrame(f"{api.name} of {end - begin} bytes, but at most {self._command_limit} are allowed")
            taken = bytes(memoryview(data)[begin:end])
            client_id, body = self._read_client_id(taken)
            if api_version >= api.flexible_from:
                tags = taken[body]
                body += 1
                if tags:
                    body = skip_tags(taken, body, tags, len(taken))
            return Request(api_key, api_version, correlation_id, client_id, taken, body, None, self._element_limit)
        except (IndexError, struct.error):
            raise MalformedMessage(f"request of API {api_key} version {api_version} is truncated") from None

    def _read_client_id(self, taken: bytes) -> tuple[str | None, int]:
        """Returns the client id and the position after it. Compares with the last client id first, since a client
        rarely changes it."""
        if not taken.startswith(self._client_id_bytes, HEADER_SIZE):
            self._client_id, position = read_legacy_string(taken, HEADER_SIZE, len(taken))
            self._client_id_bytes = taken[HEADER_SIZE:position]
        return self._client_id, HEADER_SIZE + len(self._client_id_bytes)


def find_api(api_key: int, api_version: int) -> Api:
    """Returns the API that has this version. ApiVersions accepts every version, because an unknown one is answered
    too."""
    api = APIS.get(api_key)
    if api is None or not (api.min_version <= api_version <= api.max_version or api_key == API_VERSIONS):
        raise UnsupportedRequest(api_key, api_version)
    return api


def encode_response(request: Request, response: ResponseMessage, version: int | None = None) -> list[Buffer]:
    """Encodes the response to a request as buffers to send one after the other.

    `version` defaults to that of the request; only the response to an unknown version of ApiVersions differs."""
    api_key = response.API_KEY
    if api_key != request.api_key:
        raise TypeError(f"request of API {request.api_key} cannot be answered with a {type(response).__name__}")
    if version is None:
        version = request.api_version
    if type(response) is FetchResponse:
        buffers = write_fetch_response(response, version)
        size = sum(map(len, buffers))
    else:
        if type(response) is ProduceResponse:
            body = write_produce_response(response, version)
        else:
            body = codec.encode(response, version)
        buffers = [body]
        size = len(body)
    return frame_response(request, buffers, size, version)


def frame_response(request: Request, buffers: list[Buffer], size: int, version: int) -> list[Buffer]:
    """Puts the header before the buffers of a body of `size` bytes."""
    api_key = request.api_key
    # Kafka answers ApiVersions with the oldest header version, since the client does not know the supported versions
    # yet.
    if version >= APIS[api_key].flexible_from and api_key != API_VERSIONS:
        buffers[0] = pack_flexible_header(size + 5, request.correlation_id) + buffers[0]
    else:
        buffers[0] = pack_header(size + 4, request.correlation_id) + buffers[0]
    return buffers
