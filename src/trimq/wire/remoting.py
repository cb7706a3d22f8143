"""One remoting connection without IO: parses received bytes into commands and encodes commands. Knows frames and both
header formats (JSON and binary); knows neither sockets nor the meaning of codes nor handlers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from trimq.errors import ProtocolError
from trimq.model import Buffer
from trimq.wire.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer, ReceiveMemory, copy_into

H = TypeVar("H", bound=msgspec.Struct)

DEFAULT_FRAME_LIMIT = 16 * 1024 * 1024
DEFAULT_HEADER_LIMIT = 1024 * 1024
START_SIZE = 16 * 1024
LARGEST_SIZE = 64 * 1024

JSON, BINARY = 0, 1
RESPONSE, ONE_WAY = 1, 2
VERSION = 513  # of Apache RocketMQ 5.5.0
STRICT_JSON_FROM = 401  # client version 4.9.4

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)

_LENGTHS = struct.Struct(">iI")  # frame length; header format (high byte) and header length
_LENGTH = struct.Struct(">i")
_BINARY_HEAD = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_SHORT = struct.Struct(">h")


class BrokenFrame(ProtocolError):
    """A frame has invalid lengths or a malformed header."""


class BadHeader(ValueError):
    """A command lacks a field, or a field has the wrong type."""


class _Envelope(msgspec.Struct):
    """JSON header with undecoded fields. Numbers may be encoded as strings."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: Any = None
    remark: Any = None
    extFields: msgspec.Raw = msgspec.Raw()


