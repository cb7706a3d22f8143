"""Bindings from an exchange to queues and other exchanges, with one matcher per exchange type. Knows no more of a
message than its key and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from trimq.core.routing.consistent_hash import HashRing, hash_of
from trimq.core.routing.headers_match import HeaderIndex, check_arguments
from trimq.core.routing.topic_trie import TopicTrie
from trimq.errors.queues import InvalidHash, InvalidWeight, UnknownExchangeKind
from trimq.formats.amqp_content.field_tables import FieldTable, Value, write_table
from trimq.formats.amqp_content.property_list import PROPERTIES, SHORT_STRING, read_property, read_text


class MessageHeaders(dict[str, Value]):
    """Headers of a message, with access to its other properties. `header` is the raw list of all properties."""

    def __init__(self, headers: Mapping[str, Value], header: bytes) -> None:
        super().__init__(headers)
        self._header = header

    def property(self, name: str) -> Value:
        is_text = PROPERTIES[name] == SHORT_STRING
        return read_text(self._header, name) if is_text else read_property(self._header, name)


ReadHeaders = Callable[[], MessageHeaders]
"""Reads the headers of a message. Most exchanges do not need them."""


class Destination(NamedTuple):
    to_queue: bool
    name: str


class Binding(NamedTuple):
    source: str
    destination: str
    to_queue: bool
    key: str
    arguments: FieldTable

    @property
    def target(self) -> Destination:
        return Destination(self.to_queue, self.destination)

    def with_sorted_arguments(self) -> Binding:
        """Returns the same binding whose identity does not depend on the order of its arguments."""
        return self._replace(arguments=dict(sorted(self.arguments.items())))

    @property
    def identity(self) -> BindingIdentity:
        return BindingIdentity(self.source, self.target, self.key, write_table(self.arguments))


class BindingIdentity(NamedTuple):
    source: str
    target: Destination
    key: str
    arguments: bytes


class Matcher(Protocol):
    looks_at_headers: bool

    def check(self, binding: Binding) -> None:
        """Raises a refusal if the binding is invalid for this exchange type."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]: ...


class DirectMatcher:
    """Matches bindings with the same key as the message."""

    looks_at_headers = False

    def __init__(self) -> None:
        self._targets: dict[str, dict[BindingIdentity, Destination]] = {}

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._targets.setdefault(binding.key, {})[binding.identity] = binding.target

    def remove(self, binding: Binding) -> None:
        targets = self._targets.get(binding.key, {})
        targets.pop(binding.identity, None)
        if not targets:
            self._targets.pop(binding.key, None)

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        return self._targets.get(key, {}).values()


class FanoutMatcher:
    """Matches every binding."""

    looks_at_headers = False

    def __init__(self) -> None:
        self._targets: dict[BindingIdentity, Destination] = {}

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._targets[binding.identity] = binding.target

    def remove(self, binding: Binding) -> None:
        self._targets.pop(binding.identity, None)

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        return self._targets.values()


class TopicMatcher:
    """Matches the message's key against binding keys, which are patterns."""

    looks_at_headers = False

    def __init__(self) -> None:
        self._trie: TopicTrie[Destination] = TopicTrie()

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._trie.add(binding.key, binding.target)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.key, binding.target)

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        return self._trie.match(key)


class HeadersMatcher:
    """Matches the message's headers against the arguments of bindings."""

    looks_at_headers = True

    def __init__(self) -> None:
        self._bindings: HeaderIndex[BindingIdentity] = HeaderIndex()

    def check(self, binding: Binding) -> None:
        check_arguments(binding.arguments)

    def add(self, binding: Binding) -> None:
        self._bindings.add(binding.identity, binding.arguments)

    def remove(self, binding: Binding) -> None:
        self._bindings.remove(binding.identity)

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        return [identity.target for identity in self._bindings.match(headers())] if self._bindings else ()


_HASH_HEADER, _HASH_PROPERTY = "hash-header", "hash-property"
_HASHED_PROPERTIES = ("correlation_id", "message_id", "timestamp")


class ConsistentHashMatcher:
    """Selects one binding by a hash of the message's key, or of a given header or property. The binding keys are
    weights."""

    def __init__(self, arguments: Mapping[str, Value]) -> None:
        self._header = arguments.get(_HASH_HEADER)
        self._property = arguments.get(_HASH_PROPERTY)
        if self._property is not None and (self._header is not None or self._property not in _HASHED_PROPERTIES):
            raise InvalidHash(self._property)
        if self._header is not None and not isinstance(self._header, str):
            raise InvalidHash(self._header)
        self.looks_at_headers = self._header is not None or self._property is not None
        self._ring: HashRing[Destination] = HashRing()

    def check(self, binding: Binding) -> None:
        if not (binding.key.isascii() and binding.key.isdigit() and 0 < int(binding.key) <= 10_000):
            raise InvalidWeight(binding.key)

    def add(self, binding: Binding) -> None:
        self._ring.add(_ring_name(binding), int(binding.key), binding.target)

    def remove(self, binding: Binding) -> None:
        self._ring.remove(_ring_name(binding))

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        hashed: Value = key
        if isinstance(self._property, str):
            hashed = headers().property(self._property)
        elif isinstance(self._header, str):
            hashed = headers().get(self._header, "")
        found = self._ring.find("" if hashed is None else str(hashed))
        return () if found is None else (found,)


class ModulusHashMatcher:
    """Selects one destination by a hash of the message's key, modulo the number of destinations. Ignores the keys and
    arguments of bindings."""

    looks_at_headers = False

    def __init__(self) -> None:
        self._targets: dict[BindingIdentity, Destination] = {}
        self._distinct: list[Destination] = []

    def check(self, binding: Binding) -> None: ...

    def add(self, binding: Binding) -> None:
        self._targets[binding.identity] = binding.target
        self._distinct = sorted(set(self._targets.values()))

    def remove(self, binding: Binding) -> None:
        self._targets.pop(binding.identity, None)
        self._distinct = sorted(set(self._targets.values()))

    def match(self, key: str, headers: ReadHeaders) -> Iterable[Destination]:
        return (self._distinct[hash_of(key) % len(self._distinct)],) if self._distinct else ()


def _ring_name(binding: Binding) -> str:
    return f"{int(binding.to_queue)}/{binding.destination}/{binding.key}"


_KINDS: dict[str, Callable[[Mapping[str, Value]], Matcher]] = {
    "direct": lambda arguments: DirectMatcher(),
    "fanout": lambda arguments: FanoutMatcher(),
    "topic": lambda arguments: TopicMatcher(),
    "headers": lambda arguments: HeadersMatcher(),
    "x-consistent-hash": ConsistentHashMatcher,
    "x-modulus-hash": lambda arguments: ModulusHashMatcher(),
}
DELAYED = "x-delayed-message"


def make_matcher(kind: str, arguments: Mapping[str, Value]) -> Matcher:
    """Returns the matcher of an exchange type. A delayed exchange matches as the type in its x-delayed-type
    argument."""
    if kind == DELAYED:
        inner = arguments.get("x-delayed-type")
        kind = inner if isinstance(inner, str) else ""
    if kind not in _KINDS:
        raise UnknownExchangeKind(kind)
    return _KINDS[kind](arguments)
