"""Names of virtual hosts as AMQP clients use them: `/` is the default namespace, whose name is empty."""

from __future__ import annotations

from trimq.model import DEFAULT_NAMESPACE

DEFAULT_VHOST = "/"


def namespace_of(vhost: str) -> str:
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def vhost_of(namespace: str) -> str:
    return namespace or DEFAULT_VHOST
