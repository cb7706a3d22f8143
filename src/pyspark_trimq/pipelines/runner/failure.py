"""Turns errors of Spark, Java and the broker into one plain sentence for the user of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pyspark_trimq.mistakes import Lost, Mistake, Unreachable
from trimq.errors import StartupError


class PipelineFailure(Exception):
    """A pipeline failed while running. The text is one sentence; the checkpoint is at the last complete batch."""


# Texts of the operating system, SQLite and Java.
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large|database or disk is full")


# Heap of Java, and Arrow's memory outside the heap.
_NO_MEMORY = re.compile(
    r"java\.lang\.OutOfMemoryError|Java heap space|GC overhead limit exceeded|arrow\.memory\.OutOfMemoryException"
)
# After a fatal error Spark still responds, but executes nothing any more.
_SPARK_STOPPED = re.compile(
    r'Cannot invoke "[^"]*DAGScheduler|stopped SparkContext|SparkContext (?:was|has been) shut ?down'
)
_JVM_GONE = re.compile(r"Answer from Java|does not exist in the JVM")
_READ_LESS_ADVICE = "read less at a time (--rows-per-batch, --option maxBytesPerTrigger=N)"
_JAVA_IS_GONE = (
    "Spark's Java process has ended, probably out of memory: give it more (--conf spark.driver.memory=4g) or "
    f"{_READ_LESS_ADVICE}, and run it again; committed batches stay, nothing is lost"
)


def plain_message(error: BaseException) -> str:
    """Returns the innermost cause of an error from Spark, in one line."""
    text = str(error)
    if (full := _DISK_FULL.search(text)) is not None:
        return (
            f"a disk is full ({full[0]}): free space for the lake, the checkpoint and Spark's temporary files, and run "
            "it again; nothing is lost"
        )
    if _NO_MEMORY.search(text) is not None:
        return (
            "Spark's Java process has too little memory for this: give it more (--conf spark.driver.memory=4g) or "
            f"{_READ_LESS_ADVICE}, and run it again; nothing is lost"
        )
    if _SPARK_STOPPED.search(text) is not None:
        return _JAVA_IS_GONE
    # An error in a Python worker or callback is a traceback inside a traceback.
    causes = re.findall(
        r"^(?:[A-Za-z_][\w.]*\.)?(\w*(?:Error|Exception|Failure|Mistake|Lost|Unreachable|Refused)): (.+)$",
        text,
        re.MULTILINE,
    )
    own = [reason for name, reason in causes if name not in ("PySparkRuntimeError", "PythonException", "Py4JJavaError")]
    sentence = own[-1] if own else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return sentence.strip().removesuffix(".")


def is_java_gone(error: BaseException) -> bool:
    """Returns True if the error means that Spark's Java process has ended."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError) and bool(_JVM_GONE.search(str(error)))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Converts errors of Spark, the source and the sink: user mistakes to StartupError, the rest to PipelineFailure."""
    try:
        yield
    except PySparkException as error:
        raise PipelineFailure(plain_message(error)) from error
    except (Py4JJavaError, Py4JNetworkError, ConnectionError) as error:
        raise PipelineFailure(_JAVA_IS_GONE if is_java_gone(error) else plain_message(error)) from error
    except Py4JError as error:
        if is_java_gone(error):
            raise PipelineFailure(_JAVA_IS_GONE) from error
        if not (_NO_MEMORY.search(str(error)) or _SPARK_STOPPED.search(str(error))):
            raise
        raise PipelineFailure(plain_message(error)) from error
    except Mistake as error:
        raise StartupError(str(error)) from error
    except (Lost, Unreachable) as error:
        raise PipelineFailure(str(error)) from error
    except Exception as error:
        if _DISK_FULL.search(str(error)) is None:
            raise
        raise PipelineFailure(plain_message(error)) from error
