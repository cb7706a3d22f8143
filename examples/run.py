"""Runs one example against a broker that it starts on free ports: `python -m examples.run e08_send_and_wait`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.broker import BrokerFailed, as_environment, running

FOLDER = Path(__file__).parent


def examples() -> dict[str, Path]:
    """Returns the examples by name: files that begin with e and a number."""
    return {path.stem: path for path in sorted(FOLDER.glob("e[0-9]*.py"))}


def run(name: str) -> int:
    """Runs the example and returns its exit code; 0 means that its checks passed."""
    with tempfile.TemporaryDirectory(prefix="trimq-example-") as folder, running(Path(folder)) as addresses:
        command = [sys.executable, "-m", f"examples.{name}"]
        # RocketMQ's C++ client writes its log into the user's home folder.
        environment = os.environ | as_environment(addresses) | {"HOME": folder}
        return subprocess.run(command, cwd=FOLDER.parent, env=environment, check=False).returncode


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in examples():
        print(f"Name one example, as in `make example NAME={next(iter(examples()), '')}`:", file=sys.stderr)
        for name, path in examples().items():
            print(f"  {name:<24} {_summary(path)}", file=sys.stderr)
        return 2
    try:
        return run(words[0])
    except BrokerFailed as failure:
        print(failure, file=sys.stderr)
        return 1


def _summary(path: Path) -> str:
    return path.read_text().partition('"""')[2].partition("\n")[0].partition('"""')[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
