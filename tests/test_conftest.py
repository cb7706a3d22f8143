"""The checks of conftest.py, on planted tests that violate them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

PROJECT = Path(__file__).parent.parent
HEAD = "import asyncio, socket, threading, warnings\nimport pytest\n\n"

SKIPS = {
    "mark": "@pytest.mark.skip(reason='no kcat')\ndef test_it(): pass",
    "call": "def test_it(): pytest.skip('no kcat')",
    "fixture": "@pytest.fixture\ndef kcat(): pytest.skip('no kcat')\n\ndef test_it(kcat): pass",
    "module": "pytest.skip('no kcat', allow_module_level=True)",
    "expected_failure": "@pytest.mark.xfail(reason='no kcat')\ndef test_it(): assert False",
    "vain_expectation": "@pytest.mark.xfail(reason='no kcat', strict=False)\ndef test_it(): pass",
}

LEAKS = {
    "kept_socket": ("socket left open", "kept = []\ndef test_it(): kept.append(socket.socket())"),
    "dropped_socket": ("unclosed <socket", "def test_it(): socket.socket()"),
    "thread": (
        "thread left open",
        "def test_it(): threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    "kept_task": (
        "asyncio task left open",
        """
async def wait(): await asyncio.Event().wait()
loop = asyncio.new_event_loop()
kept = []
def test_it(): kept.append(loop.create_task(wait()))
""",
    ),
    "dropped_task": (
        "Task was destroyed but it is pending",
        """
async def wait(): await asyncio.get_running_loop().create_future()
async def drop():
    asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
def test_it():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(drop())
    loop.close()
""",
    ),
    "warning": ("DeprecationWarning", "def test_it(): warnings.warn('old', DeprecationWarning)"),
}

CLEAN = {
    "closed": "def test_it():\n    with socket.socket(): pass",
    "shared_by_a_module": """
@pytest.fixture(scope='module')
def shared():
    with socket.socket() as opened: yield opened
def test_it(shared): pass
""",
    "closed_when_dropped": """
class Client:
    def __init__(self): self.socket = socket.socket()
    def __del__(self): self.socket.close()
@pytest.fixture
def client(): return Client()
def test_it(client): pass
""",
    "ends_a_moment_later": "def test_it(): threading.Timer(0.1, lambda: None).start()",
}


def run_planted(folder: Path, sources: dict[str, str], *flags: str, **environment: str) -> tuple[dict[str, str], str]:
    """Runs each source as a test module under the project's conftest and settings. Returns the failure of each ("" for
    none), and the output."""
    shutil.copy(PROJECT / "tests" / "conftest.py", folder)
    shutil.copy(PROJECT / "pyproject.toml", folder)
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(HEAD + source)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRIMQ_"))}
    path = os.pathsep.join([str(PROJECT / "src"), inherited.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=report.xml", *flags, str(folder)],
        cwd=folder,
        env=inherited | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = dict.fromkeys(sources, "")
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        name = (case.get("classname") or case.get("name") or "").removeprefix("test_")
        wrong[name] += "".join(
            ElementTree.tostring(found, "unicode", "text") for found in case if found.tag != "skipped"
        )
    assert done.returncode == int(any(wrong.values())), done.stdout
    return wrong, done.stdout


def test_a_skip_fails_where_all_is_required(tmp_path: Path) -> None:
    wrong, _ = run_planted(
        tmp_path, SKIPS | {"passing": "def test_it(): pass"}, "--continue-on-collection-errors", TRIMQ_REQUIRE_ALL="1"
    )
    assert wrong.pop("passing") == ""
    for kind, text in wrong.items():
        assert "under TRIMQ_REQUIRE_ALL=1: " in text, kind
        assert "no kcat" in text, kind


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    wrong, _ = run_planted(tmp_path, SKIPS)
    assert set(wrong.values()) == {""}


def test_a_test_that_leaks_or_warns_fails(tmp_path: Path) -> None:
    sources = {kind: source for kind, (_, source) in LEAKS.items()}
    wrong, output = run_planted(tmp_path, sources, "-o", "leak_grace_s=0.1")
    assert {kind: complaint in wrong[kind] for kind, (complaint, _) in LEAKS.items()} == dict.fromkeys(LEAKS, True)
    assert "repeat this order with: --randomly-seed=" in output


def test_a_test_that_cleans_up_passes(tmp_path: Path) -> None:
    wrong, _ = run_planted(tmp_path, CLEAN)
    assert wrong == dict.fromkeys(CLEAN, "")
