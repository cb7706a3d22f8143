"""Property string of a message unit, and the hashes of tags and keys. Knows no unit."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cache, lru_cache
from operator import mul

NAME_ENDS = "\x01"
VALUE_ENDS = "\x02"

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"


def read_properties(raw: bytes | str) -> dict[str, str]:
    """Returns the properties by name; the last value of a repeated name counts. Ignores items without a name or a
    value."""
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
    found = {}
    for item in text.split(VALUE_ENDS):
        name, separator, value = item.partition(NAME_ENDS)
        if separator and name and value:
            found[name] = value
    return found


def write_properties(properties: Mapping[str, str]) -> bytes:
    """Encodes the properties, each name and value followed by its separator. Raises ValueError if one of them contains
    a separator or NUL, which marks unwritten bytes."""
    text = "".join([f"{name}{NAME_ENDS}{value}{VALUE_ENDS}" for name, value in properties.items()])
    if not is_plain(text, properties):  # there are more separators than inserted here
        for name, value in properties.items():
            if not _CONTROL.isdisjoint(name) or not _CONTROL.isdisjoint(value):
                raise ValueError(f"separator character in property {name[:40]!r}")
    if "" in properties or "" in properties.values():
        text = "".join(f"{name}{NAME_ENDS}{value}{VALUE_ENDS}" for name, value in properties.items() if name and value)
    return text.encode("utf-8", "replace")


def is_plain(text: str, properties: Mapping[str, str]) -> bool:
    """Returns whether writing the properties found in `text` would give `text` again, except for the last separator."""
    count = len(properties)
    return (
        text.count(NAME_ENDS) == count
        and text.count(VALUE_ENDS) + (not text.endswith(VALUE_ENDS)) == count
        and "\x00" not in text
    )


def read_plain_properties(text: str) -> dict[str, str] | None:
    """Fast path of `read_properties`. Returns None if the text is not plain; the caller falls back."""
    items = text.split(VALUE_ENDS)
    if not items[-1]:
        del items[-1]
    try:
        found = dict([item.split(NAME_ENDS) for item in items])
    except ValueError:  # an item without a value, or with two
        return None
    if len(found) < len(items) or "" in found or "" in found.values() or "\x00" in text:
        return None
    return found


# A torn write leaves zeros: a property string without them is whole.
_CONTROL = frozenset((NAME_ENDS, VALUE_ENDS, "\x00"))


def find_property(raw: bytes, name: str) -> str | None:
    """Returns one value without parsing the whole string. The last value counts."""
    wanted = _as_name(name)
    at = len(raw)
    while True:
        at = raw.rfind(wanted, 0, at)
        if at < 0:
            return None
        if at == 0 or raw[at - 1] == 2:
            begin = at + len(wanted)
            end = raw.find(b"\x02", begin)
            value = raw[begin : end if end >= 0 else len(raw)].decode("utf-8", "replace")
            if value:
                return value


@lru_cache(maxsize=256)
def _as_name(name: str) -> bytes:
    return name.encode() + b"\x01"


# -- hashes like Java's String.hashCode

_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(255, -1, -1)]
_MASK = 0xFFFFFFFF


def java_hash(text: str, seed: int = 0) -> int:
    """Returns Java's `hashCode` as a signed 32-bit number. `seed` is the hash of the text before `text`."""
    units: bytes | memoryview = text.encode("ascii") if text.isascii() else _utf16(text)
    total = seed & _MASK
    for begin in range(0, len(units), 256):
        part = units[begin : begin + 256]
        shift, powers = _powers(len(part))
        total = (total * shift + sum(map(mul, part, powers))) & _MASK
    return total - (1 << 32) if total & 0x80000000 else total


@cache
def _powers(count: int) -> tuple[int, list[int]]:
    """Returns the factor for the hash before `count` characters (up to 256), and the factor of each of them."""
    return pow(31, count, 1 << 32), _POWERS[256 - count :]


def _utf16(text: str) -> memoryview:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return memoryview(array("H", [encoded[at] | encoded[at + 1] << 8 for at in range(0, len(encoded), 2)]))


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Returns the code that readers with a tag filter compare: the hash of the tags, 0 without tags."""
    return java_hash(tags) if tags else 0


# A unique key begins with characters that identify the producer and are the same for all of its messages.
_UNIQUE_KEY_LENGTH = 32
_OF_ITS_PRODUCER = 20


@lru_cache(maxsize=4096)
def _begun_hash(topic_hash: int, beginning: str) -> int:
    return java_hash(beginning, topic_hash)


def key_hash(topic_hash: int, key: str) -> int:
    """Returns the hash of a key, never negative. `topic_hash` is the `java_hash` of the topic name and a '#'."""
    if len(key) == _UNIQUE_KEY_LENGTH:
        found = abs(java_hash(key[_OF_ITS_PRODUCER:], _begun_hash(topic_hash, key[:_OF_ITS_PRODUCER])))
    else:
        found = abs(java_hash(key, topic_hash))
    return 0 if found > 0x7FFFFFFF else found


def split_keys(keys: str) -> list[str]:
    """Splits the property with a message's keys."""
    return [key for key in keys.split(" ") if key]
