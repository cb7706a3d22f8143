"""How a pipeline says that it was understood but could not be done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from pyspark_trimq.mistakes import Lost, Mistake, Unreachable
from trimq.errors import StartMistake


class PipelineFailure(Exception):
    """A pipeline failed. Its text is one clear sentence; the checkpoint is as it was after the last whole batch."""


# As the operating system, SQLite and Java say it.
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large|database or disk is full")


def sentence_of(error: BaseException) -> str:
    """What a person needs of an error that came out of Spark: the innermost cause, in one line."""
    text = str(error)
    if (full := _FULL.search(text)) is not None:
        return (
            f"there is no room on a disk ({full[0]}): make some where the lake, the checkpoint and Spark's temporary "
            "files are, and run it again; nothing is lost"
        )
    # A failure inside a Python worker or a Python callback arrives as a traceback within a traceback.
    causes = re.findall(
        r"^(?:[A-Za-z_][\w.]*\.)?(\w*(?:Error|Exception|Failure|Mistake|Lost|Unreachable|Refused)): (.+)$",
        text,
        re.MULTILINE,
    )
    own = [reason for name, reason in causes if name not in ("PySparkRuntimeError", "PythonException", "Py4JJavaError")]
    sentence = own[-1] if own else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return sentence.strip().removesuffix(".")


@contextmanager
def told_plainly() -> Iterator[None]:
    """Around whatever may fail inside Spark, the source or the sink: it fails with a sentence."""
    try:
        yield
    except PySparkException as error:
        raise PipelineFailure(sentence_of(error)) from error
    except Mistake as error:
        raise StartMistake(str(error)) from error
    except (Lost, Unreachable) as error:
        raise PipelineFailure(str(error)) from error
    except Exception as error:
        if _FULL.search(str(error)) is None:
            raise
        raise PipelineFailure(sentence_of(error)) from error
