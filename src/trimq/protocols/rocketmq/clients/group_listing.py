"""Supplies RocketMQ producers and the members of consumer groups to the core, for operators of any protocol."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.api.commit_log_group_admin import GroupMember, GroupMembers, LiveProducer
from trimq.protocols.rocketmq.clients.registry import BROADCASTING, ClientRegistry
from trimq.protocols.rocketmq.state.offset_resets import OffsetResets
from trimq.protocols.rocketmq.state.statistics import Traffic
from trimq.protocols.rocketmq.state.system_topics import RETRY_PREFIX


class ClientMemberSource:
    def __init__(self, clients: ClientRegistry, traffic: Traffic, resets: OffsetResets) -> None:
        self._clients = clients
        self._traffic = traffic
        self._resets = resets

    def names(self) -> list[str]:
        return [group.name for group in self._clients.groups()]

    def has(self, group: str) -> bool:
        return self._clients.group(group) is not None

    def group_members(self, group: str) -> GroupMembers:
        found = self._clients.group(group)
        if found is None:
            return GroupMembers()
        members = tuple(
            GroupMember(
                member.id,
                member.address,
                member.language,
                member.version_text,
                found.member_subscriptions.get(outlet, frozenset()),
            )
            for outlet, member in found.members.items()
        )
        subscription = frozenset((each.topic, each.expression) for each in found.subscriptions.values())
        return GroupMembers(members, subscription, found.message_model == BROADCASTING)

    def retry_topics(self, group: str) -> Iterable[str]:
        return (RETRY_PREFIX + group,)

    def producers(self) -> list[LiveProducer]:
        return [
            LiveProducer(
                group,
                client.id,
                client.address,
                client.language,
                client.version_text,
                self._clients.heartbeat_age_ms(client),
            )
            for group in self._clients.producer_groups()
            for client in self._clients.producers(group)
        ]

    def forget(self, group: str) -> None:
        self._traffic.forget_group(group)
        self._resets.forget_group(group)
