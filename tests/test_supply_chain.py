"""Licenses of the pinned packages in NOTICE, bills of materials, and reports of the audit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.supply_chain import LOCKS, Audit, bill_of_materials, license_of, read_pins, read_report

PROJECT = Path(__file__).parent.parent
PERMISSIVE = re.compile(r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|Zlib|MIT-CMU)\b")
COPYLEFT = re.compile(r"GPL|General Public|MPL|Mozilla|EPL|Eclipse|CDDL")

PINS = {name: read_pins(PROJECT / "requirements" / f"{name}.txt") for name in LOCKS}
ON_OTHER_SYSTEMS = {"colorama"}  # BSD; installed on Windows alone

NOTICE = (PROJECT / "NOTICE").read_text()


def needs_notice(license_: str) -> bool:
    return bool(COPYLEFT.search(license_)) or not PERMISSIVE.search(license_)


def copyleft_packages(name: str) -> set[str]:
    return {pin.name for pin in PINS[name] if needs_notice(license_of(pin.name))} - ON_OTHER_SYSTEMS


@pytest.mark.parametrize("name", LOCKS)
def test_packages_with_other_than_permissive_licenses_are_named_in_the_notice(name: str) -> None:
    assert {package for package in copyleft_packages(name) if not re.search(rf"\b{package}\b", NOTICE)} == set()


def test_the_notice_names_no_package_that_is_not_pinned() -> None:
    _, _, listed = NOTICE.partition("copyleft licenses")
    named = {
        package.strip(" \n")
        for line in re.findall(r"^  (\w[^(:]*)", listed, re.MULTILINE)
        for package in line.split(",")
    }
    assert named == set().union(*map(copyleft_packages, LOCKS))


def test_the_broker_needs_no_package_with_a_copyleft_license_but_that_of_the_extra_speed() -> None:
    assert copyleft_packages("runtime") == {"crc32c"}


@pytest.mark.parametrize(
    ("license_", "expected"),
    [
        ("MIT", False),
        ("BSD-3-Clause", False),
        ("Apache-2.0 OR BSD-2-Clause", False),
        ("GNU Lesser General Public License v2 or later (LGPLv2+)", True),
        ("MIT AND LGPL-2.1", True),
        ("", True),
        ("Proprietary", True),
    ],
)
def test_a_license_that_is_not_known_to_be_permissive_needs_a_notice(license_: str, expected: bool) -> None:
    assert needs_notice(license_) == expected


@pytest.mark.parametrize("name", LOCKS)
def test_a_bill_of_materials_has_every_pinned_package_with_version_and_hashes(name: str) -> None:
    bill = json.loads(bill_of_materials(PINS[name], "trimq"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {
        (each["name"], each["version"], each["purl"], frozenset(part["content"] for part in each["hashes"]))
        for each in bill["components"]
    }
    assert len(found) > 5
    assert found == {
        (pin.name, pin.version, f"pkg:pypi/{pin.name}@{pin.version}", frozenset(pin.hashes)) for pin in PINS[name]
    }


def test_the_same_packages_give_the_same_bill() -> None:
    assert bill_of_materials(PINS["runtime"], "trimq") == bill_of_materials(PINS["runtime"][::-1], "trimq")


def report(*rows: dict[str, object]) -> str:
    return json.dumps({"dependencies": rows, "fixes": []})


RUNTIME = PINS["bootstrap"][:2]
FIRST, SECOND = (pin.name for pin in RUNTIME)


def test_a_known_vulnerability_is_reported_with_the_version_that_fixes_it() -> None:
    vulnerable = {"name": FIRST, "version": "1.0", "vulns": [{"id": "GHSA-1", "fix_versions": ["1.1", "2.0"]}]}
    found = read_report(RUNTIME, report(vulnerable, {"name": SECOND, "version": "2", "vulns": []}))
    assert found == Audit(2, (f"{FIRST} 1.0: GHSA-1, fixed in 1.1, 2.0",), ())
    assert str(found).endswith("1 known vulnerabilities in 2 audited packages")


def test_a_package_without_advisories_to_read_does_not_count_as_audited() -> None:
    """pip-audit itself says that nothing was found."""
    found = read_report(RUNTIME, report({"name": FIRST, "skip_reason": "not found"}))
    assert found == Audit(2, (), (FIRST, SECOND))
    assert "NOT AUDITED: the advisories of 2 of 2 packages could not be read" in str(found)
    assert "0 known vulnerabilities in 0 audited packages" in str(found)


@pytest.mark.parametrize("text", ["", "no JSON", "{}"])
def test_a_service_that_does_not_answer_gives_no_report(text: str) -> None:
    assert read_report(RUNTIME, text) is None
