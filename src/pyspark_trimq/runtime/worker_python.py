"""Finds the Python for Spark's local workers: this interpreter, started without compiling PySpark each time."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path

from pyspark_trimq.runtime.launcher_scripts import write_launcher

# The launcher does three things:
# - It drops PySpark's zip and a jar from PYTHONPATH, where Spark puts both at the front. Python compiles the modules in
#   a zip at every start, which takes half a second. The installed modules are identical.
# - It runs our worker daemon also where Spark ignores the setting spark.python.daemon.module.
# - It limits numpy to one thread. Spark does so in tasks, but not in the process that plans a stream. There each
#   further thread keeps a core busy for a tenth of a second while it waits.
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
    """Returns the value for PYSPARK_PYTHON of a local session."""
    import pyspark

    home = Path(pyspark.__file__).parent
    is_installed = str(home.parent) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    if os.name != "posix" or "SPARK_HOME" in os.environ or not is_installed:
        return sys.executable
    launcher = make_launcher(home, sys.executable, Path(tempfile.gettempdir()) / f"trimq-python-{os.getuid()}")
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable  # False on a noexec mount


def make_launcher(home: Path, python: str, folder: Path) -> Path:
    """Creates a script in `folder` that runs `python` without the entries that Spark in `home` adds to PYTHONPATH."""
    text = _LAUNCHER.format(home=shlex.quote(str(home)), python=shlex.quote(python))
    path = folder / f"python-{sha256(text.encode()).hexdigest()[:16]}"
    write_launcher(path, text)
    return path
