"""Record of logins: counters by protocol and result, and a log line for each failure. Never sees a password or a
token."""

from __future__ import annotations

import logging

from trimq.metrics import Metrics

log = logging.getLogger(__name__)


class LoginLog:
    def __init__(self, metrics: Metrics) -> None:
        help = "Logins by protocol and result (success, failure)."
        self._logins = metrics.counters("logins", help, ("protocol", "result"))

    def succeeded(self, protocol: str) -> None:
        self._logins.labelled(protocol, "success").add()

    def failed(self, protocol: str, mechanism: str, user: str, address: str, reason: str) -> None:
        self._logins.labelled(protocol, "failure").add()
        log.warning("%s login of user %r from %s with %s failed (%s)", protocol, user, address, mechanism, reason)
