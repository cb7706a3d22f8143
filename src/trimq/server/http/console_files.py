"""Files of the console, as HTTP responses. Read from the package at the first request, then kept in memory."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from trimq.server.http.responses import Headers, HttpResponse, not_allowed, not_found

_PACKAGE = "trimq.console"
_FOLDER = "static"
_INDEX = "index.html"
_ASSETS = "assets"

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

# Paths of other services on this port. Every other path that a browser opens is a page of the console.
_SERVICES = ("api", "log", "metrics", "healthz", "readyz", _ASSETS)

# Scripts, styles and requests of this origin only; no inline script; no other site may embed a page.
SECURITY_HEADERS: Headers = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
)

# The address of an asset contains the digest of all assets: it never changes.
_FOREVER: Headers = (("cache-control", "public, max-age=31536000, immutable"), *SECURITY_HEADERS)
_ALWAYS_ASK: Headers = (("cache-control", "no-cache"), *SECURITY_HEADERS)


class _Asset(NamedTuple):
    content: bytes
    compressed: bytes
    content_type: str


class ConsoleFiles:
    def __init__(self) -> None:
        self._assets: dict[str, _Asset] = {}
        self._digest = ""

    def answer(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> HttpResponse | None:
        """Returns None if the path belongs to another service, or if the client is not a browser that opens a page."""
        service, _, rest = path[1:].partition("/")
        if service == _ASSETS:
            return self._asset(method, path, rest, headers)
        is_page = service not in _SERVICES and b"text/html" in headers.get(b"accept", b"")
        if not is_page or method != "GET":
            return None
        self._load()
        return _respond(self._assets[_INDEX], headers, _ALWAYS_ASK)

    def _asset(self, method: str, path: str, rest: str, headers: Mapping[bytes, bytes]) -> HttpResponse:
        if method != "GET":
            return not_allowed(method, "GET, HEAD")
        self._load()
        digest, _, name = rest.partition("/")
        asset = self._assets.get(name)
        if digest != self._digest or asset is None or name == _INDEX:
            return not_found(path)
        return _respond(asset, headers, _FOREVER)

    def _load(self) -> None:
        if self._assets:
            return
        contents = dict(_walk(files(_PACKAGE).joinpath(_FOLDER), ""))
        digest = hashlib.sha256()
        for name in sorted(contents):
            digest.update(name.encode() + b"\0" + contents[name] + b"\0")
        self._digest = digest.hexdigest()[:16]
        contents[_INDEX] = contents[_INDEX].replace(b"{assets}", f"/{_ASSETS}/{self._digest}".encode())
        for name, content in contents.items():
            suffix = name[name.rfind(".") :]
            if suffix in _CONTENT_TYPES:
                self._assets[name] = _Asset(content, gzip.compress(content, 6, mtime=0), _CONTENT_TYPES[suffix])


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _respond(asset: _Asset, headers: Mapping[bytes, bytes], further: Headers) -> HttpResponse:
    if b"gzip" in headers.get(b"accept-encoding", b""):
        further = (*further, ("content-encoding", "gzip"), ("vary", "accept-encoding"))
        return HttpResponse(200, asset.compressed, asset.content_type, headers=further)
    return HttpResponse(200, asset.content, asset.content_type, headers=further)
