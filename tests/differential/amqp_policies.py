"""Policies that both brokers have from their start. They apply to names with the prefix of their pattern."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.request
from typing import Any

EXPIRES_MS = 1000
"""Longer than a step takes: looking at a queue prolongs its life."""

POLICIES: dict[str, dict[str, Any]] = {
    "p-short": {"max-length": 2},
    "p-shorter": {"max-length": 1},
    "p-bytes": {"max-length-bytes": 12},
    "p-reject": {"max-length": 1, "overflow": "reject-publish"},
    "p-ttl": {"message-ttl": 20, "dead-letter-exchange": "amq.direct", "dead-letter-routing-key": "dead"},
    "p-dead": {"dead-letter-exchange": "amq.topic"},
    "p-limit": {"delivery-limit": 1, "dead-letter-exchange": "amq.fanout"},
    "p-kinds": {"max-length": 1, "delivery-limit": 1},
    "p-expires": {"expires": EXPIRES_MS},
    "p-other": {"alternate-exchange": "amq.fanout"},
}
"""Definition by prefix, which is the name of the policy too. `p-shorter` matches two: the priority is the length of the
prefix."""

PREFIXES = list(POLICIES)

_USER = "guest"


def _policy(prefix: str) -> dict[str, Any]:
    return {
        "pattern": f"^{prefix}",
        "definition": POLICIES[prefix],
        "priority": len(prefix),
        "apply-to": "exchanges" if "alternate-exchange" in POLICIES[prefix] else "queues",
    }


def definitions() -> dict[str, Any]:
    """Returns the policies as RabbitMQ imports them, with the user and the virtual host that it would make itself."""
    salt = b"salt"
    password = base64.b64encode(salt + hashlib.sha256(salt + _USER.encode()).digest()).decode()
    algorithm = "rabbit_password_hashing_sha256"
    rights = {"user": _USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [
            {"name": _USER, "password_hash": password, "hashing_algorithm": algorithm, "tags": ["administrator"]}
        ],
        "vhosts": [{"name": "/"}],
        "permissions": [rights],
        "policies": [{"vhost": "/", "name": prefix, **_policy(prefix)} for prefix in POLICIES],
    }


def set_policies(address: str) -> None:
    """Sets the policies on TriMQ, whose HTTP port has this address."""
    for prefix in POLICIES:
        policy = {name.replace("-", "_"): value for name, value in _policy(prefix).items()}
        request = urllib.request.Request(
            f"http://{address}/api/policies/{prefix}", json.dumps(policy).encode(), method="PUT"
        )
        urllib.request.urlopen(request).close()
