"""Client of the broker's HTTP port, which serves streams of every layout."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from pyspark_trimq.broker.client import (
    TOKEN_TOPIC,
    OffsetRange,
    StreamBounds,
    StreamKey,
    chunk_bytes,
    offset_after_loss,
)
from pyspark_trimq.broker.encryption import HTTPS, Encryption, untrusted_certificate_error
from pyspark_trimq.broker.login import Login, refused
from pyspark_trimq.broker.retry import RetryPolicy
from pyspark_trimq.mistakes import Lost, Mistake, TopicMistake, Unreachable

if TYPE_CHECKING:
    from pyspark_trimq.arrow.decoders import Decode

_TIMEOUT_S = 60
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class HttpRefused(Exception):
    """The broker responded with an error status."""

    def __init__(self, status: int, details: dict[str, Any]) -> None:
        super().__init__(str(details.get("message", f"status {status}")))
        self.status = status
        self.details = details


class HttpBrokerClient:
    def __init__(
        self,
        url: str,
        namespace: str,
        is_committed: bool,
        waits_for_broker: bool = False,
        login: Login | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise Mistake(
                "bootstrap contains a login, which plans and reports would show: use the options user and password"
            )
        if not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise Mistake(f"bootstrap is {url!r}: give host:9092 or http://host:8180")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._login = login
        self._headers = {} if login is None else {"Authorization": login.basic()}
        self.encryption = (encryption or Encryption()) if url.startswith(HTTPS) else None
        self._connection = make_connection(parts.hostname, parts.port, _TIMEOUT_S, self.encryption)
        self._retry_policy = RetryPolicy(waits_for_broker)
        self._namespace = {"namespace": namespace} if namespace else {}
        self._isolation = "read_committed" if is_committed else "read_uncommitted"
        self._end_name = "stable_end" if is_committed else "end"
        self._prefetched_target = ""  # request sent ahead, response not read yet
        # Reused for each response: allocating new memory would take as long as filling it.
        self._receive_buffer = bytearray()

    def close(self) -> None:
        self._connection.close()

    # -- topics and offsets

    def kafka_address(self) -> str:
        """Raises Mistake if the broker has no Kafka port."""
        found = self._json("/api/addresses")["addresses"].get("kafka")
        if found is None:
            raise Mistake(f"the broker at {self._url} has no Kafka port, which the sink needs: switch it on")
        return str(found)

    def topics(self) -> list[str]:
        listed = self._json("/api/streams")["topics"]
        return [each["name"] for each in listed if not each.get("internal") and each["name"] != TOKEN_TOPIC]

    def ends(self, topic: str) -> dict[int, StreamBounds]:
        found = self._topic(topic)
        id, deletes_on_ack = str(found.get("id", "")), bool(found.get("gives_away"))
        return {
            row["stream"]: StreamBounds(row["start"], row[self._end_name], row["end"], id, deletes_on_ack)
            for row in found["streams"]
        }

    def sizes(self, topic: str) -> dict[int, int]:
        return {row["stream"]: row.get("bytes", 0) for row in self._topic(topic)["streams"]}

    def home(self, topic: str) -> str:
        return str(self._topic(topic)["home"])

    def at_time(self, topic: str, time_ms: int) -> dict[int, int]:
        rows = self._topic(topic, time=str(time_ms))["streams"]
        return {row["stream"]: min(row["at_time"], row[self._end_name]) for row in rows}

    def _topic(self, topic: str, **query: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._json(f"/api/streams/{quote(topic, safe='')}", **query)
            return found
        except HttpRefused as refused:
            if refused.status == 404:
                raise TopicMistake(f"there is no topic or queue {topic!r} at {self._url}") from None
            raise Unreachable(f"the broker at {self._url} refused the request: {refused}") from None

    # -- messages

    def read(self, wanted: OffsetRange, schema: pa.Schema, fails_on_loss: bool) -> Iterator[pa.RecordBatch]:
        # Imported only in tasks that read: planning a query starts a third faster without it.
        from pyspark_trimq.arrow.decoders import decoder_for

        (topic, number), offset, end = wanted
        decode: Decode | None = None
        while offset < end:
            try:
                body = self._request("GET", self._log_target(wanted, offset))
            except HttpRefused as refused:
                if refused.status not in (404, 416):
                    raise
                details = refused.details
                offset = offset_after_loss(wanted, offset, details.get("start"), details.get("end"), fails_on_loss)
                continue
            head_end = self._receive_buffer.index(b"\n", 0, len(body)) + 1
            head = json.loads(bytes(body[:head_end]))
            if offset < head["next"] < end:
                self._prefetch(self._log_target(wanted, head["next"]))
            if decode is None:
                decode = decoder_for(head["home"], schema, topic, number)
            yield from decode(body[head_end:], offset, end, head["aborted"])
            if head["next"] <= offset:
                raise Lost(f"{topic} {number} ends at {offset}, but messages up to {end} were to be read")
            offset = head["next"]

    def _log_target(self, wanted: OffsetRange, offset: int) -> str:
        size = chunk_bytes(wanted.end - offset)
        query = {"from": str(offset), "max_bytes": str(size), "isolation": self._isolation}
        return self._target(f"/log/{quote(wanted.key.topic, safe='')}/{wanted.key.number}", query)

    # -- groups

    def commit(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> None:
        self._request("PUT", self._cursors_target(group), _cursors_body(offsets, metadata))

    def _cursors_target(self, group: str) -> str:
        return self._target(f"/api/groups/{quote(group, safe='')}/cursors", {})

    def find_group(self, prefix: str, metadata: str) -> str | None:
        for group in self._json("/api/groups")["groups"]:
            if group["name"].startswith(prefix):
                cursors = self._json(f"/api/groups/{quote(group['name'], safe='')}")["cursors"]
                if any(cursor.get("note") == metadata for cursor in cursors):
                    return str(group["name"])
        return None

    def delete_group_request(self, group: str) -> tuple[str, int, list[bytes]]:
        target = f"/api/groups/{quote(group, safe='')}?{urlencode(self._namespace)}"
        return self._connection.host, self._connection.port, [self._raw_request("DELETE", target)]

    def commit_requests(self, group: str, offsets: Mapping[StreamKey, int], metadata: str) -> list[bytes]:
        return [self._raw_request("PUT", self._cursors_target(group), _cursors_body(offsets, metadata))]

    def _raw_request(self, method: str, target: str, body: bytes = b"") -> bytes:
        length = str(len(body))
        headers = {"Host": self._connection.host, "Connection": "close", "Content-Length": length, **self._headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    # -- requests

    def _json(self, path: str, **query: str) -> Any:
        return json.loads(bytes(self._request("GET", self._target(path, query))))

    def _target(self, path: str, query: Mapping[str, str]) -> str:
        return f"{path}?{urlencode({**self._namespace, **query})}"

    def _request(self, method: str, target: str, body: bytes | None = None) -> memoryview:
        """Returns the response body, which is valid until the next request. Raises HttpRefused."""
        status, received = self._retry_policy.call(
            lambda: self._exchange(method, target, body),
            lambda error: Unreachable(f"the broker at {self._url} does not answer: {error}"),
        )
        if status == _UNAUTHORIZED:
            raise refused(self._url, self._login)
        if status == _FORBIDDEN:
            raise Mistake(
                f"the broker at {self._url} refused access: {_error_details(received).get('message', 'not allowed')}"
            )
        if status >= 400:
            raise HttpRefused(status, _error_details(received))
        return received

    def _prefetch(self, target: str) -> None:
        """Sends the next request ahead, so that the broker works on it while this process decodes the last response."""
        try:
            self._connection.request("GET", target, None, self._headers)
            self._prefetched_target = target
        except (OSError, HTTPException):
            self._connection.close()  # `_request` sends it again, with retries

    def _exchange(self, method: str, target: str, body: bytes | None) -> tuple[int, memoryview]:
        is_sent = self._prefetched_target == target
        if self._prefetched_target and not is_sent:
            self._connection.close()  # discards the pending response
        self._prefetched_target = ""
        try:
            if not is_sent:
                self._connection.request(method, target, body, self._headers)
            response = self._connection.getresponse()
            return response.status, self._receive(response)
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            raise untrusted_certificate_error(self._url, error) from None
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise OSError(str(error) or type(error).__name__) from error

    def _receive(self, response: HTTPResponse) -> memoryview:
        size = response.length
        if size is None:  # chunked response
            self._receive_buffer = bytearray(response.read())
            return memoryview(self._receive_buffer)
        if len(self._receive_buffer) < size:
            self._receive_buffer = bytearray(size)
        room = memoryview(self._receive_buffer)[:size]
        got = 0
        while got < size:
            more = response.readinto(room[got:])
            if not more:
                raise OSError(f"the response ends after {got} of {size} bytes")
            got += more
        response.read()  # at its end: makes the connection ready for the next request
        return room


def _cursors_body(offsets: Mapping[StreamKey, int], metadata: str) -> bytes:
    rows = [{"topic": key.topic, "stream": key.number, "offset": offset} for key, offset in offsets.items()]
    return json.dumps({"cursors": rows, "note": metadata}).encode()


def make_connection(host: str, port: int | None, timeout_s: float, encryption: Encryption | None) -> HTTPConnection:
    if encryption is None:
        return HTTPConnection(host, port, timeout=timeout_s)
    return HTTPSConnection(host, port, timeout=timeout_s, context=encryption.context())


def _error_details(received: memoryview) -> dict[str, Any]:
    try:
        details = json.loads(bytes(received))
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}
