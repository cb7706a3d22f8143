"""Lock files pin by name and hash alone: none contains the host of a registry."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

PROJECT = Path(__file__).parent.parent
NAMES = {"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "go.sum", "go.mod", "pom.xml"}
NAMES |= {"Cargo.lock", "uv.lock", "poetry.lock", "pdm.lock", "gradle.lockfile", ".npmrc", "pip.conf", "uv.toml"}
MADE = {".venv", ".git", "node_modules", "target", "build", "dist", "trimq-data"}

HOST = re.compile(
    r"""[a-z][a-z0-9+.-]*://\S+                                     # an address
    | (?<![\w.-]) (?:[a-z0-9-]+\.)+ (?:com|org|net|io|dev|cloud|internal|local|lan|corp|edu|gov|info) (?![\w.-])
    | (?<![\w.-]) localhost (?![\w-])
    | (?<![\w.-]) [a-z][a-z0-9.-]*:[0-9]{2,5} (?![\w.-])            # host:port
    | (?<![\w-]) --?(?:index-url|extra-index-url|find-links|trusted-host|default-index|i|f) (?![\w-])""",
    re.VERBOSE | re.IGNORECASE,
)


def lock_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in MADE]
        for name in files:
            if name in NAMES or (Path(parent).name == "requirements" and name.endswith((".txt", ".in"))):
                yield Path(parent, name)


def hosts_in(name: str, text: str) -> list[str]:
    """Hosts, addresses and index options in a lock file of this name."""
    return [found.group().strip() for part in _stated(name, text) for found in HOST.finditer(part)]


def _stated(name: str, text: str) -> Iterator[str]:
    """The parts of a file that can name a source."""
    if name == "pom.xml":
        # An XML namespace looks like an address but is a name; after parsing it is in no text or value.
        for element in ElementTree.fromstring(text).iter():
            yield from (element.text or "", *element.attrib.values())
    elif name in ("go.sum", "go.mod"):
        # A Go module's path is its name, independent of the proxy.
        yield re.sub(r"^\s*(?:(?:module|require|replace) )?[\w./~-]+(?=\s|$)", "", text, flags=re.MULTILINE)
    elif name.endswith(".json"):
        yield from _strings(json.loads(text))
    else:
        yield text


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value


FILES = {str(path.relative_to(PROJECT)): path for path in sorted(lock_files(PROJECT))}


@pytest.mark.parametrize("name", FILES)
def test_no_lock_file_names_a_host(name: str) -> None:
    assert hosts_in(FILES[name].name, FILES[name].read_text()) == []


LOCKS = [name for name in FILES if name.startswith("requirements/") and name.endswith(".txt")]


@pytest.mark.parametrize("name", LOCKS)
def test_everything_that_is_installed_is_pinned_and_hashed(name: str) -> None:
    entries = re.sub(r"\\\n", " ", re.sub(r"^ *#.*\n", "", FILES[name].read_text(), flags=re.MULTILINE)).splitlines()
    assert entries
    assert [entry for entry in entries if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)] == []


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", FILES[name].read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", LOCKS)
def test_a_package_has_one_version_in_all_locks(name: str) -> None:
    development = pins("requirements/dev.txt")
    assert [(name, pin) for name, pin in pins(name).items() if development.get(name, pin) != pin] == []


def test_the_lock_of_the_broker_has_the_extras_that_it_serves_with_and_not_those_of_spark_and_clients() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra: {re.split(r"[^\w.-]", entry)[0].lower() for entry in entries} for extra, entries in extras.items()}
    apart = [extra for extra in named if extra == "spark" or extra.startswith("client-")]
    others = {package for extra in apart for package in named.pop(extra)}
    runtime = pins("requirements/runtime.txt").keys()
    assert {package for packages in named.values() for package in packages} <= runtime
    assert runtime <= pins("requirements/dev.txt").keys()
    assert runtime.isdisjoint(others)
    assert others <= pins("requirements/dev.txt").keys()


def test_the_locks_of_the_project_are_among_those_looked_through() -> None:
    assert {"requirements/bootstrap.txt", "requirements/dev.txt", "requirements/runtime.txt"} <= FILES.keys()


PLANTED = [
    ("dev.txt", "--index-url https://mirror.example/simple\nrich==15.0.0"),
    ("dev.txt", "-i mirror/simple"),
    ("dev.txt", "--find-links wheels"),
    ("dev.txt", "rich @ https://files.example/rich.whl"),
    ("dev.txt", "# from mirror.example.com"),
    ("dev.txt", "# cached at mirror:8080"),
    ("package-lock.json", '{"packages": {"a": {"resolved": "https://registry.example/a.tgz"}}}'),
    ("package-lock.json", '{"packages": {"a": {"funding": [{"url": "https://a.example"}]}}}'),
    (".npmrc", "registry=http://localhost:4873/"),
    (
        "pom.xml",
        "<project><repositories><repository><url>https://m.example</url></repository></repositories></project>",
    ),
    ("go.mod", "module trimq\nrequire github.com/twmb/franz-go v1.20.0 // https://proxy.example"),
    ("Cargo.lock", 'source = "registry+https://index.example/crates"'),
    ("uv.lock", 'source = { registry = "https://index.example/simple" }'),
]


@pytest.mark.parametrize(("name", "text"), PLANTED)
def test_a_planted_host_is_found(name: str, text: str) -> None:
    assert hosts_in(name, text)


HARMLESS = [
    ("dev.txt", "zope.interface==7.2 ; python_full_version < '3.12' \\\n    --hash=sha256:" + "0123456789abcdef" * 4),
    ("dev.txt", "trove-classifiers==2026.9.21.13\n# via\n#   -r requirements/dev.in\n#   trimq (pyproject.toml)"),
    ("go.sum", "github.com/twmb/franz-go v1.20.0 h1:abc/def=\ngithub.com/twmb/franz-go v1.20.0/go.mod h1:xyz="),
    (
        "go.mod",
        "module trimq\nrequire github.com/twmb/franz-go v1.20.0\nrequire (\n\tgolang.org/x/crypto v0.1.0\n)",
    ),
    ("pom.xml", '<project xmlns="http://maven.apache.org/POM/4.0.0"><groupId>org.apache.kafka</groupId></project>'),
    ("package-lock.json", '{"packages": {"node_modules/kafkajs": {"version": "2.2.4", "integrity": "sha512-aGk="}}}'),
]


@pytest.mark.parametrize(("name", "text"), HARMLESS)
def test_a_name_is_not_taken_for_a_host(name: str, text: str) -> None:
    assert hosts_in(name, text) == []


def test_a_lock_file_is_found_in_any_folder_that_is_ours(tmp_path: Path) -> None:
    for name in ("tests/compat/node/package-lock.json", "tests/node_modules/a/package-lock.json", "requirements/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    found = {str(path.relative_to(tmp_path)) for path in lock_files(tmp_path)}
    assert found == {"tests/compat/node/package-lock.json", "requirements/a.txt"}
