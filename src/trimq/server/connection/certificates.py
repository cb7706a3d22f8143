"""TLS of the listeners: the configured certificate or a self-signed one, and the check of client certificates. Knows no
connection."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import NamedTuple

from trimq.config import Tls
from trimq.config.tls import LISTENERS, ClientCertificates, find_contradictions
from trimq.core.security.certificate_names import PrincipalMapper
from trimq.errors import InvalidSetting, StartupError
from trimq.storage.io.files import outside_file_mode
from trimq.storage.io.memfd import memfd_path

# Protocol that a listener selects of those that a client offers (ALPN). Clients of the other listeners offer none.
_ALPN = {"http": "http/1.1", "rocketmq_grpc": "h2"}
_LASTS = timedelta(days=3650)
_HOSTS = ("127.0.0.1", "::1")
_UNASKING = "rocketmq"


_BUFFER_BYTES = 64 * 1024
_READABLE_BY_OTHERS = 0o007

# ALPN protocol, and whether certificates of clients are wanted: what contexts differ in.
_Kind = tuple[str, ClientCertificates]


class Certificates:
    """Provides the TLS contexts of all listeners. Creates the self-signed certificate when the first client needs it,
    and loads changed files on `reload`."""

    def __init__(self, settings: Tls, now_ms: Callable[[], int]) -> None:
        """StartupError: the TLS settings cannot be used."""
        self._settings = settings
        self._now_ms = now_ms
        self._own = b""
        self._contexts: dict[_Kind, ssl.SSLContext] = {}
        # Of all TLS connections: what is received in it is taken out of it in the same call.
        self._buffer = bytearray(_BUFFER_BYTES)
        for contradiction in find_contradictions(settings):
            raise StartupError(contradiction)
        try:
            self._mapper = PrincipalMapper(settings.principal_from, settings.principal_rules)
        except InvalidSetting as error:
            raise StartupError(str(error)) from None
        self._can_make_one = find_spec("cryptography") is not None
        required = [name for name in LISTENERS if settings.mode_of(name) == "required"]
        if required and settings.certificate is None and not self._can_make_one:
            raise StartupError(
                f'TLS is required for {required[0]}: it needs tls.certificate and tls.key, or pip install "trimq[tls]"'
            )
        self._kinds = {
            _kind_of(settings, name): None for name in LISTENERS if settings.mode_of(name) != "off"
        }  # a dict, not a set: loaded in the same order on every run
        if settings.certificate is not None:
            self._contexts = self.load()

    def of_listener(self, listener: str) -> ListenerTls | None:
        """Returns None if the listener offers no TLS. A self-signed certificate is offered to RocketMQ clients, which
        do not verify it; to all others only if TLS is required."""
        mode = self._settings.mode_of(listener)
        is_unasked = self._can_make_one and listener.startswith(_UNASKING)
        if mode == "off" or not (self._settings.certificate is not None or mode == "required" or is_unasked):
            return None
        kind = _kind_of(self._settings, listener)
        mapper = None if kind[1] == "none" else self._mapper
        return ListenerTls(mode == "required", lambda: self._context(kind), mapper, self._buffer)

    def _context(self, kind: _Kind) -> ssl.SSLContext:
        if not self._contexts:
            self._contexts = self.load()
        return self._contexts[kind]

    def load(self) -> dict[_Kind, ssl.SSLContext]:
        """Returns contexts of what the files hold now, for `use`. May run in a thread. StartupError: the files cannot
        be used."""
        settings = self._settings
        if settings.certificate is not None and settings.key is not None:
            return self._load_all(settings.certificate, settings.key)
        if not self._own:
            self._own = _self_signed(self._now_ms())
        with memfd_path(self._own) as path:
            return self._load_all(path, path)

    def use(self, contexts: dict[_Kind, ssl.SSLContext]) -> None:
        """Uses these contexts for new connections. Open connections stay as they are."""
        self._contexts = contexts

    def _load_all(self, certificate: str, key: str) -> dict[_Kind, ssl.SSLContext]:
        if key == self._settings.key:
            _require_private(key)
        return {kind: _load(certificate, key, kind, self._settings) for kind in self._kinds}


class ListenerTls(NamedTuple):
    """TLS of one listener."""

    is_required: bool
    context: Callable[[], ssl.SSLContext]
    mapper: PrincipalMapper | None
    buffer: bytearray

    def principal_of(self, connection: ssl.SSLObject) -> str | None:
        """Returns the user that the verified certificate of the client names; None if there is none."""
        if self.mapper is None or not (certificate := connection.getpeercert()):
            return None
        return self.mapper.principal_of(certificate)


def _kind_of(settings: Tls, listener: str) -> _Kind:
    return _ALPN.get(listener, ""), settings.client_certificates_of(listener)


def _require_private(key: str) -> None:
    try:
        is_readable_by_others = outside_file_mode(key) & _READABLE_BY_OTHERS
    except FileNotFoundError:
        raise StartupError(f"tls.key: {key} does not exist") from None
    except OSError as error:
        raise StartupError(f"tls.key: {key} cannot be read: {error.strerror}") from None
    if is_readable_by_others:
        raise StartupError(f"tls.key: every user of this machine may read or change {key}: chmod 600 {key}")


def _load(certificate: str, key: str, kind: _Kind, settings: Tls) -> ssl.SSLContext:
    protocol, wish = kind
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if protocol:
        context.set_alpn_protocols([protocol])
    try:
        context.load_cert_chain(certificate, key, _refuse_password(key))
    except FileNotFoundError as error:
        raise StartupError(f"tls: {certificate} or {key} does not exist") from error
    except (OSError, ValueError) as error:  # an SSLError is an OSError too
        raise StartupError(f"tls: {certificate} and {key} cannot be used: {error.args[-1]}") from error
    if wish != "none" and settings.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED if wish == "needed" else ssl.CERT_OPTIONAL
        _load_authorities(context, settings.client_ca, "tls.client_ca")
        # A ticket would let a client back in after its certificate was revoked or has expired.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if settings.client_crl is not None:
            _load_authorities(context, settings.client_crl, "tls.client_crl")
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return context


def _load_authorities(context: ssl.SSLContext, path: str, name: str) -> None:
    try:
        context.load_verify_locations(path)
    except FileNotFoundError as error:
        raise StartupError(f"{name}: {path} does not exist") from error
    except (OSError, ValueError) as error:
        raise StartupError(f"{name}: {path} cannot be used: {error.args[-1]}") from error


def _refuse_password(key: str) -> Callable[[], str]:
    """Without it, OpenSSL would ask for a password on the terminal."""

    def refuse() -> str:
        raise StartupError(f"tls.key: {key} is encrypted; give a key without a password, readable by its owner only")

    return refuse


def _self_signed(now_ms: int) -> bytes:
    """Returns a self-signed certificate and its key as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trimq")])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    hosts = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(host)) for host in _HOSTS)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
