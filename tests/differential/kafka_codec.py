"""The independent Kafka codec of the golden probes, `tests/golden/kafka/kwire.py`, loaded by its path: it is not a
package, and nothing may be written beside it."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

_SOURCE = Path(__file__).parent.parent / "golden" / "kafka" / "kwire.py"


def _load() -> Any:
    module = ModuleType("kwire")
    module.__file__ = str(_SOURCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it does not close the file of its messages
        exec(compile(_SOURCE.read_text(encoding="utf-8"), _SOURCE, "exec"), module.__dict__)
    return module


kwire: Any = _load()
