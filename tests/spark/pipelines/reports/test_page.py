from __future__ import annotations

import re
import time

import pytest

from pyspark_trimq.pipelines.reports.outcome import Outcome
from pyspark_trimq.pipelines.reports.page import html_page


def test_the_time_of_a_report_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    try:
        assert re.search(r"TriMQ pipeline · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d CET<", html_page(Outcome("audit", {})))
    finally:
        monkeypatch.undo()
        time.tzset()
