"""Golden probe for Kafka: the same requests as to Apache Kafka. docs/kafka.md explains each difference; its table holds
exactly the lines that differ, so that it can only shrink."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.broker import running

PROJECT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "kafka"
PAGE = PROJECT / "docs" / "kafka.md"
HEADING = "## Compared with a genuine broker"
# The probe takes about a minute on an idle machine.
PROBE_S = 200


class Comparison(NamedTuple):
    """`differing`: expected and observed value, by the name of the line. `summary`: the probe's last line."""

    differing: dict[str, str]
    summary: str


def read_comparison(printed: str) -> Comparison:
    """Parses the output of `probe.py --check`."""
    found = re.findall(r"^(\S+)\n(  want .*\n  got  .*)$", printed, re.MULTILINE)
    summary = re.search(r"^\d+ of \d+ observations as recorded$", printed, re.MULTILINE)
    assert summary is not None, f"the probe did not reach its end:\n{printed}"
    return Comparison(dict(found), summary.group())


def explained_lines(page: str) -> dict[str, str]:
    """Reason in the document for each line that differs; a row of its table may name several lines."""
    table = page.partition(HEADING)[2].partition("\n## ")[0]
    reasons: dict[str, str] = {}
    for names, reason in re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in reasons, f"{name} is twice in the table"
            reasons[name] = reason.strip()
    return reasons


def faults(comparison: Comparison, explained: dict[str, str]) -> list[str]:
    """Differences without a reason, and reasons without a difference."""
    differing = comparison.differing
    unexplained = [f"{name}\n{differing[name]}" for name in differing if not explained.get(name)]
    settled = [f"{name} no longer differs: take it off the table" for name in explained if name not in differing]
    return unexplained + settled


@pytest.mark.timeout(240)
def test_every_answer_that_differs_from_kafka_is_explained_and_no_other(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        done = subprocess.run(
            # Without -B it would leave compiled files beside the golden ones.
            [sys.executable, "-B", "probe.py", addresses["kafka"], "--check", "kafka-4.3.1.txt"],
            cwd=GOLDEN,
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
        )
    assert not done.stderr
    comparison = read_comparison(done.stdout)
    page = PAGE.read_text()
    assert "\n".join(faults(comparison, explained_lines(page))) == ""
    assert f"{comparison.summary}.\n" in page


# --- the check itself, on planted output ------------------------------------------------------------------------------

PLANTED_OUTPUT = (
    "edge.one\n  want a\n  got  b\nedge.two\n  want 1\n  got  (no such line)\n7 of 9 observations as recorded\n"
)
PLANTED_PAGE = (
    f"| `x.before` | no |\n{HEADING}\n\n| lines | reason |\n|---|---|\n| ROW |\n\n## After\n| `x.after` | no |\n"
)


@pytest.mark.parametrize(
    ("row", "complaints"),
    [
        ("`edge.one` `edge.two` | no such API", []),
        ("`edge.one` | no such API", ["edge.two\n  want 1\n  got  (no such line)"]),
        ("`edge.one` `edge.two` `edge.three` | no such API", ["edge.three no longer differs: take it off the table"]),
        (
            "`edge.one` `edge.two` | ",
            ["edge.one\n  want a\n  got  b", "edge.two\n  want 1\n  got  (no such line)"],
        ),
    ],
    ids=["explained", "not in the table", "no longer differs", "no reason"],
)
def test_a_difference_needs_a_reason_and_a_reason_a_difference(row: str, complaints: list[str]) -> None:
    explained = explained_lines(PLANTED_PAGE.replace("ROW", row))
    assert faults(read_comparison(PLANTED_OUTPUT), explained) == complaints


def test_a_probe_that_broke_off_is_found() -> None:
    with pytest.raises(AssertionError, match="did not reach its end"):
        read_comparison(PLANTED_OUTPUT.rpartition("7 of")[0])
