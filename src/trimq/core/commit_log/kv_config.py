"""Key-value texts that clients store in the broker, by namespace, kept in the catalogue. The broker does not interpret
them."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.metadata.catalogue import Catalogue
from trimq.storage.group_commit.passes import Ticket

KIND = "notes"


class KvConfig:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def all(self, namespace: str) -> Mapping[str, str] | None:
        """Texts of a namespace by key. None: nothing was ever stored in it."""
        found = self._catalogue.get(KIND, namespace)
        return None if found is None else found.value

    def put(self, namespace: str, key: str, text: str) -> Ticket:
        return self._save(namespace, {**(self.all(namespace) or {}), key: text})

    def delete(self, namespace: str, key: str) -> Ticket | None:
        """Returns None if the key is not stored."""
        known = self.all(namespace)
        if known is None or key not in known:
            return None
        return self._save(namespace, {name: text for name, text in known.items() if name != key})

    def _save(self, namespace: str, notes: Mapping[str, str]) -> Ticket:
        found = self._catalogue.get(KIND, namespace)
        return self._catalogue.put(KIND, namespace, dict(notes), None if found is None else found.version)
