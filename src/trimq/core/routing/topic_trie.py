"""Topic patterns: words between dots, `*` for exactly one word, `#` for any number of words. Pure: patterns in, matches
out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    __slots__ = ("absorbs", "children", "values")

    def __init__(self, absorbs: bool) -> None:
        self.absorbs = absorbs
        """True for `#`, which takes any further word."""
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, int] = {}


def words_of(key: str) -> list[str]:
    """Splits a key. An empty key has no words; an empty word between dots is one."""
    return key.split(".") if key else []


class TopicTrie(Generic[T]):
    """A value may be added several times under one pattern, and must be removed as often."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(False)

    def add(self, pattern: str, value: T) -> None:
        node = self._root
        for word in words_of(pattern):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(word == "#")
            node = child
        node.values[value] = node.values.get(value, 0) + 1

    def remove(self, pattern: str, value: T) -> None:
        path = [self._root]
        words = words_of(pattern)
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return
            path.append(child)
        count = path[-1].values.get(value, 0)
        if count > 1:
            path[-1].values[value] = count - 1
        else:
            path[-1].values.pop(value, None)
        for node, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = node.children[word]
            if child.values or child.children:
                break
            del node.children[word]

    def match(self, key: str) -> list[T]:
        """Returns the values of all matching patterns, each once, in no defined order."""
        # All nodes that the words so far can reach, each once: however many `#` there are, a word costs one step for
        # each of them.
        reached = {self._root: None}
        _add_empty(reached)
        for word in words_of(key):
            # A published `*` or `#` is an ordinary word, which only a wildcard matches.
            names = ("*",) if word in ("*", "#") else (word, "*")
            before, reached = reached, {}
            for node in before:
                if node.absorbs:
                    reached[node] = None
                for name in names:
                    child = node.children.get(name)
                    if child is not None:
                        reached[child] = None
            _add_empty(reached)
        return list({value: None for node in reached for value in node.values})


def _add_empty(reached: dict[_Node[T], None]) -> None:
    """Adds the nodes that are reached by `#` for no word."""
    for node in list(reached):
        child = node.children.get("#")
        while child is not None and child not in reached:
            reached[child] = None
            child = child.children.get("#")
