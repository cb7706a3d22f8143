"""Names of topics as another protocol writes them: bytes that it does not allow are escaped. Pure; knows no topic."""

from __future__ import annotations

import re

from trimq.model import DEFAULT_NAMESPACE, Layout, TopicName

# Separates namespace and name where a protocol has no namespaces. A "/" within a name is escaped in lower case, so that
# the two differ.
_SEPARATOR = "/"

_ILLEGAL = {
    Layout.PARTITION_LOG: re.compile(rb"[^a-zA-Z0-9._-]"),
    Layout.COMMIT_LOG: re.compile(rb"[^%|a-zA-Z0-9._-]"),  # clients that only read accept a "."
}
# What is escaped in a name with an illegal byte: its own "%" and ".xHH" too, or they would be read as escapes.
_ESCAPES = {
    Layout.PARTITION_LOG: re.compile(rb"[^a-zA-Z0-9._-]|\.(?=x[0-9A-Fa-f]{2})"),
    Layout.COMMIT_LOG: re.compile(rb"[^|a-zA-Z0-9._-]"),
}
_MARK = {Layout.PARTITION_LOG: ".x", Layout.COMMIT_LOG: "%"}
_ESCAPED = {
    Layout.PARTITION_LOG: re.compile(r"\.x([0-9A-Fa-f]{2})"),
    Layout.COMMIT_LOG: re.compile(r"%([0-9A-Fa-f]{2})"),
}
_LONGEST = {Layout.PARTITION_LOG: 249, Layout.COMMIT_LOG: 127, Layout.QUEUE_LOG: 255}


def escape(name: TopicName, face: Layout) -> str | None:
    """Returns the name as clients of the layout `face` write it. None: it is too long for them."""
    if face is Layout.QUEUE_LOG or (name.namespace == DEFAULT_NAMESPACE and _is_legal(name.name, face)):
        text = name.name
    else:
        text = _escape_part(name.name, face)
        if name.namespace != DEFAULT_NAMESPACE:
            text = f"{_escape_part(name.namespace, face)}{_MARK[face]}2F{text}"
    return text if len(text.encode("utf-8", "surrogateescape")) <= _LONGEST[face] else None


def _is_legal(text: str, face: Layout) -> bool:
    return _ILLEGAL[face].search(text.encode("utf-8", "surrogateescape")) is None


def _escape_part(text: str, face: Layout) -> str:
    mark = _MARK[face]

    def escaped(found: re.Match[bytes]) -> bytes:
        byte = found[0][0]
        return f"{mark}2f".encode() if byte == ord("/") else f"{mark}{byte:02X}".encode()

    return _ESCAPES[face].sub(escaped, text.encode("utf-8", "surrogateescape")).decode("ascii")


def unescape(text: str, face: Layout) -> TopicName | None:
    """Returns the name that `escape` has escaped to this text. None: nothing in it is escaped."""
    if face is Layout.QUEUE_LOG or _MARK[face] not in text or _ESCAPED[face].search(text) is None:
        return None
    namespace, separator, rest = text.partition(f"{_MARK[face]}2F")
    if not separator:
        namespace, rest = DEFAULT_NAMESPACE, text
    try:
        return TopicName(_unescape_part(namespace, face), _unescape_part(rest, face))
    except UnicodeDecodeError:
        return None


def _unescape_part(text: str, face: Layout) -> str:
    raw = _ESCAPED[face].sub(lambda found: chr(int(found[1], 16)), text)
    return raw.encode("latin-1").decode() if raw.isascii() is False else raw
