"""Small texts that clients leave with the broker, by namespace and key. Kept in the catalogue; nobody asks what they
mean."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.metadata.catalogue import Catalogue
from trimq.storage.group_commit.passes import Ticket

KIND = "notes"


class KvConfig:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def all(self, namespace: str) -> Mapping[str, str] | None:
        """Those of a namespace. None: it never had any."""
        found = self._catalogue.get(KIND, namespace)
        return None if found is None else found.value

    def put(self, namespace: str, key: str, text: str) -> Ticket:
        return self._save(namespace, {**(self.all(namespace) or {}), key: text})

    def delete(self, namespace: str, key: str) -> Ticket | None:
        """None: there was none."""
        known = self.all(namespace)
        if known is None or key not in known:
            return None
        return self._save(namespace, {name: text for name, text in known.items() if name != key})

    def _save(self, namespace: str, notes: Mapping[str, str]) -> Ticket:
        found = self._catalogue.get(KIND, namespace)
        return self._catalogue.put(KIND, namespace, dict(notes), None if found is None else found.version)
