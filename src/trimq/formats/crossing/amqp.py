"""AMQP contents as neutral messages, and back. Properties of AMQP are fields; application headers that are not text
travel in the residue, which holds the raw property list."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Value
from trimq.formats.amqp_content.private_headers import without_private_headers
from trimq.formats.amqp_content.property_list import EMPTY, read_properties, replace, write_properties
from trimq.formats.crossing.neutral import (
    ACTING,
    AMQP,
    AMQP_FIELD,
    AMQP_PROPERTIES,
    ESCAPE,
    FROM,
    KAFKA,
    KEPT,
    KEYS,
    NULL,
    ORIGINS,
    ROCKETMQ_FIELD,
    SEQUENCE,
    TAGS,
    UNIQUE_KEY,
    USER_ID,
    VERSION,
    Kept,
    Neutral,
    decode_kept,
    encode_kept,
    is_reserved,
    is_usable_name,
    usable_text,
)

EXCHANGE = "amqp.exchange"
TIMESTAMP = "amqp.timestamp"
TIME_HEADER = "timestamp_in_ms"
"""RabbitMQ's own convention for a time in milliseconds."""

_KAFKA_KEY = "kafka.key"
_FIELD_OF = {name: field for field, name in AMQP_PROPERTIES.items()} | {"user_id": USER_ID, "timestamp": TIMESTAMP}
_OCTETS = frozenset(("delivery_mode", "priority"))
_MAX_SHORT = 255

_NATURAL_OF_ROCKETMQ = {
    UNIQUE_KEY: "message_id",
    TAGS: "type",
    "rmq.CORRELATION_ID": "correlation_id",
    "rmq._SYS_MSG_PRIORITY_": "priority",
}
_NATURAL_OF_KAFKA = {**AMQP_PROPERTIES, TAGS: "type", UNIQUE_KEY: "message_id"}

# Headers that act on a broker: blind copies and copies, and what brokers note about a message.
_POWERFUL = frozenset(("CC", "BCC", TIME_HEADER))
_POWERFUL_PREFIXES = ("x-", "\0")


def to_neutral(content: Content, queue: str, is_stored: bool = True) -> Neutral:
    """Converts the content of a queue or topic of this name. `is_stored`: see `kafka.to_neutral`. Properties that
    cannot be read travel in the residue alone."""
    header = without_private_headers(content.header)
    try:
        properties = read_properties(header)
    except BadField:
        properties = {}
        is_readable = False
    else:
        is_readable = True
    given = properties.pop("headers", None)
    table: Mapping[str, Value] = given if isinstance(given, Mapping) else {}
    if is_stored and (origin := table.get(FROM)) in ORIGINS and isinstance(origin, str) and origin != AMQP:
        return _translated(content, queue, properties, table, origin)
    return _own(content, queue, header, properties, table, is_readable)


def from_neutral(message: Neutral, queue: str) -> Content:
    """Returns the content that an AMQP client sees, and that a queue stores."""
    if message.origin == AMQP:
        return _restored(message, queue)
    body, key, headers, timestamp_ms, origin, fields, kept, sequence = message
    names = _NATURAL_OF_KAFKA if origin == KAFKA else _NATURAL_OF_ROCKETMQ | AMQP_PROPERTIES
    properties: dict[str, Value] = {}
    table: FieldTable = {}
    for field, value in fields.items():
        name = names.get(field)
        natural = None if name is None else _property(name, value)
        if name is not None and natural is not None:
            properties[name] = natural
        elif field != KEYS and origin != KAFKA:
            table[field] = value
    routing_key = _routing_key(key, queue, origin, table)
    _add_headers(table, headers, fields)
    if timestamp_ms >= 0:
        properties["timestamp"] = timestamp_ms // 1000
        table[TIME_HEADER] = timestamp_ms
    if body is None:
        table[NULL] = True
    table[FROM] = origin
    if sequence:
        table[SEQUENCE] = sequence
    if kept:
        table[KEPT] = kept
    return Content(b"", routing_key, write_properties(headers=table, **properties), body or b"", timestamp_ms)


def restore(kept: Kept, body: bytes | None, timestamp_ms: int) -> Content:
    """Returns the content whose residue another layout holds. It has no `user_id`: nobody checked it there."""
    exchange, key = kept.names
    header = kept.properties or EMPTY
    try:
        if read_properties(header).get("user_id") is not None:
            header = replace(header, user_id=None)
    except BadField:
        pass
    return Content(exchange, key, header, body or b"", timestamp_ms)


def _own(
    content: Content,
    queue: str,
    header: bytes,
    properties: Mapping[str, Value],
    table: Mapping[str, Value],
    is_readable: bool,
) -> Neutral:
    exchange, routing_key, _, body, published_ms = content
    fields: dict[str, str] = {}
    if exchange:
        fields[EXCHANGE] = exchange.decode("utf-8", "replace")
    key = None if not exchange and routing_key == queue.encode() else routing_key
    is_plain = is_readable and (key is None or usable_text(key) is not None) and published_ms >= 0
    for name, value in properties.items():
        text = str(value)
        fields[_FIELD_OF[name]] = text
        is_plain = (
            is_plain and name not in ("user_id", "timestamp", "expiration") and usable_text(text.encode()) is not None
        )
    headers: list[tuple[str, bytes | None]] = []
    acting = ACTING[AMQP]
    for name, value in table.items():
        if type(value) is not str:
            is_plain = False
        raw = _text_form(value)
        if name in acting and (text_value := usable_text(raw)) is not None:
            fields[name] = text_value
            is_plain = False
        elif name.startswith(_POWERFUL_PREFIXES) or name in _POWERFUL:
            is_plain = False
        is_plain = is_plain and usable_text(raw) is not None and is_usable_name(name)
        headers.append((name, raw))
    is_plain = is_plain and _rewritten(properties, table) == header
    kept = (
        b""
        if is_plain
        else encode_kept(
            Kept(VERSION, AMQP, properties=b"" if header == EMPTY else header, names=(exchange, routing_key))
        )
    )
    return Neutral(body, key, tuple(headers), _time_of(properties, table, published_ms), AMQP, fields, kept)


