"""Every figure of `make bench-spark` is measured with tiny sizes. The values are ignored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark import main
from bench.spark_processes import tree_cpu_s

PROJECT = Path(__file__).parent.parent
FIELDS = {"figure", "value", "unit", "connector", "ratio", "goal", "met", "note"}


@pytest.mark.external
@pytest.mark.timeout(280)
def test_every_figure_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.spark", "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(figures) == 2 * 4 * 2 + 2
    assert all(figure.keys() == FIELDS for figure in figures)


def test_processor_time_counts_children() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\ninput()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    parent = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"done\n"
    assert tree_cpu_s(parent.pid) > 0.1
    parent.communicate(b"\n")


def test_help_is_printed() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
