"""Access control entries as RocketMQ's ACL 2.0 shows them: policies of a subject, with resources, actions, addresses
and a decision. Covers topics, groups and the broker (`Cluster`) in the default namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from trimq.core.security.acl_entries import ANY_HOST, ANY_NAME, AclEntry
from trimq.core.security.resources import BROKER, Action, ResourceKind
from trimq.core.security.rights import CONFIGURES, Right
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode

CUSTOM = "Custom"
PERMISSION_PREFIX = "regexp:"
"""Begins the names of resources that show RabbitMQ's permissions, whose names are regular expressions."""

_SUBJECT = "User:"
_ALL = "All"
_ALLOW, _DENY = "Allow", "Deny"
_TYPES = {ResourceKind.TOPIC: "Topic", ResourceKind.GROUP: "Group", ResourceKind.BROKER: "Cluster"}
_KINDS = {name.lower(): kind for kind, name in _TYPES.items()}
_NOT_SERVED = ("any", "namespace", "unknown")

# The last four are no actions of RocketMQ: entries of Kafka clients have them.
_ACTIONS = {
    Action.WRITE: "Pub",
    Action.READ: "Sub",
    Action.CREATE: "Create",
    Action.ALTER: "Update",
    Action.DELETE: "Delete",
    Action.DESCRIBE: "Get",
    Action.LIST: "List",
    Action.DESCRIBE_CONFIGS: "DescribeConfigs",
    Action.ALTER_CONFIGS: "AlterConfigs",
    Action.CLUSTER_ACTION: "ClusterAction",
    Action.IDEMPOTENT_WRITE: "IdempotentWrite",
}
_BY_WORD = {word.lower(): action for action, word in _ACTIONS.items()}
_ORDER: dict[Action | None, int] = {None: 0, **{action: number for number, action in enumerate(_ACTIONS, 1)}}


class PolicyResource(NamedTuple):
    """Resource of policies: a name, a prefix, or (`*`) all names."""

    kind: ResourceKind
    name: str
    is_prefix: bool

    def covers(self, entry: AclEntry) -> bool:
        """Returns whether the entry is one of this resource's."""
        return self == (entry.kind, entry.name, entry.is_prefix) and entry.namespace == DEFAULT_NAMESPACE


def is_shown(entry: AclEntry) -> bool:
    """False for entries about things that RocketMQ does not have: exchanges, transactional ids, virtual hosts."""
    return entry.kind in _TYPES and entry.namespace == DEFAULT_NAMESPACE


# -- to RocketMQ


def subject_of(principal: str) -> str:
    return _SUBJECT + principal


def policies_of(
    entries: Iterable[AclEntry], permissions: Iterable[Right], cluster: str, wanted: str = ""
) -> list[dict[str, Any]]:
    """Returns the policies of one subject, with the resources whose texts contain `wanted`; none if nothing is left."""
    shown = [*_entries_of(entries, cluster), *_permissions(permissions)]
    found = [each for each in shown if wanted in each["resource"]]
    return [{"policyType": CUSTOM, "entries": found}] if found else []


def _entries_of(entries: Iterable[AclEntry], cluster: str) -> Iterator[dict[str, Any]]:
    """Joins entries that differ only in action and address, as they were written together."""
    actions: dict[tuple[str, bool, str], list[Action | None]] = {}
    for entry in sorted(filter(is_shown, entries), key=lambda entry: (entry.kind, entry.name, entry.is_prefix)):
        actions.setdefault((_resource_text(entry, cluster), entry.is_allowed, entry.host), []).append(entry.action)
    hosts: dict[tuple[str, bool, tuple[Action | None, ...]], list[str]] = {}
    for (resource, is_allowed, host), found in actions.items():
        hosts.setdefault((resource, is_allowed, tuple(sorted(found, key=_ORDER.__getitem__))), []).append(host)
    for (resource, is_allowed, together), sources in hosts.items():
        words = [_ALL if action is None else _ACTIONS[action] for action in together]
        shown = {"resource": resource, "actions": words, "decision": _ALLOW if is_allowed else _DENY}
        if sources == [ANY_HOST]:
            yield shown
        else:
            yield {**shown, "sourceIps": sorted(sources)}


def _resource_text(entry: AclEntry, cluster: str) -> str:
    if entry.kind is ResourceKind.BROKER:
        return f"Cluster:{cluster if entry.name == BROKER.name else ANY_NAME}"
    return f"{_TYPES[entry.kind]}:{entry.name}{'*' if entry.is_prefix else ''}"


