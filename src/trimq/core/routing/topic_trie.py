"""Topic patterns: words between dots, `*` for exactly one word, `#` for any number of words. Pure: patterns in, matches
out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, int] = {}


def words_of(key: str) -> list[str]:
    """Splits a key. An empty key has no words; an empty word between dots is one."""
    return key.split(".") if key else []


class TopicTrie(Generic[T]):
    """A value may be added several times under one pattern, and must be removed as often."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        node = self._root
        for word in words_of(pattern):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
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
        words = words_of(key)
        found: dict[T, None] = {}
        seen: set[tuple[int, int]] = set()  # `#.#` reaches the same node on many paths
        places = [(self._root, 0)]
        while places:
            node, at = places.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(words):
                found.update(dict.fromkeys(node.values))
            else:
                for word in (words[at], "*"):
                    child = node.children.get(word)
                    # A published `*` or `#` is an ordinary word, which only a wildcard matches.
                    if child is not None and (word == "*" or words[at] not in ("*", "#")):
                        places.append((child, at + 1))
            rest = node.children.get("#")
            if rest is not None:
                places += [(rest, later) for later in range(at, len(words) + 1)]
        return list(found)
