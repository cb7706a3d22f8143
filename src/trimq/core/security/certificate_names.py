"""Names of users in client certificates: the subject as text, and the rules that map it to a user, as in Kafka's
`ssl.principal.mapping.rules`. Knows no TLS connection; RE2 is imported with the first pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimq.errors import InvalidSetting

# Attributes by their names in OpenSSL, and their keywords of RFC 4514.
_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = frozenset('"+,;<>\\')
_ALTERNATIVE_NAMES = {"dns": "DNS", "email": "email", "uri": "URI"}

_SPLITTER = re.compile(r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<rule>(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?))\s*(?:,|$)")
_RULE = re.compile(r"(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)")
_GROUP = re.compile(r"\$(\d)")
_USER_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
_MAX_MEMORY_BYTES = 256 * 1024

Certificate = Mapping[str, Any]
"""Verified certificate as `ssl.SSLObject.getpeercert` returns it."""


class PrincipalMapper:
    """Returns the user that a verified certificate names."""

    def __init__(self, source: str, rules: str) -> None:
        """`source`: a value of `tls.principal_from`. Raises InvalidSetting if the rules cannot be read."""
        self._source = source
        self._rules = _read_rules(rules)

    def principal_of(self, certificate: Certificate) -> str | None:
        """Returns None if the certificate names nobody: it lacks that part, or no rule matches."""
        name = _name_in(certificate, self._source)
        if not name:
            return None
        for rule in self._rules:
            if (mapped := rule.apply(name)) is not None:
                return mapped if _USER_NAME.fullmatch(mapped) else None
        return None


class _Rule:
    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = _compile(pattern)
        for number in _GROUP.findall(replacement):
            if int(number) > self._pattern.groups:
                raise InvalidSetting("tls.principal_rules", f"{pattern!r} has no group ${number}")
        self._replacement = replacement
        self._case = case

    def apply(self, name: str) -> str | None:
        """Returns None if the pattern does not match the whole name."""
        found = self._pattern.fullmatch(name)
        if found is None:
            return None
        mapped = _GROUP.sub(lambda group: found[int(group[1])] or "", self._replacement)
        return mapped.lower() if self._case == "L" else mapped.upper() if self._case == "U" else mapped


class _Unchanged:
    def apply(self, name: str) -> str | None:
        return name


def _read_rules(text: str) -> Sequence[_Rule | _Unchanged]:
    rules: list[_Rule | _Unchanged] = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _SPLITTER.match(text, position)
        if found is None or found.end() == position:
            raise InvalidSetting(
                "tls.principal_rules",
                f"{text[position:]!r} is neither DEFAULT nor RULE:pattern/replacement/ with L, U or nothing behind it",
            )
        position = found.end()
        if found["default"]:
            rules.append(_Unchanged())
            continue
        rule = _RULE.fullmatch(found["rule"])
        assert rule is not None, "the splitter contains the same expression"
        rules.append(_Rule(rule["pattern"], rule["replacement"].replace("\\/", "/"), rule["case"]))
    return rules or [_Unchanged()]


def _compile(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False  # RE2 would write to stderr
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise InvalidSetting("tls.principal_rules", f"{pattern!r} is not a regular expression: {reason}") from None


def _name_in(certificate: Certificate, source: str) -> str | None:
    if source == "distinguished-name":
        return distinguished_name(certificate)
    if source == "common-name":
        names = [value for parts in certificate.get("subject", ()) for key, value in parts if key == "commonName"]
        return names[-1] if names else None
    kind = _ALTERNATIVE_NAMES[source]
    return next((value for key, value in certificate.get("subjectAltName", ()) if key == kind), None)


def distinguished_name(certificate: Certificate) -> str:
    """Returns the subject as in RFC 4514, most specific part first: `CN=alice,O=Example,C=DE`."""
    parts = [
        "+".join(f"{_KEYWORDS.get(key, key)}={_escape(value)}" for key, value in pairs)
        for pairs in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escape(value: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if value.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped
