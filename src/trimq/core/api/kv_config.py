"""Verbs on the key-value texts that clients store in the broker, reached as `commit_log.kv_config`. Changes need the
right to administer the broker."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.core.commit_log.kv_config import KvConfig
from trimq.core.security.access import BROKER, Access, Action
from trimq.model import Caller
from trimq.storage.group_commit.passes import Ticket


class KvConfigApi:
    def __init__(self, kv_config: KvConfig, access: Access) -> None:
        self._kv_config = kv_config
        self._access = access

    def all(self, caller: Caller, namespace: str) -> Mapping[str, str] | None:
        """Texts of a namespace by key. None: nothing was ever stored in the namespace."""
        return self._kv_config.all(namespace)

    def put(self, caller: Caller, namespace: str, key: str, text: str) -> Ticket:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._kv_config.put(namespace, key, text)
        self._access.audit.changed(caller, "define", "kv-config", f"{namespace}/{key}")
        return ticket

    def delete(self, caller: Caller, namespace: str, key: str) -> Ticket | None:
        """Returns None if the key is not stored."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        ticket = self._kv_config.delete(namespace, key)
        if ticket is not None:
            self._access.audit.changed(caller, "delete", "kv-config", f"{namespace}/{key}")
        return ticket
