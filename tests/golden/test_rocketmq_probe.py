"""Golden probe for RocketMQ: the same requests as to Apache RocketMQ, in the sections that are served. docs/rocketmq.md
explains each difference; its table holds exactly the lines that differ."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tools.broker import running

PROJECT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "rocketmq"
PAGE = PROJECT / "docs" / "rocketmq.md"
HEADING = "## Compared with a genuine broker"
SECTIONS = (
    *("query", "transactions", "retry", "delays", "longpoll", "frame", "sql92", "request_reply", "namesrv"),
    *("sending", "unit", "pulling", "offsets", "groups", "locks", "popping", "admin"),
    *("grpc_receive", "grpc_route", "grpc_client", "grpc_send", "grpc_fifo", "grpc_transaction"),
)
FLAGS = (
    *("--rocketmq-listen", "127.0.0.1:0", "--rocketmq-grpc-listen", "127.0.0.1:0"),
    *("--rocketmq-transaction-timeout-ms", "3000", "--rocketmq-transaction-check-interval-ms", "3000"),
    *("--rocketmq-transaction-check-max", "3", "--rocketmq-broker-name", "broker-a"),
)
# Length of the list of differences; it may only shrink. Lower this number after removing a difference.
MAX_EXPLAINED = 34
PROBE_S = 200
PAIRS = 50
NO_LINE = "(no such line)"


def lines_of(printed: str) -> dict[str, str]:
    """Observations by the name of the line, without remarks."""
    pairs = (line.partition(": ") for line in printed.splitlines() if line)
    return {name: value for name, _, value in pairs if not name.endswith(".remark")}


def differing(wanted: dict[str, str], got: dict[str, str]) -> dict[str, str]:
    both = {name: (wanted.get(name, NO_LINE), got.get(name, NO_LINE)) for name in {**wanted, **got}}
    return {name: f"  want {want}\n  got  {found}" for name, (want, found) in both.items() if want != found}


def explained_lines(page: str) -> set[str]:
    table = page.partition(HEADING)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| .+ \|$", table, re.MULTILINE)
    return {name for names in rows for name in re.findall(r"`([^`]+)`", names)}


def faults(found: dict[str, str], explained: set[str]) -> list[str]:
    unexplained = [f"{name}\n{text}" for name, text in found.items() if name not in explained]
    settled = [f"{name} no longer differs: take it off the table" for name in sorted(explained - found.keys())]
    return unexplained + settled


def free_port() -> int:
    """Free port with the second port below it free too: the probe uses both."""
    for _ in range(PAIRS):
        with socket.socket() as upper, socket.socket() as lower, suppress(OSError):
            upper.bind(("127.0.0.1", 0))
            port: int = upper.getsockname()[1]
            lower.bind(("127.0.0.1", port - 2))
            return port
    raise AssertionError("no free pair of ports")


def probe_section(addresses: Mapping[str, str], section: str) -> dict[str, str]:
    names = addresses["rocketmq"]
    done = subprocess.run(
        [sys.executable, "-B", "probe.py", "--namesrv", names, "--grpc", addresses["rocketmq_grpc"], section],
        cwd=GOLDEN,
        capture_output=True,
        text=True,
        timeout=PROBE_S,
        check=False,
    )
    return {name: value for name, value in lines_of(done.stdout).items() if name.startswith(f"{section}.")}


def probe(addresses: Mapping[str, str]) -> dict[str, str]:
    """Runs a few sections at the same time, since they mostly wait. The first one runs alone, at the beginning of the
    log, where no half message may be."""
    found = probe_section(addresses, SECTIONS[0])
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda section: probe_section(addresses, section), SECTIONS[1:]):
            found |= each
    return found


@pytest.mark.timeout(240)
def test_every_answer_that_differs_from_rocketmq_is_explained_and_no_other(tmp_path: Path) -> None:
    with running(tmp_path, [*FLAGS, "--rocketmq-broker-listen", f"127.0.0.1:{free_port()}"]) as addresses:
        got = probe(addresses)
    golden = lines_of((GOLDEN / "rocketmq-5.5.0.txt").read_text())
    wanted = {name: value for name, value in golden.items() if name.partition(".")[0] in SECTIONS}
    assert "\n".join(faults(differing(wanted, got), explained_lines(PAGE.read_text()))) == ""


def test_the_list_of_lines_that_differ_only_grows_shorter() -> None:
    assert len(explained_lines(PAGE.read_text())) <= MAX_EXPLAINED


# --- the check itself, on planted output ------------------------------------------------------------------------------


def test_a_planted_difference_is_found() -> None:
    wanted = lines_of("a.one: 1\na.two: 2\na.two.remark: why\na.three: 3\n")
    got = lines_of("a.one: 1\na.two: 9\na.two.remark: because\na.four: 4\n")
    found = differing(wanted, got)
    assert set(found) == {"a.two", "a.three", "a.four"}
    page = f"{HEADING}\n| line | why |\n|---|---|\n| `a.two` `a.three` | because |\n| `a.one` | no |\n"
    assert faults(found, explained_lines(page)) == [
        f"a.four\n  want {NO_LINE}\n  got  4",
        "a.one no longer differs: take it off the table",
    ]
