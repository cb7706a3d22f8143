"""Signatures of requests: access key, and HMAC-SHA1 over the values of all fields and the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimq.model import Buffer


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key of a user. The secret is not shown when this is printed."""

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, fields: Mapping[str, str], body: Buffer) -> dict[str, str]:
        """Returns the fields with access key and signature."""
        signed = {**fields, "AccessKey": self.access_key}
        content = "".join([signed[name] for name in sorted(signed)]).encode("utf-8", "surrogatepass") + body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        return {**signed, "Signature": base64.b64encode(digest).decode()}
