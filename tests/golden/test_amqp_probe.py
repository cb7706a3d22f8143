"""Golden probe for AMQP: the same requests as to RabbitMQ. docs/amqp.md explains each difference; its table holds
exactly the lines that differ, so that it can only shrink."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.broker import running

PROJECT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "amqp"
PAGE = PROJECT / "docs" / "amqp.md"
HEADING = "## Compared with a genuine broker"
# The probe takes about a minute and a half on an idle machine: it waits for time-outs.
PROBE_S = 280

# The parts of a reply text that clients evaluate: its code, its name, and the method.
REASON = re.compile(r"^((?:connection|channel) \d+ [A-Z_]+) - .* (\[\d+\.\d+\])$")


def read_observations(printed: str) -> dict[str, str]:
    """Observations by name; reply texts are reduced to the parts that clients evaluate."""
    found = dict(re.findall(r"^([^{:]+(?:\{.*?\})?): (.*)$", printed, re.MULTILINE))
    return {name: REASON.sub(r"\1 \2", value) for name, value in found.items()}


def differences(wanted: dict[str, str], got: dict[str, str]) -> dict[str, str]:
    """Expected and observed value, by the name of the line."""
    missing = "(no such line)"
    return {
        name: f"  want {wanted.get(name, missing)}\n  got  {got.get(name, missing)}"
        for name in [*wanted, *(name for name in got if name not in wanted)]
        if wanted.get(name) != got.get(name)
    }


def explained_lines(page: str) -> dict[str, str]:
    """Reason in the document for each line that differs; a row of its table may name several lines."""
    table = page.partition(HEADING)[2].partition("\n## ")[0]
    reasons: dict[str, str] = {}
    for names, reason in re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in reasons, f"{name} is twice in the table"
            reasons[name] = reason.strip()
    return reasons


def faults(differing: dict[str, str], explained: dict[str, str]) -> list[str]:
    """Differences without a reason, and reasons without a difference."""
    unexplained = [f"{name}\n{differing[name]}" for name in differing if not explained.get(name)]
    settled = [f"{name} no longer differs: take it off the table" for name in explained if name not in differing]
    return unexplained + settled


@pytest.mark.timeout(300)
def test_every_answer_that_differs_from_rabbitmq_is_explained_and_no_other(tmp_path: Path) -> None:
    with running(tmp_path, ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        host, _, port = addresses["amqp"].rpartition(":")
        done = subprocess.run(
            # Without -B it would leave compiled files beside the golden ones.
            [sys.executable, "-B", "-W", "ignore", "probe.py", host, port],
            cwd=GOLDEN,
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
        )
    assert not done.stderr
    wanted = read_observations((GOLDEN / "rabbitmq-4.3.6.txt").read_text())
    differing = differences(wanted, read_observations(done.stdout))
    page = PAGE.read_text()
    assert "\n".join(faults(differing, explained_lines(page))) == ""
    assert f"{len(wanted) - len(differing)} of {len(wanted)} observations as recorded.\n" in page


# --- the check itself, on planted output ------------------------------------------------------------------------------

WANTED = "a.one: channel 404 NOT_FOUND - no queue 'x' [50.10]\na.two: ok {'n': 1}\na.three: [1, 2]\n"


@pytest.mark.parametrize(
    ("printed", "differing"),
    [
        (WANTED, []),
        (WANTED.replace("no queue 'x'", "none of that name"), []),
        (WANTED.replace("404 NOT_FOUND", "403 ACCESS_REFUSED"), ["a.one"]),
        (WANTED.replace("[50.10]", "[50.20]"), ["a.one"]),
        (WANTED.replace("1}", "2}"), ["a.two"]),
        (WANTED.partition("a.three")[0], ["a.three"]),
        (WANTED + "a.PROBE_FAILED: TimeoutError\n", ["a.PROBE_FAILED"]),
    ],
)
def test_only_the_parts_that_clients_evaluate_are_compared(printed: str, differing: list[str]) -> None:
    assert list(differences(read_observations(WANTED), read_observations(printed))) == differing


@pytest.mark.parametrize(
    ("row", "complaints"),
    [
        ("| `a.one` `a.two` | a reason |", []),
        ("| `a.one` | a reason |", ["a.two\n2"]),
        ("| `a.one` `a.two` `a.three` | a reason |", ["a.three no longer differs: take it off the table"]),
        ("| `a.one` `a.two` |  |", ["a.one\n1", "a.two\n2"]),
    ],
)
def test_a_difference_needs_a_reason_and_a_reason_a_difference(row: str, complaints: list[str]) -> None:
    explained = explained_lines(f"| `x.before` | no |\n{HEADING}\n\n{row}\n\n## After\n| `x.after` | no |\n")
    assert faults({"a.one": "1", "a.two": "2"}, explained) == complaints
