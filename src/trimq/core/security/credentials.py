"""Credentials that a user can have besides a password: each is optional, and all end with the user."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials
from trimq.core.security.signing_secrets import SigningSecrets
from trimq.storage.group_commit.passes import Ticket


class Credentials:
    def __init__(self, scram: ScramCredentials, secrets: SigningSecrets) -> None:
        self.scram = scram
        self.secrets = secrets

    def replace_password(self, derived: Iterable[ScramCredential]) -> list[Ticket]:
        """Stores the credentials of a new password; those of the old one are no longer valid."""
        return [self.scram.put(credential) for credential in derived]

    def end_password(self, user: str) -> list[Ticket]:
        """Deletes what derives from the password of a user."""
        return self.scram.delete_all(user)

    def delete_all(self, user: str) -> list[Ticket]:
        return [*self.end_password(user), *self.secrets.delete(user)]
