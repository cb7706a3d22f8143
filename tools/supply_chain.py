"""Supply chain: known vulnerabilities of the packages in the lock files, and a bill of materials (SBOM, CycloneDX) of
each. `make audit` runs it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

PROJECT = Path(__file__).parent.parent
LOCKS = ("bootstrap", "runtime", "dev")
SERVICES = ("pypi", "osv")
_TIMEOUT_S = 10
_LONGEST_LICENSE = 80


@dataclass(frozen=True)
class Pin:
    """One package of a lock file. `hashes`: SHA-256 of each file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """`vulnerable`: one line for each known vulnerability. `unknown`: packages whose advisories could not be read."""

    packages: int
    vulnerable: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        lines = list(self.vulnerable)
        if self.unknown:
            lines.append(
                f"NOT AUDITED: the advisories of {len(self.unknown)} of {self.packages} packages could not be read"
            )
        known = self.packages - len(self.unknown)
        return "\n".join([*lines, f"{len(self.vulnerable)} known vulnerabilities in {known} audited packages"])


def read_pins(lock: Path) -> list[Pin]:
    entries = re.sub(r"\\\n", " ", re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE)).splitlines()
    return list(_pins(entries))


def _pins(entries: Sequence[str]) -> Iterator[Pin]:
    for entry in entries:
        if found := re.match(r"([\w.-]+)==([^\s;]+)", entry):
            yield Pin(found[1], found[2], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))


def audit(lock: Path) -> Audit:
    """Asks the services for advisories, one after the other until one knows a package."""
    packages = read_pins(lock)
    for service in SERVICES:
        if (found := read_report(packages, _ask(lock, service))) is not None and len(found.unknown) < len(packages):
            return found
    return Audit(len(packages), (), tuple(package.name for package in packages))


def _ask(lock: Path, service: str) -> str:
    """Returns the report of pip-audit, or nothing if the service did not answer. Its messages may name hosts, and are
    dropped."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--disable-pip", "--require-hashes"]
    command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
    command += ["--timeout", str(_TIMEOUT_S)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def read_report(packages: Sequence[Pin], report: str) -> Audit | None:
    """Reads a report of pip-audit. A package that it skips, or does not name, was not audited."""
    try:
        rows = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        return None
    audited = {row["name"]: row["vulns"] for row in rows if "vulns" in row}
    vulnerable = [
        f"{row['name']} {row['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for row in rows
        for found in row.get("vulns", ())
    ]
    unknown = [package.name for package in packages if package.name not in audited]
    return Audit(len(packages), tuple(vulnerable), tuple(unknown))


def bill_of_materials(packages: Sequence[Pin], name: str) -> str:
    """Returns the SBOM of the packages. The same packages give the same text."""
    project = Component(name=name, type=ComponentType.APPLICATION, bom_ref=name)
    components = [_component(package) for package in packages]
    bom = Bom(components=components, metadata=BomMetaData(component=project))
    bom.register_dependency(project, components)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"], document["serialNumber"]
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _component(package: Pin) -> Component:
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=package.name, version=package.version),
        bom_ref=f"{package.name}@{package.version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes],
        licenses=[DisjunctiveLicense(name=license_) for license_ in [license_of(package.name)] if license_],
    )


def license_of(name: str) -> str:
    """License that the installed package states; nothing if it is not installed or states none."""
    try:
        stated = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    classified = [entry.rpartition(" :: ")[2] for entry in stated.get_all("Classifier") or () if "License ::" in entry]
    (expression, *_), (plain, *_) = (stated.get_all(field) or [""] for field in ("License-Expression", "License"))
    text = expression or ", ".join(classified) or plain.split("\n")[0]
    return "" if text.upper() == "UNKNOWN" else text[:_LONGEST_LICENSE]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.supply_chain", description=__doc__)
    parser.add_argument("--folder", type=Path, default=PROJECT / "build", help="where the bills of materials go")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    is_vulnerable = False
    for name in LOCKS:
        lock = PROJECT / "requirements" / f"{name}.txt"
        packages = read_pins(lock)
        bill = given.folder / f"sbom-{name}.json"
        bill.write_text(bill_of_materials(packages, f"trimq-{name}"))
        found = audit(lock)
        is_vulnerable |= bool(found.vulnerable)
        print(f"requirements/{name}.txt: {bill.name} with {len(packages)} packages\n{found}", flush=True)
    return 1 if is_vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
