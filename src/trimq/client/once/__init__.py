"""Idempotent consumption: six ways to let the effect of a message happen once, however often it is delivered."""

from trimq.client.databases import Cursor, Database
from trimq.client.once.global_ids import GlobalId, RedisLock
from trimq.client.once.guard import Guard, Outcome
from trimq.client.once.redis_marks import RedisMarks
from trimq.client.once.states import States
from trimq.client.once.tokens import RedisCache, Token
from trimq.client.once.unique_table import UniqueTable
from trimq.client.once.versions import Versioned

__all__ = [
    "Cursor",
    "Database",
    "GlobalId",
    "Guard",
    "Outcome",
    "RedisCache",
    "RedisLock",
    "RedisMarks",
    "States",
    "Token",
    "UniqueTable",
    "Versioned",
]
