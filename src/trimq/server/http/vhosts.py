"""Virtual hosts by the names that AMQP's clients and their administrators use: `/` is the namespace without a name."""

from __future__ import annotations

from trimq.model import DEFAULT_NAMESPACE

DEFAULT_VHOST = "/"


def namespace_of(vhost: str) -> str:
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def vhost_of(namespace: str) -> str:
    return namespace or DEFAULT_VHOST
