"""TLS of connections to the broker: when it is used, and which certificate authorities are trusted. With `https://` or
a `caFile` a connection is never opened unencrypted."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_trimq.broker.login import Login
from pyspark_trimq.mistakes import Mistake

CA_FILE = "caFile"
HTTPS = "https://"
CA_FILE_VARIABLE = "SSL_CERT_FILE"  # replaces the system's authorities; Python's ssl reads it too

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True)
class Encryption:
    """`ca_certificates` are the trusted authorities as PEM text; "" means those of the system."""

    ca_certificates: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_certificates or None)

    def client_settings(self) -> dict[str, str]:
        """Returns the settings for librdkafka."""
        found = {"security.protocol": "SSL"}
        if self.ca_certificates:
            found["ssl.ca.pem"] = self.ca_certificates
        elif CA_FILE_VARIABLE in os.environ:
            found["ssl.ca.location"] = os.environ[CA_FILE_VARIABLE]
        return found


def read_encryption(bootstrap: str, ca_file: str | None) -> Encryption | None:
    """Returns None if connections are not encrypted. Reads the file here, so that machines of tasks do not need it.
    Raises Mistake if the file has no certificate, or if the address is not encrypted."""
    if not ca_file:
        return Encryption() if bootstrap.startswith(HTTPS) else None
    if bootstrap.startswith("http://"):
        raise Mistake(
            f"the option {CA_FILE} needs an encrypted connection, but bootstrap is {bootstrap}: give {HTTPS}…"
        )
    try:
        found = _CERTIFICATE.findall(Path(ca_file).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise Mistake(f"the certificates in {ca_file} cannot be read: {reason}") from None
    encryption = Encryption("".join(found))
    try:
        if found:
            encryption.context()
    except ssl.SSLError:
        found = []
    if not found:
        raise Mistake(f"the option {CA_FILE} is {ca_file!r}: the file contains no certificate")
    return encryption


def client_settings(login: Login | None, encryption: Encryption | None, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the librdkafka settings for login and TLS; settings in `given` win. Raises Mistake if `given` would send
    the password unencrypted although TLS was asked for."""
    found = {} if login is None else login.client_settings()
    if encryption is not None:
        found |= encryption.client_settings()
        if login is not None:
            found["security.protocol"] = "SASL_SSL"
    found |= given
    if encryption is not None and found["security.protocol"].upper() == "SASL_PLAINTEXT":
        raise Mistake(
            f"bootstrap or {CA_FILE} asks for encrypted connections, but kafka.security.protocol would send the "
            "password unencrypted: leave it out"
        )
    return found


def untrusted_certificate_error(address: str, error: ssl.SSLCertVerificationError) -> Mistake:
    """Returns the error for a certificate that is not trusted."""
    return Mistake(
        f"the certificate of the broker at {address} is not trusted ({error.verify_message or error}): give the option "
        f"{CA_FILE}, a file with the certificate of its authority"
    )
