"""Outbox: messages are stored in the transaction of the application's database, and sent when it has committed."""

from trimq.client.databases import Cursor, Database
from trimq.client.outbox.relay import Relay, RelayStatistics
from trimq.client.outbox.table import Outbox, OutboxRow

__all__ = ["Cursor", "Database", "Outbox", "OutboxRow", "Relay", "RelayStatistics"]
