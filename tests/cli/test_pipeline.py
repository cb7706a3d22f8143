"""`trimq pipeline`: what it takes, and what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trimq.cli.main import main
from trimq.cli.pipeline import PIPELINES


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_tells_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", name, "--help"])
    told = capsys.readouterr().out
    for flag in ("--master", "--conf", "--once", "--continuous", "--checkpoint", "--bootstrap", "--report", "--json"):
        assert flag in told


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["archive", "orders"], "--lake"),
        (["archive", "orders", "--lake", "x", "--rows-per-batch", "0"], "expected a whole number above 0"),
        (["archive", "orders", "--lake", "x", "--conf", "nothing"], "--conf: expected NAME=VALUE, got 'nothing'"),
        (["bake"], "invalid choice: 'bake'"),
        (["audit", "orders", "--once", "--continuous"], "not allowed with"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_without_spark_it_says_what_to_install(tmp_path: Path) -> None:
    """As on a machine where only the broker is installed: nothing but its own source and no PySpark."""
    program = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "sys.path[:] = [path for path in sys.path if 'site-packages' not in path] + sys.argv[1:2]\n"
        "from trimq.cli import pipeline; from trimq.cli.failure import CommandFailure\n"
        "from trimq.cli.main import main; sys.exit(main(['pipeline', 'audit', 'orders']))\n"
    )
    bare = tmp_path / "bare"
    bare.mkdir()
    import msgspec

    (bare / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    source = str(Path(__file__).parent.parent.parent / "src")
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {source!r})\n{program}", str(bare)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "trimq: pipelines need pyspark, which is not installed: pip install 'trimq[spark]'\n",
    )
