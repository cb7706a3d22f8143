"""Client of TriMQ and of Apache RocketMQ 4.9 and 5.x."""

from trimq.client.aio import AsyncClient
from trimq.client.credentials import Credentials
from trimq.client.messages import Message, MessageQueue, SendStatus, Sent
from trimq.client.sending.choosing import ByKey, LeastLatency, RoundRobin

__all__ = [
    "AsyncClient",
    "ByKey",
    "Credentials",
    "LeastLatency",
    "Message",
    "MessageQueue",
    "RoundRobin",
    "SendStatus",
    "Sent",
]
