"""Makes sure that the Python processes which Spark starts for a session can import this package: chooses the driver's
Python where the user chose none, and reports a Python without this package before a query fails in Scala."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.runtime.worker_python import find_worker_python

if TYPE_CHECKING:
    from pyspark import SparkContext

_SETTING = "spark.pyspark.python"
_PROBE = "import sys, pyspark_trimq, pyarrow; print('%d.%d' % sys.version_info[:2])"
_PROBE_S = 60.0


def prepare_python(spark: Any) -> None:
    """Sets the Python of the session, or raises Mistake if the one that was chosen cannot run the data source. A Spark
    Connect session starts its processes elsewhere, and is left alone."""
    context: SparkContext | None = getattr(spark, "_sc", None)
    if context is None:
        return
    configured = context.getConf().get(_SETTING, None)
    is_chosen = "PYSPARK_PYTHON" in os.environ or configured is not None
    if "PYSPARK_PYTHON" not in os.environ and configured is not None:
        context.pythonExec = configured  # only spark-submit reads the setting
    elif not is_chosen and (context.master or "").startswith("local"):
        context.pythonExec = find_worker_python()
    if context.pythonExec not in (sys.executable, find_worker_python()):
        check_python(context.pythonExec, is_chosen)


def check_python(python: str, is_chosen: bool) -> None:
    """Raises Mistake unless this Python can import what the data source needs and has the version of this one. A path
    that exists only on other machines is not checked."""
    path = shutil.which(python)
    if path is None:
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_installed_for_spark())}
    done = subprocess.run(
        [path, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=_PROBE_S, env=environment
    )
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = "PYSPARK_PYTHON or spark.pyspark.python" if is_chosen else "Spark's default, since PYSPARK_PYTHON is unset"
    advice = f"set PYSPARK_PYTHON={sys.executable} before the session starts, or pip install 'trimq[spark]' there"
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Mistake(f"Spark's workers run {path} ({source}), which cannot run format('trimq') ({reason}): {advice}")
    found = done.stdout.strip()
    if found != own:
        raise Mistake(f"Spark's workers run {path} ({source}), a Python {found}, but the driver's is {own}: {advice}")


def _installed_for_spark() -> list[str]:
    """Returns the import path that Spark gives its workers besides their own: PYTHONPATH of the driver,
    and PySpark itself."""
    import pyspark

    libraries = Path(pyspark.__file__).parent / "python" / "lib"
    zips = map(str, sorted(libraries.glob("*.zip")))
    return [*zips, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
