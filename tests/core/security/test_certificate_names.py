"""Users that certificates name: the subject as text, and Kafka's mapping rules."""

from __future__ import annotations

import pytest

from trimq.core.security.certificate_names import PrincipalMapper, distinguished_name
from trimq.errors import InvalidSetting

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Example, Inc."),), (("commonName", "Alice"),))
CERTIFICATE = {
    "subject": SUBJECT,
    "subjectAltName": (("DNS", "alice.example"), ("email", "alice@example"), ("URI", "spiffe://example/alice")),
}


def mapped(rules: str, source: str = "distinguished-name") -> str | None:
    return PrincipalMapper(source, rules).principal_of(CERTIFICATE)


def test_the_subject_is_written_most_specific_part_first_and_escaped() -> None:
    assert distinguished_name(CERTIFICATE) == r"CN=Alice,O=Example\, Inc.,C=DE"
    pairs = (("commonName", "#1 "), ("userId", 'a"b'))
    assert distinguished_name({"subject": (pairs,)}) == r"CN=\#1\ +UID=a\"b"
    assert distinguished_name({"subject": ((("emailAddress", "a@b"),),)}) == "emailAddress=a@b"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("distinguished-name", r"CN=Alice,O=Example\, Inc.,C=DE"),
        ("common-name", "Alice"),
        ("dns", "alice.example"),
        ("email", "alice@example"),
        ("uri", "spiffe://example/alice"),
    ],
)
def test_each_part_can_name_the_user(source: str, name: str) -> None:
    assert mapped("DEFAULT", source) == name
    assert PrincipalMapper(source, "").principal_of({"subject": ()}) is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (r"RULE:^CN=(.*?),O=(.*?),C=.*$/$1@$2/", r"Alice@Example\, Inc."),
        (r"RULE:^CN=(.*?),.*$/$1/L", "alice"),
        (r"RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE"),
        (r"RULE:^OU=(.*?),.*$/$1/, RULE:^CN=(\w+),.*$/user-$1/L , DEFAULT", "user-alice"),
        (r"RULE:CN=Alice/never, it matches no part of the name/,DEFAULT", r"CN=Alice,O=Example\, Inc.,C=DE"),
        (r"RULE:CN=(.*)/a\/$1/", r"a/Alice,O=Example\, Inc.,C=DE"),
        (r"RULE:CN=(x)?.*/<$1>/", "<>"),
        (r"RULE:^OU=(.*)$/$1/", None),
        (r"RULE:.*//", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(rules: str, name: str | None) -> None:
    assert mapped(rules) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:CN=(.*)", "neither DEFAULT nor RULE"),
        ("DEFAULT;DEFAULT", "neither DEFAULT nor RULE"),
        ("RULE:(/x/", "not a regular expression"),
        ("RULE:(a)/$2/", "no group"),
        (r"RULE:(?=a)/x/", "not a regular expression"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rules: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        mapped(rules)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "x" * 256, ""])
def test_what_cannot_be_a_user_names_nobody(name: str) -> None:
    certificate = {"subject": ((("commonName", name),),)}
    assert PrincipalMapper("common-name", "DEFAULT").principal_of(certificate) is None


def test_a_rule_takes_no_exponential_time() -> None:
    certificate = {"subject": ((("commonName", "a" * 200 + "!"),),)}
    assert PrincipalMapper("common-name", "RULE:(a+)+/x/").principal_of(certificate) is None
