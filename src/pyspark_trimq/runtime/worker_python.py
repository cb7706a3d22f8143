"""Which Python Spark's local workers run on: this very one, started so that it does not compile PySpark each time."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path

from pyspark_trimq.runtime.launcher_scripts import write_launcher

# Spark puts a zip with the sources of PySpark in front of everything, and one of its jars. Python compiles what is in
# a zip at every start, half a second each time; the installed modules are the same ones. What forks workers is ours
# also where Spark does not ask which it should be. Spark tells tasks, but not what plans a stream, that numpy is to
# have one thread: each further one keeps a core busy, waiting, for a tenth of a second.
_LAUNCHER = """#!/bin/sh
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        {home}/python/lib/*.zip | {home}/jars/*) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
OMP_NUM_THREADS=${{OMP_NUM_THREADS:-1}}
export OMP_NUM_THREADS
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m pyspark_trimq.worker_daemon "$@"
fi
exec {python} "$@"
"""


def find_worker_python() -> str:
    """What PYSPARK_PYTHON has to name where Spark runs on this machine."""
    import pyspark

    home = Path(pyspark.__file__).parent
    is_installed = str(home.parent) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    if os.name != "posix" or "SPARK_HOME" in os.environ or not is_installed:
        return sys.executable
    launcher = make_launcher(home, sys.executable, Path(tempfile.gettempdir()) / f"trimq-python-{os.getuid()}")
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable  # no: nothing may be run from there


def make_launcher(home: Path, python: str, folder: Path) -> Path:
    """A program that is `python` without what Spark, whose home it is, puts in front of the installed modules."""
    text = _LAUNCHER.format(home=shlex.quote(str(home)), python=shlex.quote(python))
    path = folder / f"python-{sha256(text.encode()).hexdigest()[:16]}"
    write_launcher(path, text)
    return path
