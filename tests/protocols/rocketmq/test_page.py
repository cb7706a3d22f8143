"""docs/rocketmq.md lists every request code with its name."""

from __future__ import annotations

import re
from pathlib import Path

from trimq.protocols.rocketmq.wire.codes import RequestCode

PAGE = (Path(__file__).parents[3] / "docs" / "rocketmq.md").read_text()


def test_the_page_lists_every_request_code_once_with_its_name() -> None:
    table = PAGE.partition("\n## Request codes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", table, re.MULTILINE)
    assert sorted((int(code), name) for code, name in rows) == sorted((code.value, code.name) for code in RequestCode)
