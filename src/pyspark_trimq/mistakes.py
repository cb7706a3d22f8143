"""What can go wrong for a user of the source and the sink: one sentence each, that says what to do."""

from __future__ import annotations

import re


class Mistake(ValueError):
    """What was asked cannot be done: an option, a topic, a schema."""


class TopicMistake(Mistake):
    """There is no topic or queue of that name."""


class Lost(RuntimeError):
    """Messages that were to be read are no longer there."""


class Unreachable(RuntimeError):
    """The broker does not answer, or not as it should."""


_OWN_ERROR = re.compile(r"pyspark_trimq\.mistakes\.(?:Mistake|TopicMistake|Lost|Unreachable): ([^\n]*)")


def sentence_of(error: BaseException) -> str:
    """What we said, in whatever Spark made of it; else the first line of what Spark says."""
    text = str(error)
    told = _OWN_ERROR.findall(text)
    return str(told[-1]) if told else text.partition("\n")[0]
