"""Tokens: a cache answers most repeats, a unique table in the database decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trimq.client.databases import Database, check_id, redis_client
from trimq.client.once.guard import Outcome, Work, unique_id
from trimq.client.once.unique_table import UniqueTable
from trimq.client.timing import Duration, to_milliseconds


class Cache(Protocol):
    def has(self, id: str) -> bool: ...

    def put(self, id: str) -> None: ...

    def close(self) -> None: ...


class RedisCache:
    """Ids in Redis or Valkey, each kept for `keep`."""

    def __init__(self, url: str, *, keep: Duration = 86400.0, prefix: str = "trimq:token:") -> None:
        self._redis = redis_client(url)
        self._keep_ms = to_milliseconds(keep)
        self._prefix = prefix

    def has(self, id: str) -> bool:
        return bool(self._redis.exists(self._prefix + id))

    def put(self, id: str) -> None:
        self._redis.set(self._prefix + id, "1", px=self._keep_ms)

    def close(self) -> None:
        self._redis.close()


class Token:
    """Asks the cache, then the database; does the work and inserts the id in one transaction, then fills the cache. A
    lost cache costs time, never a repeat. The handler gets the cursor of the transaction."""

    def __init__(
        self, cache: Cache, database: Database, table: str = "tokens", id: Callable[[Any], str] = unique_id
    ) -> None:
        self._cache = cache
        self._id = id
        self._marks = UniqueTable(database, table, id)

    def prepare(self) -> None:
        self._marks.prepare()

    def attempt(self, message: Any, work: Work) -> Outcome:
        id = check_id(self._id(message))
        if self._cache.has(id):
            return Outcome.REPEAT
        outcome = self._marks.attempt(message, work)
        self._cache.put(id)
        return outcome

    def close(self) -> None:
        self._marks.close()
        self._cache.close()
