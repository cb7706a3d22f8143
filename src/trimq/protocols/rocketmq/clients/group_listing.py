"""Who is in each group, as operators see it, whichever protocol they use."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.api.commit_log_groups import Attendant, Gathering
from trimq.protocols.rocketmq.clients.registry import Clients
from trimq.protocols.rocketmq.state.offset_resets import Resets
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.state.system_topics import RETRY_PREFIX


class ClientsAttendance:
    def __init__(self, clients: Clients, traffic: Traffic, resets: Resets) -> None:
        self._clients = clients
        self._traffic = traffic
        self._resets = resets

    def names(self) -> list[str]:
        return [group.name for group in self._clients.groups()]

    def gathering(self, group: str) -> Gathering:
        found = self._clients.group(group)
        if found is None:
            return Gathering()
        members = tuple(
            Attendant(
                member.id, member.address, member.language, member.told_version, found.said.get(outlet, frozenset())
            )
            for outlet, member in found.members.items()
        )
        return Gathering(members, frozenset((each.topic, each.expression) for each in found.subscriptions.values()))

    def returning_topics(self, group: str) -> Iterable[str]:
        return (RETRY_PREFIX + group,)

    def forget(self, group: str) -> None:
        self._traffic.forget_group(group)
        self._resets.forget_group(group)