def _permissions(rights: Iterable[Right]) -> Iterator[dict[str, Any]]:
    for right in rights:
        if right.namespace != DEFAULT_NAMESPACE:
            continue
        patterns: dict[str, list[Action]] = {}
        for action in sorted(_ACTIONS, key=_ORDER.__getitem__):
            pattern = _pattern(right, action)
            if pattern:
                patterns.setdefault(pattern, []).append(action)
        for kind in (ResourceKind.TOPIC, ResourceKind.GROUP):
            for pattern, allowed in patterns.items():
                words = [_ACTIONS[action] for action in allowed]
                resource = f"{_TYPES[kind]}:{PERMISSION_PREFIX}{pattern}"
                yield {"resource": resource, "actions": words, "decision": _ALLOW}


def _pattern(right: Right, action: Action) -> str:
    if action in CONFIGURES:
        return right.configure
    return {Action.WRITE: right.write, Action.READ: right.read}.get(action, "")


# -- from RocketMQ


def principal_of(subject: str) -> str:
    """Raises RemotingRefusal if the subject is no user."""
    kind, _, name = subject.partition(":")
    if kind.lower() != "user" or not name.strip():
        raise invalid(f"The subject {subject!r} is no user: write User:NAME")
    return name


def resource_of(text: str, cluster: str) -> PolicyResource:
    """Raises RemotingRefusal if there is no such resource."""
    kind_text, _, name = text.strip().partition(":")
    kind = _KINDS.get(kind_text.lower())
    if kind is None:
        if kind_text == ANY_NAME or kind_text.lower() in _NOT_SERVED:
            raise invalid(f"The resource {text} is not supported: name Topic:*, Group:* or Cluster:*")
        raise refused("The resource is null.")
    if name.startswith(PERMISSION_PREFIX):
        raise invalid(f"{text} shows a permission of RabbitMQ: change it with `trimq users grant` or `revoke`")
    if not name:
        raise invalid(f"The resource {text} has no name.")
    if kind is ResourceKind.BROKER:
        if name not in (cluster, ANY_NAME):
            raise invalid(f"The resource {text} is not this cluster: write Cluster:{cluster}")
        return PolicyResource(kind, BROKER.name if name == cluster else ANY_NAME, False)
    is_prefix = name.endswith("*") and name != ANY_NAME
    return PolicyResource(kind, name[:-1] if is_prefix else name, is_prefix)


def entries_of(principal: str, policies: object, cluster: str) -> dict[PolicyResource, list[AclEntry]]:
    """Returns the entries that replace those of each resource named. Raises RemotingRefusal, where possible with
    RocketMQ's words."""
    found: dict[PolicyResource, list[AclEntry]] = {}
    for policy in _objects(policies, "The policies is empty."):
        type = policy.get("policyType")
        if type is not None and str(type).lower() != CUSTOM.lower():
            raise invalid(f"The policyType {type} is not supported: write {CUSTOM}")
        for given in _objects(policy.get("entries"), "The policy entries is empty."):
            resource = resource_of(str(given.get("resource") or ""), cluster)
            found[resource] = list(_entries(principal, resource, given))
    return found


def _entries(principal: str, resource: PolicyResource, given: dict[str, Any]) -> Iterator[AclEntry]:
    actions = [_action(word) for word in _texts(given.get("actions"), "actions")]
    if not actions:
        raise refused("The actions is empty.")
    decision = str(given.get("decision")).lower()
    if decision not in (_ALLOW.lower(), _DENY.lower()):
        raise refused("The decision is null or illegal.")
    for host in _texts(given.get("sourceIps"), "sourceIps") or [ANY_HOST]:
        for action in actions:
            yield AclEntry(
                principal, resource.kind, resource.name, action, decision == _ALLOW.lower(), resource.is_prefix, host
            )


def _action(word: str) -> Action | None:
    if word.lower() == _ALL.lower():
        return None
    if word.lower() == "any":
        raise refused("The actions can not be Any.")
    action = _BY_WORD.get(word.lower())
    if action is None:
        raise invalid(f"The action {word} is unknown: write Pub, Sub, Create, Update, Delete, Get, List or All")
    return action


def _objects(value: object, if_none: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise refused(if_none)
    return value


def _texts(value: object, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise invalid(f"The {name} are no list of texts.")
    return value


def refused(reason: str) -> RemotingRefusal:
    """Returns a refusal that Apache RocketMQ has too, with its words and code."""
    return RemotingRefusal(ResponseCode.NO_PERMISSION, reason)


def invalid(reason: str) -> RemotingRefusal:
    return RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
