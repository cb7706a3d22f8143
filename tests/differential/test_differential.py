"""A minute of generated sequences per protocol: each answer is that of the other broker, or the protocol's page says
why it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from differential.protocols import FIRST_SEQUENCES, NAMES, load
from differential.runs import Comparison

PROJECT = Path(__file__).parent.parent.parent
HEADING = "## Differences in generated sequences"
SECONDS = 60


def reasons(page: str) -> dict[str, str]:
    """Reason for each difference that stays, by its name in the table of the page."""
    table = page.partition(HEADING)[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_a_reason_for_each_difference_that_stays_and_no_other(name: str) -> None:
    """Protocols may share a page, and differences."""
    page = load(name).page
    protocols = [load(each) for each in NAMES]
    names = {each.name for protocol in protocols if protocol.page == page for each in protocol.explained}
    assert set(reasons((PROJECT / page).read_text(encoding="utf-8"))) == names


@pytest.mark.external
@pytest.mark.foreign_client  # a broker with threads of its own
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FIRST_SEQUENCES)
def test_generated_sequences_are_answered_as_by_the_other_broker(name: str, tmp_path: Path) -> None:
    protocol = load(name)
    with protocol.brokers(tmp_path) as (ours, theirs):
        comparison = Comparison(ours, theirs, protocol.explained)
        report = comparison.run(protocol.generate, first_seed=0, seconds=SECONDS, max_sequences=FIRST_SEQUENCES[name])
        comparison.close()
    print(report)
    assert report.sequences > 0
    assert not report.findings, f"\n{report}"
