"""Marks in Redis or Valkey: SET NX with a lease before the work, a mark that stays after it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

from trimq.client.databases import check_id, redis_client
from trimq.client.errors import Retry
from trimq.client.once.guard import Outcome, Work, unique_id
from trimq.client.timing import Duration, to_milliseconds

log = logging.getLogger(__name__)

DONE = "done"
FINISH = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisMarks:
    """`lease`: longest time of the work; a process that dies leaves the message to others after it. `keep`: how long
    repeats are recognised.

    Not atomic with the effects of the handler: a process that dies after the work and before the mark lets the message
    be handled again. The handler gets None."""

    def __init__(
        self,
        url: str,
        *,
        lease: Duration = 60.0,
        keep: Duration = 7 * 86400.0,
        prefix: str = "trimq:once:",
        id: Callable[[Any], str] = unique_id,
    ) -> None:
        self._redis = redis_client(url)
        self._lease_ms, self._keep_ms = to_milliseconds(lease), to_milliseconds(keep)
        self._prefix = prefix
        self._id = id

    def prepare(self) -> None:
        self._redis.ping()

    def attempt(self, message: Any, work: Work) -> Outcome:
        name, owner = self._prefix + check_id(self._id(message)), uuid.uuid4().hex
        if not self._redis.set(name, owner, nx=True, px=self._lease_ms):
            if self._redis.get(name) == DONE:
                return Outcome.REPEAT
            left_ms = max(int(self._redis.pttl(name)), 0)
            raise Retry("another consumer works on this message", after=left_ms / 1000)
        try:
            work(None)
        except BaseException:
            self._redis.eval(RELEASE, 1, name, owner)
            raise
        self._finish(name, owner)
        return Outcome.DONE

    def _finish(self, name: str, owner: str) -> None:
        if not self._redis.eval(FINISH, 1, name, owner, DONE, self._keep_ms):
            log.warning("%s: the work took longer than its lease; another consumer may have done it too", name)

    def close(self) -> None:
        self._redis.close()