class Command(msgspec.Struct):
    """Request or response. `fields` are decoded on first use."""

    code: int
    opaque: int
    flag: int
    version: int
    language: str
    remark: str | None
    body: bytes
    _raw: msgspec.Raw = msgspec.Raw()
    _fields: dict[str, str] | None = None

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    @property
    def fields(self) -> dict[str, str]:
        """Fields by name, each converted to text. Raises BadHeader if they are malformed."""
        if self._fields is None:
            self._fields = _read_fields(self._raw)
        return self._fields

    def read(self, kind: type[H]) -> H:
        """Decodes the fields as a header of this class. Raises BadHeader if a field is missing or has the wrong
        type."""
        try:
            if self._fields is None and self._raw:
                try:
                    header: H = _decoder_of(kind).decode(self._raw)
                    return header
                except msgspec.ValidationError:
                    pass  # accept a number where a string is expected
            return msgspec.convert(self.fields, kind, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadHeader(str(error)) from None


@cache
def _decoder_of(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


_decode_envelope = msgspec.json.Decoder(_Envelope, strict=False).decode


def _read_fields(raw: msgspec.Raw) -> dict[str, str]:
    if not raw:
        return {}
    try:
        found = msgspec.json.decode(raw, type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadHeader(str(error)) from None
    return {name: _as_text(value) for name, value in found.items() if value is not None}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else msgspec.json.encode(value).decode()


class RemotingConnection:
    """Parses received bytes into commands.

    For `asyncio.BufferedProtocol` (`get_buffer`, `buffer_updated`). After each `buffer_updated`, call `next_event`
    until it returns None. If it raises a ProtocolError, the connection must close. A read that fills the buffer doubles
    the size of the next one, up to `LARGEST_SIZE`, until `release_memory`. `receive_memory` counts the bytes held by
    all connections; call `drop` when this connection is closed."""

    def __init__(
        self,
        frame_limit: int = DEFAULT_FRAME_LIMIT,
        header_limit: int = DEFAULT_HEADER_LIMIT,
        receive_memory: ReceiveMemory | None = None,
    ) -> None:
        self._frame_limit = frame_limit
        self._header_limit = header_limit
        self.memory = ConnectionReceiveMemory(receive_memory)
        self._received = CopiedReceiveBuffer(self.memory, START_SIZE, LARGEST_SIZE)
        self.get_buffer = self._received.get_buffer
        self.release_memory = self._received.release_memory
        self.drop = self._received.drop

    def buffer_updated(self, count: int) -> None:
        received = self._received
        received.end += count
        if received.end == len(received.data) and received.size < LARGEST_SIZE:
            received.size *= 2  # the socket probably holds more

    def receive(self, data: Buffer) -> None:
        """Receives bytes by copying."""
        copy_into(self, data)

    def _wait(self) -> None:
        """Checks the memory limit before waiting for more bytes. Raises BrokenFrame if it is exceeded. Shrinks a buffer
        that was enlarged for a long command once its remaining bytes fit."""
        if len(self._received.data) > LARGEST_SIZE:
            self._received.shrink(LARGEST_SIZE)
            if self.memory.must_close():
                self.drop()
                raise BrokenFrame(self.memory.reason)

    def next_event(self) -> Command | None:
        """Returns the next complete command, or None until more bytes arrive. Skips a frame without a command, as
        Apache RocketMQ does."""
        received = self._received
        while True:
            start = received.start
            if received.end - start < 4:
                self._wait()
                return None
            (length,) = _LENGTH.unpack_from(received.data, start)
            if not 4 <= length <= self._frame_limit - 4:
                raise BrokenFrame(f"frame of {length} bytes, but 4 to {self._frame_limit - 4} are allowed")
            finish = start + 4 + length
            if finish > received.end:
                self._wait()
                return None
            if self.memory.count:
                self.memory.renew()
            received.start = finish
            command = self._read_frame(start, finish)
            if command is not None:
                return command

    def read_matching(
        self, begins: tuple[bytes, ...], decode: Callable[[Buffer], H], take: Callable[[H, memoryview], bool]
    ) -> None:
        """Fast path of `next_event` for consecutive commands with JSON headers that start with one of `begins`. Passes
        each decoded header and its body to `take`; the body is valid until more bytes are received. Falls back to
        `next_event` (stops) at the first command that differs, cannot be decoded, or that `take` declines."""
        received = self._received
        data, start, end = received.data, received.start, received.end
        if end - start < _LENGTHS.size:
            return
        longest = min(self._frame_limit - 4, end - start)
        unpack_from, starts_with = _LENGTHS.unpack_from, data.startswith
        view = received.view
        while end - start >= _LENGTHS.size:
            length, header_length = unpack_from(data, start)
            finish, header_at = start + 4 + length, start + _LENGTHS.size
            body_at = header_at + header_length
            if not 0 < length <= longest or header_length > self._header_limit or not body_at <= finish <= end:
                break
            if not starts_with(begins, header_at):
                break
            try:
                header = decode(view[header_at:body_at])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                break
            if not take(header, view[body_at:finish]):
                break
            start = finish
        received.start = start

    def _read_frame(self, start: int, finish: int) -> Command | None:
        _, mark = _LENGTHS.unpack_from(self._received.data, start)
        kind, header_length = mark >> 24, mark & 0xFFFFFF
        header_at = start + _LENGTHS.size
        body_at = header_at + header_length
        if body_at > finish:
            raise BrokenFrame(f"header of {header_length} bytes exceeds its frame of {finish - start - 4}")
        if header_length > self._header_limit:
            raise BrokenFrame(f"header of {header_length} bytes, but at most {self._header_limit} are allowed")
        view = self._received.view
        header = bytes(view[header_at:body_at])
        body = bytes(view[body_at:finish])
        if kind == JSON and header:
            return _read_json(header, body)
        if kind == BINARY and header:
            return _read_binary(header, body)
        return None


def _read_json(header: bytes, body: bytes) -> Command | None:
    try:
        found = _decode_envelope(header)
    except msgspec.ValidationError:
        return _read_loosely(header, body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"header is not valid JSON: {error}") from None
    remark = found.remark if isinstance(found.remark, str) else None
    language = found.language if isinstance(found.language, str) else "OTHER"
    # The command shares this copy of the header (`extFields` is a view of it).
    return Command(found.code, found.opaque, found.flag, found.version, language, remark, body, found.extFields)


def _read_loosely(header: bytes, body: bytes) -> Command | None:
    """Reads a header with fields of the wrong type: a value that is not a number counts as 0. Returns None if there is
    no code."""
    try:
        found = msgspec.json.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"header is not valid JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("code"), int | str):
        return None
    fields = found.get("extFields")
    fields = fields if isinstance(fields, dict) else {}
    code, opaque, flag, version = (_number(found.get(name)) for name in ("code", "opaque", "flag", "version"))
    texts = {name: _as_text(value) for name, value in fields.items() if value is not None}
    return Command(code, opaque, flag, version, str(found.get("language")), None, body, _fields=texts)


def _number(value: object) -> int:
    try:
        return int(value) if isinstance(value, int | str) else 0
    except ValueError:
        return 0


def _read_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(header)
        remark, at = _take(header, _BINARY_HEAD.size, remark_length)
        (fields_length,) = _LENGTH.unpack_from(header, at)
        fields = _read_binary_fields(_take(header, at + 4, fields_length)[0])
        name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
        text = remark.decode("utf-8", "replace") or None
    except struct.error:
        raise BrokenFrame("truncated binary header") from None
    return Command(code, opaque, flag, version, name, text, body, _fields=fields)


def _take(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length < 0 or at + length > len(data):
        raise BrokenFrame(f"{length} bytes declared in a binary header with {len(data) - at} left")
    return data[at : at + length], at + length


def _read_binary_fields(data: bytes) -> dict[str, str]:
    fields, at = {}, 0
    while at < len(data):
        name, at = _take(data, at + 2, _SHORT.unpack_from(data, at)[0])
        value, at = _take(data, at + 4, _LENGTH.unpack_from(data, at)[0])
        fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return fields


# -- encoding


class _Out(msgspec.Struct, omit_defaults=True):
    """Response header, with its fields in the order of Apache RocketMQ."""

    code: int
    extFields: Mapping[str, str] | None = None
    flag: int | None = None
    language: str | None = None
    opaque: int | None = None
    remark: str | None = None
    serializeTypeCurrentRPC: str | None = None
    version: int | None = None


_encode = msgspec.json.Encoder().encode
NO_FIELDS: Mapping[str, str] = {}


def encode_command(
    code: int, opaque: int, flag: int, fields: Mapping[str, str] = NO_FIELDS, remark: str | None = None, size: int = 0
) -> bytes:
    """Encodes a frame without its body, which has `size` bytes and is sent right after it."""
    header = _encode(_Out(code, fields or None, flag, "JAVA", opaque, remark, "JSON", VERSION))
    return _LENGTHS.pack(4 + len(header) + size, len(header)) + header


def encode_request(code: int, opaque: int, flag: int, fields: Mapping[str, str], language: str, size: int = 0) -> bytes:
    """Encodes the frame of a client's request without its body, which has `size` bytes and is sent right after it."""
    header = _encode(_Out(code, fields or None, flag, language, opaque, None, "JSON", VERSION))
    return _LENGTHS.pack(4 + len(header) + size, len(header)) + header


def frame(header: bytes, size: int = 0) -> bytes:
    """Adds the frame prefix to an encoded JSON header; the body of `size` bytes follows."""
    return _LENGTHS.pack(4 + len(header) + size, len(header)) + header
