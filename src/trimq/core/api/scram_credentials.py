"""Verbs on SCRAM credentials, reached as `broker.scram_credentials`. All need the right to administer the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimq.core.security.access import BROKER, Access, Action
from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class ScramCredentialApi:
    def __init__(self, credentials: ScramCredentials, access: Access) -> None:
        self._credentials = credentials
        self._access = access

    def all(self, caller: Caller) -> Mapping[str, Sequence[ScramCredential]]:
        """Credentials by user."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return {user: self._credentials.of(user) for user in self._credentials.users()}

    def put(self, caller: Caller, credential: ScramCredential) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._credentials.put(credential)
        mechanism = credential.mechanism
        self._access.audit.changed(caller, "define", "scram-credential", credential.user, mechanism=mechanism)
        return ticket

    def delete(self, caller: Caller, user: str, mechanism: str) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._credentials.delete(user, mechanism)
        self._access.audit.changed(caller, "delete", "scram-credential", user, mechanism=mechanism)
        return ticket
