"""Client of the HTTP administration API of a running broker. Knows the paths and the JSON of the responses."""

from __future__ import annotations

import argparse
import base64
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from trimq.cli.failure import CommandFailure
from trimq.config import Address, Settings, parse_address
from trimq.errors import StartupError

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from ssl import SSLContext

TIMEOUT_SECONDS = 30
DEFAULT_PORT = 8180
MAX_RESPONSE_BYTES = 256 * 1024 * 1024  # a longer response is not from TriMQ
CHUNK_BYTES = 1024 * 1024


class Topic(msgspec.Struct):
    name: str
    namespace: str
    id: str
    home: str
    streams: int
    settings: dict[str, Any]


class Topics(msgspec.Struct):
    topics: list[Topic]


class TopicSetting(msgspec.Struct):
    name: str
    kafka_name: str | None
    default: str
    description: str


class TopicSettings(msgspec.Struct):
    """Settings that a topic may have."""

    settings: list[TopicSetting]


class StreamEnds(msgspec.Struct):
    stream: int
    start: int
    end: int
    durable_end: int
    readable_end: int
    bytes: int | None


class TopicDescription(Topic):
    offsets: list[StreamEnds]


class Group(msgspec.Struct):
    name: str
    protocol: str
    state: str
    members: int | list[Any]


class Groups(msgspec.Struct):
    groups: list[Group]


class CursorPosition(msgspec.Struct):
    topic: str
    stream: int
    offset: int | None
    end: int | None
    lag: int | None
    note: str | msgspec.UnsetType = msgspec.UNSET


class StreamRange(msgspec.Struct):
    """`at_time`: first offset that is not older than the time of the request, if it has one."""

    stream: int
    start: int
    end: int
    at_time: int | None = None


class StreamRanges(msgspec.Struct):
    streams: list[StreamRange]


class Subscription(msgspec.Struct):
    """Subscription of a RocketMQ group."""

    topic: str
    expression: str


class RebalanceSummary(msgspec.Struct):
    """Rebalances of a group since the start of the broker. `running_ms`: age of the one in progress."""

    completed: int
    total_ms: int
    total_moved: int
    total_arrived: int
    last_ms: int
    last_moved: int
    last_arrived: int
    running_ms: int | None


class GroupDescription(msgspec.Struct):
    name: str
    protocol: str
    state: str
    members: list[Any]
    cursors: list[CursorPosition]
    subscriptions: list[Subscription] | msgspec.UnsetType = msgspec.UNSET
    last_commit_ms: int | msgspec.UnsetType | None = msgspec.UNSET
    rebalances: RebalanceSummary | msgspec.UnsetType = msgspec.UNSET


class _Problem(msgspec.Struct):
    error: str
    message: str


Answer = TypeVar("Answer")


def _headers(has_body: bool) -> dict[str, str]:
    """Returns the HTTP headers. User and password come from the environment: other users of the machine can see flags,
    but not variables."""
    headers = {"Content-Type": "application/json"} if has_body else {}
    user = os.environ.get("TRIMQ_USER")
    if user:
        login = f"{user}:{os.environ.get('TRIMQ_PASSWORD', '')}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(login).decode("ascii")
    return headers


class Target(NamedTuple):
    """Address of a broker's HTTP port as the user gave it. `ca`: PEM file of the trusted authorities, instead of those
    of the system. `cert`: PEM file with a client certificate and its key."""

    address: str
    ca: str = ""
    cert: str = ""

    def __str__(self) -> str:
        return self.address


