"""Router from an exchange and a key to queue names: through bindings, other exchanges and alternate exchanges, each
queue once. Knows exchanges, but no queues, and of a message only its key and headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimq.core.routing.bindings import ReadHeaders
from trimq.core.routing.exchanges import DEFAULT, Exchange, Exchanges
from trimq.errors.queues import InvalidHeader
from trimq.formats.amqp_content.field_tables import Octets, Value

_CACHED_ROUTES = 10_000
_NO_HEADERS: Mapping[str, Value] = {}

Route = tuple[str, ...]


class Router:
    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._routes: dict[tuple[str, str, str], Route] = {}
        exchanges.changed = self._routes.clear

    def forget(self) -> None:
        """Clears the cached routes after a change that they depend on."""
        self._routes.clear()

    def known(self, namespace: str, exchange: str, key: str) -> Route | None:
        """Returns the cached route of one key. Routes that depend on headers are not cached."""
        return self._routes.get((namespace, exchange, key))

    def route(
        self,
        exchange: Exchange,
        keys: Sequence[str],
        headers: ReadHeaders,
        delayed_exchanges: list[Exchange] | None = None,
    ) -> Route:
        """Returns the names of the queues, in the order in which they were found. Pass `delayed_exchanges` if the
        message asks for a delay: delayed exchanges are then appended to that list instead of being routed through."""
        walk = _RouteSearch(self._exchanges, keys, headers, delayed_exchanges)
        walk.visit(exchange)
        found = tuple(walk.queues)
        if len(keys) == 1 and not walk.looked_at_headers:
            if len(self._routes) >= _CACHED_ROUTES:
                self._routes.clear()
            self._routes[exchange.namespace, exchange.name, keys[0]] = found
        return found


class _RouteSearch:
    def __init__(
        self, exchanges: Exchanges, keys: Sequence[str], headers: ReadHeaders, delayed_exchanges: list[Exchange] | None
    ) -> None:
        self._exchanges = exchanges
        self._delaying = delayed_exchanges
        self._keys = keys
        self._headers = headers
        self._visited: set[str] = set()
        self.queues: dict[str, None] = {}
        self.looked_at_headers = False

    def visit(self, first: Exchange) -> None:
        """Works without recursion: a chain of exchanges may be long or circular."""
        waiting = [first]
        while waiting:
            exchange = waiting.pop()
            if exchange.name in self._visited:
                continue
            self._visited.add(exchange.name)
            if exchange.is_delayed:
                self.looked_at_headers = True  # depends on the delay header: do not cache
                if self._delaying is not None:
                    self._delaying.append(exchange)
                    continue
            following, has_matched = self._match(exchange)
            if not has_matched:
                following += self._alternates(exchange)
            waiting += following

    def _match(self, exchange: Exchange) -> tuple[list[Exchange], bool]:
        if exchange.name == DEFAULT:
            self.queues.update(dict.fromkeys(self._keys))  # every queue is bound to the default exchange by name
            return [], True
        self.looked_at_headers = self.looked_at_headers or exchange.matcher.looks_at_headers
        following: list[Exchange] = []
        has_matched = False
        for key in self._keys:
            for is_queue, name in exchange.matcher.match(key, self._headers):
                has_matched = True
                if is_queue:
                    self.queues[name] = None
                else:
                    found = self._exchanges.find(exchange.namespace, name)
                    following += [] if found is None else [found]
        return following, has_matched

    def _alternates(self, exchange: Exchange) -> list[Exchange]:
        name = exchange.alternate if exchange.alternate is not None else exchange.policy_alternate
        found = None if name is None else self._exchanges.find(exchange.namespace, name)
        return [] if found is None else [found]


def copied_keys(headers: Mapping[str, Value]) -> list[str]:
    """Returns the additional routing keys of the CC and BCC headers. As in RabbitMQ, values in them that are no strings
    are ignored."""
    keys: list[str] = []
    for name in ("CC", "BCC"):
        if name not in headers:
            continue
        value = headers[name]
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise InvalidHeader(name, value)
        for key in value:
            if isinstance(key, str):
                keys.append(key)
            elif isinstance(key, Octets):
                keys.append(key.decode("utf-8", "surrogateescape"))
    return keys
