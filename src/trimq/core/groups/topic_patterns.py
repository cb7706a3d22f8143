"""Patterns of names that clients send: matched in time that grows with the name and never explodes, unlike those of
`re`, since whoever sends one must not be able to stop the broker."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.pattern_syntax import Parser, State

_MAX_DFA_STATES = 1_000


class _DfaState:
    """All states in which a match can be after some characters, and where the next character leads."""

    __slots__ = ("accepts", "states", "steps")

    def __init__(self, states: frozenset[State], accepts: bool) -> None:
        self.states = states
        self.accepts = accepts
        self.steps: dict[str, _DfaState] = {}


class Pattern:
    """One pattern, ready to be asked. `InvalidPattern`: it is none."""

    def __init__(self, text: str) -> None:
        fragment = Parser(text).parse()
        self.text = text
        self._end = fragment.last
        self._dfa_states: dict[frozenset[State], _DfaState] = {}
        self._begin = _DfaState(
            _epsilon_closure([fragment.first], at_start=True),
            self._end in _epsilon_closure([fragment.first], at_start=True, at_end=True),
        )

    def matches(self, name: str) -> bool:
        """Whether the whole name is as the pattern says."""
        place = self._begin
        for character in name:
            place = place.steps.get(character) or self._step(place, character)
            if not place.states:
                return False
        return place.accepts

    def _step(self, place: _DfaState, character: str) -> _DfaState:
        states = _epsilon_closure(way for state in place.states if state.takes(character) for way in state.ways)
        following = self._dfa_states.get(states)
        if following is None:
            if len(self._dfa_states) >= _MAX_DFA_STATES:
                self._dfa_states.clear()
                self._begin.steps.clear()
            following = self._dfa_states[states] = _DfaState(states, self._end in _epsilon_closure(states, at_end=True))
        place.steps[character] = following
        return following


def _epsilon_closure(states: Iterable[State], at_start: bool = False, at_end: bool = False) -> frozenset[State]:
    """The states, and those that are reached from them without a character."""
    reached: set[State] = set()
    left = list(states)
    while left:
        state = left.pop()
        if state in reached:
            continue
        reached.add(state)
        if state.test is None and (at_start or not state.at_start) and (at_end or not state.at_end):
            left += state.ways
    return frozenset(reached)
