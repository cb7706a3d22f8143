"""Verbs on the failure ledger of all layouts, reached as `broker.failures`. All need the right to administer the
broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimq.core.failures.ledger import FailedMessageLedger, Failure, FailureId
from trimq.core.failures.ledger_log import LedgerLog
from trimq.core.security.access import BROKER, Access, Action
from trimq.core.write_gate import WriteGate
from trimq.model import Caller
from trimq.storage.group_commit.passes import Passes, Ticket


class FailureApi:
    def __init__(
        self, failures: FailedMessageLedger, ledger: LedgerLog, passes: Passes, access: Access, gate: WriteGate
    ) -> None:
        self._failures = failures
        self._ledger = ledger
        self._passes = passes
        self._access = access
        self._gate = gate

    def all(self, caller: Caller, from_id: FailureId = 0) -> Iterator[Failure]:
        """Failed messages of the caller's namespace, oldest first, as far back as the ledger goes."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        found = self._failures.all(from_id)
        return (failure for failure in found if failure.entry.origin.topic.namespace == caller.namespace)

    def when_readable(self, callback: Callable[[], None]) -> None:
        """Calls back when `all` lists every message that has failed so far: at once, or after a pass."""
        ticket = self._ledger.pending_ticket()
        if ticket is None:
            callback()
        else:
            self._passes.on_durable_guarded(ticket, lambda _: callback())

    def redrive(self, caller: Caller, id: FailureId) -> Ticket:
        """Sends the message again to its queue, or to the group in which it failed."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        self._gate.require_writable()
        ticket = self._failures.redrive(caller, id)
        self._access.audit.changed(caller, "redrive", "failed-message", str(id), caller.namespace)
        return ticket