def _rewritten(properties: Mapping[str, Value], table: Mapping[str, Value]) -> bytes:
    return write_properties(**properties, headers=table) if table else write_properties(**properties)


def _restored(message: Neutral, queue: str) -> Content:
    kept = decode_kept(message.kept, AMQP) if message.kept else None
    if kept is not None:
        return restore(kept, message.body, message.timestamp_ms)
    fields = message.fields
    properties: dict[str, Value] = {}
    for field, name in AMQP_PROPERTIES.items():
        if field in fields and (value := _property(name, fields[field])) is not None:
            properties[name] = value
    table: FieldTable = {}
    for name, raw in message.headers:
        if raw is not None and not name.startswith(_POWERFUL_PREFIXES) and name not in _POWERFUL:
            table[name] = raw.decode("utf-8", "replace")
    exchange = fields.get(EXCHANGE, "").encode()[:_MAX_SHORT]
    key = queue.encode() if message.key is None else message.key[:_MAX_SHORT]
    return Content(exchange, key, _rewritten(properties, table), message.body or b"", message.timestamp_ms)


def _translated(
    content: Content, queue: str, properties: Mapping[str, Value], table: Mapping[str, Value], origin: str
) -> Neutral:
    raw_kept = table.get(KEPT)
    kept = bytes(raw_kept) if isinstance(raw_kept, bytes) else b""
    if kept and decode_kept(kept, origin) is None:
        kept = b""
    fields: dict[str, str] = {}
    natural = {name: field for field, name in _NATURAL_OF_ROCKETMQ.items()}
    for name, value in properties.items():
        field = _FIELD_OF[name] if origin == KAFKA else natural.get(name)
        if field is not None and field not in (TIMESTAMP, USER_ID):
            fields[field] = str(value)
    headers: list[tuple[str, bytes | None]] = []
    key: bytes | None = content.key
    if content.key == queue.encode():
        key = None
    for name, value in table.items():
        raw = _text_form(value)
        if name == _KAFKA_KEY or (name == KEYS and origin != KAFKA):
            key = raw
        elif name.startswith(ESCAPE):
            headers.append((name[len(ESCAPE) :], raw))
        elif name.startswith((ROCKETMQ_FIELD, AMQP_FIELD)):
            fields[name] = (raw or b"").decode("utf-8", "replace")
        elif not is_reserved(name) and name != TIME_HEADER:
            headers.append((name, raw))
    body = None if table.get(NULL) is True else content.body
    sequence = table.get(SEQUENCE)
    text = sequence if isinstance(sequence, str) else ""
    return Neutral(body, key, tuple(headers), _time_of(properties, table, -1), origin, fields, kept, text)


def _time_of(properties: Mapping[str, Value], table: Mapping[str, Value], published_ms: int) -> int:
    exact = table.get(TIME_HEADER)
    if isinstance(exact, int) and not isinstance(exact, bool) and 0 <= exact < 1 << 63:
        return int(exact)
    seconds = properties.get("timestamp")
    if isinstance(seconds, int) and 0 < seconds < 1 << 53:
        return seconds * 1000
    return published_ms


def _property(name: str, text: str) -> Value:
    """Returns the value as the property of this name; None if it cannot be."""
    if name in _OCTETS:
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255 else None
    return text if len(text.encode("utf-8", "replace")) <= _MAX_SHORT else None


def _routing_key(key: bytes | None, queue: str, origin: str, table: FieldTable) -> bytes:
    own = queue.encode()
    if key is None:
        return own
    text = usable_text(key)
    if text is not None and len(key) <= _MAX_SHORT and key != own:
        return key
    table[_KAFKA_KEY if origin == KAFKA else KEYS] = key
    return own


def _add_headers(table: FieldTable, headers: tuple[tuple[str, bytes | None], ...], fields: Mapping[str, str]) -> None:
    counts: dict[str, int] = {}
    for name, raw in headers:
        if name in fields or not is_usable_name(name) or len(name.encode()) + len(ESCAPE) > _MAX_SHORT:
            continue
        shown = ESCAPE + name if _is_own(name) else name
        value = _header_value(raw)
        seen = counts[shown] = counts.get(shown, 0) + 1
        if seen == 1:
            table[shown] = value
        elif seen == 2:
            table[shown] = [table[shown], value]
        else:
            known = table[shown]
            assert isinstance(known, list)
            known.append(value)


def _is_own(name: str) -> bool:
    return is_reserved(name) or name in _POWERFUL or name.startswith(_POWERFUL_PREFIXES)


def _header_value(raw: bytes | None) -> Value:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _text_form(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return None if value is None else bytes(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode("utf-8", "surrogateescape")
