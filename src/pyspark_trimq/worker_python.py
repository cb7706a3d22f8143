"""Which Python Spark's local workers run on: this very one, started so that it does not compile PySpark each time."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
import tempfile
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

from pyspark_trimq.launchers import write_launcher

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
{keep}if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m pyspark_trimq.worker_daemon "$@"
fi
exec {python} "$@"
"""

# What plans a stream is started for each query, and takes twice as long if it has to compile all that it imports.
_KEEP_COMPILED = """unset PYTHONDONTWRITEBYTECODE
PYTHONPYCACHEPREFIX=${{PYTHONPYCACHEPREFIX:-{folder}}}
export PYTHONPYCACHEPREFIX
"""

_OF_EACH_QUERY = Path("sql", "streaming", "python_streaming_source_runner.py")


def find_worker_python() -> str:
    """What PYSPARK_PYTHON has to name where Spark runs on this machine."""
    import pyspark

    home = Path(pyspark.__file__).parent
    is_installed = str(home.parent) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    if os.name != "posix" or "SPARK_HOME" in os.environ or not is_installed:
        return sys.executable
    folder = Path(tempfile.gettempdir()) / f"trimq-python-{os.getuid()}"
    is_kept = "PYTHONPYCACHEPREFIX" in os.environ or is_kept_compiled(home / _OF_EACH_QUERY)
    launcher = make_launcher(home, sys.executable, folder, None if is_kept else folder / name_of(home))
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable  # no: nothing may be run from there


def is_kept_compiled(module: Path) -> bool:
    """Whether Python finds it compiled, or will keep it when it has compiled it."""
    compiled = Path(cache_from_source(str(module)))
    return compiled.exists() or (not sys.dont_write_bytecode and os.access(compiled.parent.parent, os.W_OK))


def name_of(home: Path) -> str:
    """Of this very installation: what was compiled of another one at the same place would be taken for it."""
    found = home.stat()
    return f"compiled-{found.st_ino}-{found.st_ctime_ns}"


def make_launcher(home: Path, python: str, folder: Path, compiled: Path | None = None) -> Path:
    """A program that is `python` without what Spark, whose home it is, puts in front of the installed modules. What
    Python compiles is kept in `compiled`; None: beside them."""
    keep = "" if compiled is None else _KEEP_COMPILED.format(folder=shlex.quote(str(compiled)))
    text = _LAUNCHER.format(home=shlex.quote(str(home)), python=shlex.quote(python), keep=keep)
    path = folder / f"python-{sha256(text.encode()).hexdigest()[:16]}"
    write_launcher(path, text)
    return path
