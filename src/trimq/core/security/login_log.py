"""Record of logins: counters by protocol and result, audit records, and a log line for each failure. Never sees a
password or a token."""

from __future__ import annotations

import logging

from trimq.core.security.audit_log import AuditLog
from trimq.metrics import Metrics
from trimq.model import Caller

log = logging.getLogger(__name__)


class LoginLog:
    def __init__(self, metrics: Metrics, audit: AuditLog) -> None:
        help = "Logins by protocol and result (success, failure)."
        self._logins = metrics.counters("logins", help, ("protocol", "result"))
        self._audit = audit

    def succeeded(self, protocol: str, mechanism: str, user: str, address: str) -> None:
        self._logins.labelled(protocol, "success").add()
        self._audit.login(protocol, mechanism, user, address)

    def missing(self, caller: Caller, request: str) -> None:
        """Records a request that was refused because the caller has to log in first."""
        self._audit.denied_on(caller, "login", "request", request)

    def failed(self, protocol: str, mechanism: str, user: str, address: str, reason: str) -> None:
        self._logins.labelled(protocol, "failure").add()
        self._audit.login(protocol, mechanism, user, address, reason)
        log.warning("%s login of user %r from %s with %s failed (%s)", protocol, user, address, mechanism, reason)
