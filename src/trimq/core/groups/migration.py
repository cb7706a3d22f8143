"""Migration of a group with members between the classic protocol and broker-side assignment (KIP-848), without a pause:
members keep their ids, generation and assignments. Converts one state machine into the other; knows no event."""

from __future__ import annotations

from trimq.core.groups.assigned_group import AssignedGroup, KnownTopics, encode_assignment
from trimq.core.groups.assigned_member import AssignedMember, ClassicSide
from trimq.core.groups.classic_group import ClassicGroup
from trimq.core.groups.classic_member import ClassicMember
from trimq.errors import UnknownGroup
from trimq.formats.kafka_subscription import BadMetadata, read_assignment, read_subscription


def upgrade_group(group: ClassicGroup, known: KnownTopics, now_ms: int) -> AssignedGroup:
    """Returns the broker-assigned group for a classic group that a member of the newer protocol joins. Raises
    UnknownGroup if the members are no consumers, or their metadata cannot be read."""
    members, strategy = group.upgrade()
    try:
        converted = [_upgrade_member(member, strategy, group.generation, known) for member in members]
    except BadMetadata:
        raise UnknownGroup(group.name) from None
    return AssignedGroup.upgrade(group.name, group.generation, converted, known, now_ms)


def _upgrade_member(member: ClassicMember, strategy: str, generation: int, known: KnownTopics) -> AssignedMember:
    subscription = read_subscription(member.metadata(strategy))
    held = known.streams(read_assignment(member.assignment)) if member.assignment else frozenset()
    return AssignedMember(
        member.id,
        member.instance,
        subscription.rack,
        member.client_id,
        member.host,
        member.rebalance_ms,
        topics=tuple(sorted(set(subscription.topics))),
        epoch=generation,
        previous_epoch=generation,
        held=dict.fromkeys(sorted(held), generation),
        target=held,
        classic=ClassicSide(member.session_ms, member.offers),
    )


def downgrade_group(group: AssignedGroup, known: KnownTopics, initial_delay_ms: int, now_ms: int) -> ClassicGroup:
    """Returns the classic group for a broker-assigned group that only classic members are left in."""
    members = [_downgrade_member(member, known) for member in group.members]
    # Not the epoch of the group, which the last leave has raised: members that name an older generation than that of
    # the group would lose their streams instead of revoking them.
    generation = max(member.epoch for member in group.members)
    return ClassicGroup.downgrade(group.name, initial_delay_ms, generation, members, now_ms)


def _downgrade_member(member: AssignedMember, known: KnownTopics) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.id,
        member.instance,
        member.client_id,
        member.host,
        member.classic.session_ms,
        member.rebalance_ms,
        member.classic.offers,
        encode_assignment(member, member.target, known),
    )
