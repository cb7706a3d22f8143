"""Global ids: check, work and mark under a lock on the id of the message."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trimq.client.databases import Cursor, Database, check_id, check_name, redis_client
from trimq.client.errors import Retry
from trimq.client.once.guard import Outcome, Work, unique_id
from trimq.client.once.redis_marks import RELEASE
from trimq.client.timing import Duration, to_milliseconds


class RedisLock:
    """Lock in Redis or Valkey that ends by itself after `lease`. Each holder gets a higher fencing number."""

    def __init__(self, url: str, *, lease: Duration = 60.0, prefix: str = "trimq:lock:") -> None:
        self._redis = redis_client(url)
        self._lease_ms = to_milliseconds(lease)
        self._prefix = prefix

    @contextmanager
    def held(self, id: str) -> Iterator[int]:
        """Raises Retry if another process holds the lock."""
        name, owner = self._prefix + id, uuid.uuid4().hex
        if not self._redis.set(name, owner, nx=True, px=self._lease_ms):
            raise Retry("another consumer holds the lock", after=max(int(self._redis.pttl(name)), 0) / 1000)
        try:
            yield int(self._redis.incr(f"{self._prefix}fence"))
        finally:
            self._redis.eval(RELEASE, 1, name, owner)

    def close(self) -> None:
        self._redis.close()


class GlobalId:
    """Table of ids, each with a mark that its work is done. The row is locked from the check to the mark, by the
    database or, with `lock`, by a fencing number that must be higher than that of every earlier holder. The handler
    gets the cursor of the transaction."""

    def __init__(
        self,
        database: Database,
        table: str = "global_ids",
        *,
        lock: RedisLock | None = None,
        id: Callable[[Any], str] = unique_id,
    ) -> None:
        self._database = database
        self._table = check_name(table)
        self._lock = lock
        self._id = id

    def prepare(self) -> None:
        dialect = self._database.dialect
        self._database.create_table(
            self._table,
            f"id {dialect.id_type} not null primary key, "
            f"fence {dialect.number_type} not null, done {dialect.number_type} not null",
        )

    def attempt(self, message: Any, work: Work) -> Outcome:
        id = check_id(self._id(message))
        with self._database.transaction() as cursor:
            cursor.insert_new(self._table, id=id, fence=0, done=0)
        if self._lock is None:
            return self._checked(id, 0, work)
        with self._lock.held(id) as fence:
            return self._checked(id, fence, work)

    def _checked(self, id: str, fence: int, work: Work) -> Outcome:
        with self._database.transaction() as cursor:
            if not self._may_work(cursor, id, fence):
                return Outcome.REPEAT
            work(cursor)
            cursor.execute(f"update {self._table} set done = 1 where id = ?", id)
        return Outcome.DONE

    def _may_work(self, cursor: Cursor, id: str, fence: int) -> bool:
        select = f"select done, fence from {self._table} where id = ? {cursor.dialect.for_update}"
        found = cursor.row(select, id)
        if found is None:
            raise Retry(f"the row of {id!r} was removed")
        if found[0]:
            return False
        if fence:
            if fence <= found[1]:
                raise Retry(f"lock {fence} of {id!r} is outdated: {found[1]} was used")
            cursor.execute(f"update {self._table} set fence = ? where id = ?", fence, id)
        return True

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()
