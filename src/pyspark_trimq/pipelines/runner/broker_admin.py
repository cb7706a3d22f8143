"""Administrative requests of pipelines to a broker: create topics through either port, committed offsets of groups, and
the ledger of failed messages."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Collection, Iterator
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from pyspark_trimq.broker.encryption import Encryption, client_settings, untrusted_certificate_error
from pyspark_trimq.broker.http_client import make_connection
from pyspark_trimq.broker.login import Login, refused
from pyspark_trimq.pipelines.runner.failure import PipelineFailure
from trimq.errors import StartupError

TIMEOUT_S = 30

# Without a logger librdkafka writes to stderr. Errors that matter are raised as exceptions.
QUIET_LOGGER = logging.getLogger("pyspark_trimq.librdkafka")
CREATED, NO_LOGIN, EXISTS = 201, 401, 409


class GroupOffset(NamedTuple):
    """Next offset of a group on one stream, and the end of the stream. Without a committed offset, the next one is that
    of the first message."""

    topic: str
    partition: int
    offset: int
    end: int


def create_kafka_topic(
    bootstrap: str, login: Login | None, encryption: Encryption | None, name: str, partitions: int
) -> bool:
    """Like `BrokerAdmin.create_topic`, through the Kafka port of this broker or of Apache Kafka."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    settings = client_settings(login, encryption, {})
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings}, logger=QUIET_LOGGER)
    try:
        admin.create_topics([NewTopic(name, partitions)], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise PipelineFailure(f"the topic {name!r} could not be created: {error.args[0].str()}") from None
    return True


def kafka_cleanup_policies(
    bootstrap: str, login: Login | None, encryption: Encryption | None, topics: Collection[str]
) -> dict[str, str]:
    """Returns the setting cleanup.policy of each topic that the broker describes, through its Kafka port."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

    settings = client_settings(login, encryption, {})
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings}, logger=QUIET_LOGGER)
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = {}
    for resource, described in admin.describe_configs(wanted, request_timeout=TIMEOUT_S).items():
        try:
            found[resource.name] = str(described.result(TIMEOUT_S)["cleanup.policy"].value)
        except KafkaException:
            continue  # deleted meanwhile, or the user may not see its settings
    return found


class BrokerAdmin:
    """`encryption` applies to `https` addresses and to addresses without a scheme."""

    def __init__(self, url: str, login: Login | None = None, encryption: Encryption | None = None) -> None:
        scheme = "http" if encryption is None else "https"
        parts = urlsplit(url if "//" in url else f"{scheme}://{url}")
        if not parts.hostname:
            raise StartupError(f"{url!r} is not the address of an HTTP port: give http://host:8180")
        self._host, self._port = parts.hostname, parts.port or 8180
        self._encryption = (encryption or Encryption()) if parts.scheme == "https" else None
        self._url = f"{parts.scheme}://{self._host}:{self._port}"
        self._login = login

    def create_topic(self, name: str, partitions: int) -> bool:
        """Returns False if the topic exists already."""
        status, reply = self._request("POST", "/api/topics", {"name": name, "streams": partitions})
        if status not in (CREATED, EXISTS):
            raise PipelineFailure(f"the topic {name!r} could not be created: {reply.get('message', status)}")
        return status == CREATED

    def cleanup_policy(self, topic: str, namespace: str = "") -> str:
        """Returns the setting of a topic, or an empty text if it has none of its own or the topic is not described."""
        path = f"/api/topics/{quote(topic, safe='')}?namespace={quote(namespace, safe='')}"
        status, reply = self._request("GET", path)
        return "" if status >= 300 else str(reply["settings"].get("cleanup", ""))

    def groups(self) -> list[str]:
        return [group["name"] for group in self._get("/api/groups")["groups"]]

    def cursors(self, group: str) -> list[GroupOffset]:
        rows = self._get(f"/api/groups/{quote(group, safe='')}")["cursors"]
        return [_group_offset(row) for row in rows]

    def failures(self) -> Iterator[dict[str, Any]]:
        """Yields the entries of the ledger of failed AMQP messages, oldest first, as the HTTP API returns them."""
        at = 0
        while rows := (reply := self._get(f"/api/failures?from={at}&limit=1000"))["failures"]:
            yield from rows
            at = reply["next"]

    def redrive(self, failure: int) -> None:
        """Sends a failed message to its original queue again."""
        status, reply = self._request("POST", f"/api/failures/{failure}/redrive")
        if status >= 300:
            raise PipelineFailure(f"the failed message {failure} was not sent again: {reply.get('message', status)}")

    def _get(self, path: str) -> dict[str, Any]:
        status, reply = self._request("GET", path)
        if status >= 300:
            raise PipelineFailure(str(reply.get("message", f"the broker responded to {path} with status {status}")))
        return reply

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        connection = make_connection(self._host, self._port, TIMEOUT_S, self._encryption)
        try:
            headers = {} if self._login is None else {"Authorization": self._login.basic()}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            status, reply = response.status, json.loads(response.read() or b"{}")
        except ssl.SSLCertVerificationError as error:
            raise untrusted_certificate_error(self._url, error) from None
        except (OSError, HTTPException, ValueError) as error:
            raise PipelineFailure(f"the broker at {self._url} does not answer: {error}") from None
        finally:
            connection.close()
        if status == NO_LOGIN:
            raise refused(self._url, self._login)
        return status, reply


def _group_offset(row: dict[str, Any]) -> GroupOffset:
    offset = row["end"] - row["lag"] if row["offset"] is None else row["offset"]
    return GroupOffset(row["topic"], row["stream"], offset, row["end"] or offset)
