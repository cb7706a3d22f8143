"""Errors that users of the source and the sink see. Each text is one sentence that says what is wrong and what to
do."""

from __future__ import annotations

import re


class Mistake(ValueError):
    """Invalid option, topic or schema. Retrying does not help."""


class TopicMistake(Mistake):
    """The topic or queue does not exist."""


class Lost(RuntimeError):
    """Messages that the query has not read yet were deleted."""


class Unreachable(RuntimeError):
    """The broker does not respond, or its response is invalid."""


_OWN_ERROR = re.compile(r"pyspark_trimq\.mistakes\.(?:Mistake|TopicMistake|Lost|Unreachable): ([^\n]*)")


def sentence_of(error: BaseException) -> str:
    """Returns the text of the innermost error of this module within an exception of Spark, or the first line of the
    exception if there is none."""
    text = str(error)
    found = _OWN_ERROR.findall(text)
    return str(found[-1]) if found else text.partition("\n")[0]
