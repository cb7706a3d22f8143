"""Names and numbers of TriMQ's extension of remoting, which client and broker share. `docs/client-protocol.md`
describes each request."""

from __future__ import annotations

EXTENSION_VERSION = 1
"""Highest version of the extension that this code speaks."""

ONCE = "TRIMQ_ONCE"
"""Property of a message that is stored once however often it is sent with its id (UNIQ_KEY)."""

DEDUPLICATE = "once"
AUDIENCES = "audience"
ASSIGN_STICKY = "sticky"

STICKY = "STICKY"
"""Strategy of QUERY_ASSIGNMENT in which members keep their queues."""
