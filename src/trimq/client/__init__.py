"""Client of TriMQ and of Apache RocketMQ 4.9 and 5.x, for asyncio (`AsyncClient`) and blocking (`Client`). The modules
behind the names are imported when a name is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimq.client.aio import AsyncClient
    from trimq.client.braking import BacklogBrake
    from trimq.client.consuming.allocation import Average, Circular, ConsistentHash, SameRoom
    from trimq.client.consuming.filters import Sql
    from trimq.client.consuming.lanes import Lanes
    from trimq.client.consuming.offsets import LocalFile
    from trimq.client.consuming.process_queue import BufferLimits
    from trimq.client.consuming.received import Received
    from trimq.client.consuming.starts import Start
    from trimq.client.credentials import Credentials
    from trimq.client.errors import (
        BadBatch,
        BadMessage,
        BufferFull,
        ClientError,
        Closed,
        ConnectionLost,
        GiveUp,
        NoRoute,
        Refused,
        Retry,
        SendFailed,
        SendTimedOut,
        SubscriptionConflict,
        TimedOut,
        Unsupported,
    )
    from trimq.client.messages import Message, MessageQueue, SendStatus, Sent
    from trimq.client.requests import Answer
    from trimq.client.sending.accumulating import Accumulator
    from trimq.client.sending.busy import Drop, Spool, Spooled, Wait
    from trimq.client.sending.choosing import ByKey, LeastLatency, RoundRobin
    from trimq.client.sending.pipeline import Dropped, Json
    from trimq.client.sync import Client
    from trimq.client.transactions import Half, UndecidedHalf, Verdict

_MODULES = {
    "aio": ("AsyncClient",),
    "braking": ("BacklogBrake",),
    "consuming.allocation": ("Average", "Circular", "ConsistentHash", "SameRoom"),
    "consuming.filters": ("Sql",),
    "consuming.lanes": ("Lanes",),
    "consuming.offsets": ("LocalFile",),
    "consuming.process_queue": ("BufferLimits",),
    "consuming.received": ("Received",),
    "consuming.starts": ("Start",),
    "credentials": ("Credentials",),
    "errors": (
        "BadBatch",
        "BadMessage",
        "BufferFull",
        "ClientError",
        "Closed",
        "ConnectionLost",
        "GiveUp",
        "NoRoute",
        "Refused",
        "Retry",
        "SendFailed",
        "SendTimedOut",
        "SubscriptionConflict",
        "TimedOut",
        "Unsupported",
    ),
    "messages": ("Message", "MessageQueue", "SendStatus", "Sent"),
    "sending.accumulating": ("Accumulator",),
    "sending.busy": ("Drop", "Spool", "Spooled", "Wait"),
    "sending.choosing": ("ByKey", "LeastLatency", "RoundRobin"),
    "sending.pipeline": ("Dropped", "Json"),
    "requests": ("Answer",),
    "sync": ("Client",),
    "transactions": ("Half", "UndecidedHalf", "Verdict"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    found = globals()[name] = getattr(import_module(f"trimq.client.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Accumulator",
    "Answer",
    "AsyncClient",
    "Average",
    "BacklogBrake",
    "BadBatch",
    "BadMessage",
    "BufferFull",
    "BufferLimits",
    "ByKey",
    "Circular",
    "Client",
    "ClientError",
    "Closed",
    "ConnectionLost",
    "ConsistentHash",
    "Credentials",
    "Drop",
    "Dropped",
    "GiveUp",
    "Half",
    "Json",
    "Lanes",
    "LeastLatency",
    "LocalFile",
    "Message",
    "MessageQueue",
    "NoRoute",
    "Received",
    "Refused",
    "Retry",
    "RoundRobin",
    "SameRoom",
    "SendFailed",
    "SendStatus",
    "SendTimedOut",
    "Sent",
    "Spool",
    "Spooled",
    "Sql",
    "Start",
    "SubscriptionConflict",
    "TimedOut",
    "UndecidedHalf",
    "Unsupported",
    "Verdict",
    "Wait",
]
