"""Steps of a sequence, comparison of the answers of two brokers, and shrinking. Knows no protocol and no broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Step:
    """One request. `connection` is the number of the client connection that sends it. `arguments` are JSON values;
    names of topics, queues, groups and so on are short (`t0`, `g1`): the driver makes them unique for each run."""

    connection: int
    request: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.connection} {self.request} {json.dumps(self.arguments, sort_keys=True)}"


class Driver(Protocol):
    """Sends steps to one broker."""

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Returns one normalised answer per step: JSON values without ids, times, addresses and the unique part of
        names. A closed connection and a missing answer are answers too. Uses new connections and new names, and leaves
        nothing behind that another sequence can see."""


@dataclass(frozen=True)
class Difference:
    """Leaf in which the answers to one step differ. `path` has no list indexes: it is the same for each element of a
    list. `our_answer` and `their_answer` are the whole answers; `earlier`: the steps before this one."""

    position: int
    step: Step
    path: str
    ours: Any
    theirs: Any
    our_answer: Any = None
    their_answer: Any = None
    earlier: Sequence[Step] = ()

    @property
    def signature(self) -> str:
        """Same for two differences that probably have the same cause."""
        return f"{self.step.request}{self.path}: {_brief(self.ours)} instead of {_brief(self.theirs)}"


@dataclass(frozen=True)
class Explained:
    """A difference that stays. `name` stands in the table of the protocol's page, together with the reason. `is_last`:
    the brokers are in different states from this step on, so that the rest of the sequence is not compared."""

    name: str
    applies: Callable[[Difference], bool]
    is_last: bool = False


MISSING = "<missing>"


def differences(steps: Sequence[Step], ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[Difference]:
    """Yields each leaf that differs, in the order of the steps."""
    for position, (step, our_answer, their_answer) in enumerate(zip(steps, ours, theirs, strict=True)):
        for path, our_value, their_value in _leaves(our_answer, their_answer, ""):
            earlier = steps[:position]
            yield Difference(position, step, path, our_value, their_value, our_answer, their_answer, earlier)


def _leaves(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from _leaves(ours.get(key, MISSING), theirs.get(key, MISSING), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}.length", len(ours), len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=False):
            yield from _leaves(our_element, their_element, f"{path}[]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield path, ours, theirs


def _brief(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 120 else text[:117] + "..."


def until_last(found: Sequence[Difference], explained: Sequence[Explained]) -> list[Difference]:
    """Returns the differences up to the step at which an explained one ends the comparison. The others of that step
    need an explanation too."""
    last = [reason for reason in explained if reason.is_last]
    end = next((each.position for each in found if any(reason.applies(each) for reason in last)), None)
    return [each for each in found if end is None or each.position <= end]


def first_unexplained(found: Iterator[Difference], explained: Sequence[Explained]) -> Difference | None:
    return next((each for each in found if not any(reason.applies(each) for reason in explained)), None)


def shrink(
    steps: Sequence[Step], find: Callable[[Sequence[Step]], Difference | None], signature: str, max_runs: int = 60
) -> list[Step]:
    """Removes steps as long as `find` still finds a difference of this signature: first large parts, then single steps.
    Stops after `max_runs` runs."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    runs = 0
    while runs < max_runs:
        removed = False
        start = 0
        while start < len(kept) and runs < max_runs:
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            difference = find(fewer) if fewer else None
            if difference is not None and difference.signature == signature:
                kept = fewer[: difference.position + 1]
                removed = True
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2)
    return kept
