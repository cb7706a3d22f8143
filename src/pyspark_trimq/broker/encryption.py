"""Whether connections to the broker are encrypted, and whom they trust. One that was asked for with `https://` or a
`caFile` is never opened in the clear."""

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
CA_FILE_VARIABLE = "SSL_CERT_FILE"  # names other authorities than those of the system, to Python by itself

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


@dataclass(frozen=True)
class Encryption:
    """`ca_certificates`: certificates of those who may vouch for the broker; "": those that the system trusts."""

    ca_certificates: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_certificates or None)

    def client_settings(self) -> dict[str, str]:
        """For librdkafka."""
        found = {"security.protocol": "SSL"}
        if self.ca_certificates:
            found["ssl.ca.pem"] = self.ca_certificates
        elif CA_FILE_VARIABLE in os.environ:
            found["ssl.ca.location"] = os.environ[CA_FILE_VARIABLE]
        return found


def read_encryption(bootstrap: str, ca_file: str | None) -> Encryption | None:
    """None: connections are plain. The file is read here, and wherever tasks run, nothing has to be. Mistake: it holds
    no certificate, or nothing is encrypted."""
    if not ca_file:
        return Encryption() if bootstrap.startswith(HTTPS) else None
    if bootstrap.startswith("http://"):
        raise Mistake(f"the option {CA_FILE} is for encrypted connections, and bootstrap is {bootstrap}: give {HTTPS}…")
    try:
        found = _CERTIFICATE.findall(Path(ca_file).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Mistake(f"the certificates in {ca_file} cannot be read: {reason}") from None
    encryption = Encryption("".join(found))
    try:
        if found:
            encryption.context()
    except ssl.SSLError:
        found = []
    if not found:
        raise Mistake(f"the option {CA_FILE} is {ca_file!r}: there is no certificate in it")
    return encryption


def client_settings(login: Login | None, encryption: Encryption | None, given: Mapping[str, str]) -> dict[str, str]:
    """For librdkafka: who logs in, how it is encrypted, and what was `given`, which goes before. Mistake: that would
    send a password in the clear over a connection that was to be encrypted."""
    found = {} if login is None else login.client_settings()
    if encryption is not None:
        found |= encryption.client_settings()
        if login is not None:
            found["security.protocol"] = "SASL_SSL"
    found |= given
    if encryption is not None and found["security.protocol"].upper() == "SASL_PLAINTEXT":
        raise Mistake(
            f"bootstrap or {CA_FILE} asks for encrypted connections, and kafka.security.protocol would send the "
            "password in the clear: leave it out"
        )
    return found


def untrusted_certificate_error(address: str, error: ssl.SSLCertVerificationError) -> Mistake:
    """What to say of a broker whose certificate does not convince."""
    return Mistake(
        f"the certificate of the broker at {address} is not trusted ({error.verify_message or error}): give the option "
        f"{CA_FILE}, a file with the certificate of who vouches for it"
    )
