"""One remoting connection without IO: received bytes become commands, commands become bytes. Knows frames and both
kinds of headers; nothing of sockets, of what the codes mean, or of who answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from trimq.errors import ProtocolError
from trimq.model import Buffer
from trimq.protocols.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer, ReceiveMemory, copy_into

H = TypeVar("H", bound=msgspec.Struct)

DEFAULT_FRAME_LIMIT = 16 * 1024 * 1024
DEFAULT_HEADER_LIMIT = 1024 * 1024
START_SIZE = 16 * 1024
LARGEST_SIZE = 64 * 1024

JSON, BINARY = 0, 1
RESPONSE, ONE_WAY = 1, 2
VERSION = 513  # of the broker whose answers these are: 5.5.0
STRICT_JSON_FROM = 401  # clients from 4.9.4 on

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)

_LENGTHS = struct.Struct(">iI")  # of the frame; kind and length of the header
_LENGTH = struct.Struct(">i")
_BINARY_HEAD = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, length of the remark
_SHORT = struct.Struct(">h")


class BrokenFrame(ProtocolError):
    """The lengths or the header of a frame are not what they must be."""


class BadHeader(ValueError):
    """A command lacks a field, or a field is not what its kind of command needs."""


class _Envelope(msgspec.Struct):
    """A JSON header, its fields not yet read. Numbers may be written as text."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: Any = None
    remark: Any = None
    extFields: msgspec.Raw = msgspec.Raw()


class Command(msgspec.Struct):
    """A request or a response. `fields` are read when they are asked for."""

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
        """By name, each as text, whatever it was written as. BadHeader: they are not fields."""
        if self._fields is None:
            self._fields = _read_fields(self._raw)
        return self._fields

    def read(self, kind: type[H]) -> H:
        """The fields as a header of this kind. BadHeader: one is missing, or is not of its type."""
        try:
            if self._fields is None and self._raw:
                try:
                    header: H = _decoder_of(kind).decode(self._raw)
                    return header
                except msgspec.ValidationError:
                    pass  # a number where a text is wanted is as good as the text
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
    """Turns received bytes into commands.

    `get_buffer` and `buffer_updated` are those of `asyncio.BufferedProtocol`. After each `buffer_updated` call
    `next_event` until it gives None. ProtocolError: the connection must close. A read that fills the buffer doubles the
    next one, up to `LARGEST_SIZE`, until `release_memory`. `receive_memory` counts the bytes that all connections hold;
    call `drop` when this one is closed.
    """

    def __init__(
        self,
        frame_limit: int = DEFAULT_FRAME_LIMIT,
        header_limit: int = DEFAULT_HEADER_LIMIT,
        receive_memory: ReceiveMemory | None = None,
    ) -> None:
        self._frame_limit = frame_limit
        self._header_limit = header_limit
        self._memory = ConnectionReceiveMemory(receive_memory)
        self._received = CopiedReceiveBuffer(self._memory, START_SIZE, LARGEST_SIZE)
        self.get_buffer = self._received.get_buffer
        self.release_memory = self._received.release_memory
        self.drop = self._received.drop

    def buffer_updated(self, count: int) -> None:
        received = self._received
        received.end += count
        if received.end == len(received.data) and received.size < LARGEST_SIZE:
            received.size *= 2  # there is more where that came from

    def receive(self, data: Buffer) -> None:
        """Take bytes by copying them."""
        copy_into(self, data)

    def _wait(self) -> None:
        """More has to arrive. BrokenFrame: there is no room for it. A buffer that was needed for a long command is
        freed as soon as a short one is in it."""
        if len(self._received.data) > LARGEST_SIZE:
            self._received.shrink(LARGEST_SIZE)
            if self._memory.is_over_limit:
                self.drop()
                raise BrokenFrame(self._memory.reason)

    def next_event(self) -> Command | None:
        """The next whole command, or None until more bytes arrive. A frame that holds no command is passed over, as
        the genuine server does."""
        received = self._received
        while True:
            start = received.start
            if received.end - start < 4:
                self._wait()
                return None
            (length,) = _LENGTH.unpack_from(received.data, start)
            if not 4 <= length <= self._frame_limit - 4:
                raise BrokenFrame(f"a frame of {length} bytes, where 4 to {self._frame_limit - 4} are allowed")
            finish = start + 4 + length
            if finish > received.end:
                self._wait()
                return None
            received.start = finish
            command = self._read_frame(start, finish)
            if command is not None:
                return command

    def read_matching(
        self, begins: tuple[bytes, ...], decode: Callable[[Buffer], H], take: Callable[[H, memoryview], bool]
    ) -> None:
        """Take the commands that come next, for as long as their headers are JSON and begin in one of these ways, can
        be read by `decode`, and are taken with their bodies, which are valid until more is received. What cannot is
        left to `next_event`."""
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
            raise BrokenFrame(f"a header of {header_length} bytes in a frame of {finish - start - 4}")
        if header_length > self._header_limit:
            raise BrokenFrame(f"a header of {header_length} bytes, where {self._header_limit} are allowed")
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
        raise BrokenFrame(f"a header is not JSON: {error}") from None
    remark = found.remark if isinstance(found.remark, str) else None
    language = found.language if isinstance(found.language, str) else "OTHER"
    # The one copy of the header lives as long as the command does.
    return Command(found.code, found.opaque, found.flag, found.version, language, remark, body, found.extFields)


def _read_loosely(header: bytes, body: bytes) -> Command | None:
    """A header of which not everything is as it should be: what is not a number counts as 0. None: it has no code."""
    try:
        found = msgspec.json.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"a header is not JSON: {error}") from None
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
        raise BrokenFrame("a binary header ends too early") from None
    return Command(code, opaque, flag, version, name, text, body, _fields=fields)


def _take(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length < 0 or at + length > len(data):
        raise BrokenFrame(f"{length} bytes in a binary header that has {len(data) - at} left")
    return data[at : at + length], at + length


def _read_binary_fields(data: bytes) -> dict[str, str]:
    fields, at = {}, 0
    while at < len(data):
        name, at = _take(data, at + 2, _SHORT.unpack_from(data, at)[0])
        value, at = _take(data, at + 4, _LENGTH.unpack_from(data, at)[0])
        fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return fields


# -- out


class _Out(msgspec.Struct, omit_defaults=True):
    """In the order in which the genuine server writes them."""

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
    """A frame without its body, which has `size` bytes and is sent right after it."""
    header = _encode(_Out(code, fields or None, flag, "JAVA", opaque, remark, "JSON", VERSION))
    return _LENGTHS.pack(4 + len(header) + size, len(header)) + header


def frame(header: bytes, size: int = 0) -> bytes:
    """As `encode_command`, of a JSON header that is made already."""
    return _LENGTHS.pack(4 + len(header) + size, len(header)) + header