class _SetTargetField(argparse.Action):
    """Changes one field of the target, which is the value of all its flags."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: object = None) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest)._replace(**{str(self.const): values}))


def add_address_flag(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(http=default_target())
    flags = {
        "address": (
            "--http",
            "ADDRESS",
            "HTTP address of the broker: host:8180, http://host:8180 or https://host:8180 (or TRIMQ_HTTP; default: "
            f"{str(default_target()).replace('%', '%%')})",
        ),
        "ca": (
            "--ca",
            "FILE",
            "for https: PEM file with the certificates of the authorities to trust (or TRIMQ_CA; default: those of the "
            "system, or of the file in SSL_CERT_FILE)",
        ),
        "cert": (
            "--cert",
            "FILE",
            "for https: PEM file with a certificate of this client and its key (or TRIMQ_CERT)",
        ),
    }
    for field, (flag, placeholder, summary) in flags.items():
        parser.add_argument(
            flag,
            dest="http",
            action=_SetTargetField,
            const=field,
            metavar=placeholder,
            help=summary,
            default=argparse.SUPPRESS,
        )


def default_target(address: str | None = None) -> Target:
    """Returns this address, or that in the environment or the default one, with the files in the environment."""
    if address is None:
        address = os.environ.get("TRIMQ_HTTP") or str(Settings().http.listen)
    return Target(address, os.environ.get("TRIMQ_CA", ""), os.environ.get("TRIMQ_CERT", ""))


class Endpoint(NamedTuple):
    """Address of an HTTP port."""

    address: Address
    is_encrypted: bool = False

    def __str__(self) -> str:
        return f"https://{self.address}" if self.is_encrypted else str(self.address)


def parse_endpoint(text: str) -> Endpoint:
    """Parses `host:port`, and `http://host` or `https://host` with or without a port (then it is 8180). Raises
    ValueError with the reason."""
    scheme, _, rest = text.rpartition("://")
    if scheme.lower() not in ("", "http", "https"):
        raise ValueError(f"{scheme}:// is not http:// or https://")
    rest = rest.removesuffix("/")
    if scheme and rest and ":" not in rest.rpartition("]")[2]:
        rest += f":{DEFAULT_PORT}"
    return Endpoint(parse_address(rest), scheme.lower() == "https")


def connect(given: Target | str) -> Api:
    """Returns the API of the broker at this address. Does not connect yet. With a file of authorities or a certificate,
    an address without `http://` is encrypted."""
    target = default_target(given) if isinstance(given, str) else given
    files = [flag for flag, path in (("--ca", target.ca), ("--cert", target.cert)) if path]
    address = f"https://{target.address}" if files and "://" not in target.address else target.address
    try:
        endpoint = parse_endpoint(address)
    except ValueError as error:
        raise StartupError(f"--http: expected HOST:PORT, got {target.address!r}: {error}") from None
    if files and not endpoint.is_encrypted:
        raise StartupError(f"{files[0]} needs an encrypted connection, but the address is {address}: give https://")
    return Api(endpoint, target.ca, target.cert)


def _trusting(ca: str, cert: str) -> SSLContext:
    from ssl import SSLError, create_default_context

    flag, path = "--ca", ca
    try:
        context = create_default_context(cafile=ca or None)
        if cert:
            flag, path = "--cert", cert
            context.load_cert_chain(cert)
    except SSLError:
        what = "certificate with its key" if flag == "--cert" else "certificate"
        raise StartupError(f"{flag}: {path} holds no {what} (PEM)") from None
    except OSError as error:
        raise StartupError(f"{flag}: {path} cannot be read: {error.strerror}") from None
    return context


def topic_path(name: str, namespace: str) -> str:
    return f"/api/topics/{quote(name, safe='')}" + (f"?{urlencode({'namespace': namespace})}" if namespace else "")


def api_path(*words: str, **query: str) -> str:
    """Returns `/api/…` with every path segment quoted and the non-empty fields of the query."""
    asked = {name: value for name, value in query.items() if value}
    return "/".join(["/api", *(quote(word, safe="") for word in words)]) + (f"?{urlencode(asked)}" if asked else "")


def group_path(name: str, protocol: str = "") -> str:
    return api_path("groups", name, protocol=protocol)


class Api:
    """HTTP API of one broker. Every failure raises CommandFailure with one sentence."""

    def __init__(self, endpoint: Endpoint, ca: str = "", cert: str = "") -> None:
        self._endpoint = endpoint
        self._ca = ca
        self._cert = cert

    def get(self, path: str, answer: type[Answer]) -> Answer:
        return self.decode(self._exchange("GET", path), answer)

    def post(self, path: str, body: object, answer: type[Answer]) -> Answer:
        return self.decode(self._exchange("POST", path, msgspec.json.encode(body)), answer)

    def patch(self, path: str, body: object, answer: type[Answer]) -> Answer:
        return self.decode(self._exchange("PATCH", path, msgspec.json.encode(body)), answer)

    def put(self, path: str, body: object) -> bytes:
        return self._exchange("PUT", path, msgspec.json.encode(body))

    def send(self, path: str, body: bytes | None = None) -> None:
        """Sends a POST whose response has no body."""
        self._exchange("POST", path, body)

    def delete(self, path: str) -> bytes:
        return self._exchange("DELETE", path)

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> bytes:
        from http.client import HTTPException
        from ssl import SSLCertVerificationError, SSLError

        connection = self._connection()
        try:
            connection.request(method, path, body, _headers(body is not None))
            response = connection.getresponse()
            # In chunks: the content length is set by the peer, so it must not decide how much is allocated.
            received = bytearray()
            while len(received) <= MAX_RESPONSE_BYTES and (piece := response.read(CHUNK_BYTES)):
                received += piece
        except TimeoutError:
            raise CommandFailure(f"the broker at {self._endpoint} did not answer in {TIMEOUT_SECONDS} s") from None
        except SSLCertVerificationError as error:
            raise CommandFailure(
                f"the certificate of {self._endpoint} is not trusted: {error.verify_message}; give the file of its "
                "authority with --ca (or TRIMQ_CA)"
            ) from None
        except SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise CommandFailure(f"no encrypted connection to {self._endpoint}: {reason}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandFailure(f"no broker answers at {self._endpoint}: {reason}") from None
        except HTTPException as error:
            raise CommandFailure(f"the server at {self._endpoint} is not a TriMQ HTTP port: {error!r}") from None
        finally:
            connection.close()
        if response.status >= 300:
            raise CommandFailure(self._explain(response.status, bytes(received)))
        return bytes(received)

    def _connection(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        address = self._endpoint.address
        if not self._endpoint.is_encrypted:
            return HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        return HTTPSConnection(*address, timeout=TIMEOUT_SECONDS, context=_trusting(self._ca, self._cert))

    def _explain(self, status: int, body: bytes) -> str:
        try:
            return msgspec.json.decode(body, type=_Problem).message
        except msgspec.MsgspecError:
            return f"the server at {self._endpoint} is not a TriMQ HTTP port: status {status}"

    def decode(self, body: bytes, answer: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.MsgspecError as error:
            raise CommandFailure(f"the response from {self._endpoint} cannot be decoded: {error}") from None
