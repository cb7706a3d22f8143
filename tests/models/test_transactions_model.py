"""Transactions against a list of promised results, through power cuts at every step: a transaction is read as a whole
or not at all, an acknowledged commit survives, aborted records are never read, and no reader waits for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.transacting_core import TransactingCore
from doubles import TornTails
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from trimq.core.transactions.transaction import ProducerIdentity, Transaction
from trimq.errors.transactions import ProducerFenced, TransactionUnderWay, WrongTransactionState


class UnevenTails(TornTails):
    """Survivors with different shares of the tables and of the logs."""

    def __init__(self, logs_percent: int, tables_percent: int) -> None:
        super().__init__(logs_percent, keeps_names=True)
        self._tables = TornTails(tables_percent, keeps_names=True)

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return self._tables.contents(name, versions) if "tables/" in name else super().contents(name, versions)


STREAMS = 2
TIMEOUT_MS = 5_000
NAMES = st.sampled_from(["plain", "raising"])
NUMBERS = st.integers(0, STREAMS - 1)
STEPS = st.integers(0, 8)
SHARES = st.sampled_from([0, 30, 100])
KEPT = st.builds(UnevenTails, SHARES, SHARES)


@dataclass
class Attempt:
    """One transaction as its producer sees it. `outcome` is None if the producer got no response."""

    written: list[tuple[int, bytes]] = field(default_factory=list)
    outcome: bool | None = None


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = TransactingCore(STREAMS)
        self.producers: dict[str, ProducerIdentity] = {}
        self.open: dict[str, Attempt] = {}
        self.attempts: list[Attempt] = []
        self.sequences: dict[tuple[ProducerIdentity, int], int] = defaultdict(int)
        self.count = 0

    # -- producer actions

    @rule(name=NAMES)
    def init_producer(self, name: str) -> None:
        self._abandon(name)
        for _ in range(3):
            try:
                self.producers[name] = self.core.init_producer(name, timeout_ms=TIMEOUT_MS)
                return
            except TransactionUnderWay:
                self.core.settle()
        raise AssertionError("the open transaction was never aborted")

    @precondition(lambda self: self.producers)
    @rule(name=NAMES, number=NUMBERS, is_lost=st.booleans(), kept=KEPT)
    def write(self, name: str, number: int, is_lost: bool, kept: TornTails) -> None:
        if name not in self.producers:
            return
        producer = self.producers[name]
        attempt = self._attempt(name)
        body = b"%d" % self.count
        self.count += 1
        try:
            if name == "plain":
                self.core.add(producer, number, name=name)
            sequence = self.sequences[producer, number]
            self.core.write(producer, body, number, sequence, may_join=name == "raising", name=name)
        except ProducerFenced:
            self._fenced(name)
            return
        if is_lost:
            # The write was never acknowledged, so its producer cannot commit: another one takes over.
            self.core.runner.end_pass()
            self.core.cut_power(kept)
            attempt.outcome = False
            attempt.written.append((number, body))
            self.init_producer(name)
            return
        self.core.settle()
        self.sequences[producer, number] += 1
        attempt.written.append((number, body))

    @precondition(lambda self: self.open)
    @rule(name=NAMES, is_commit=st.booleans(), steps=STEPS, kept=KEPT, is_cut=st.booleans())
    def end(self, name: str, is_commit: bool, steps: int, kept: TornTails, is_cut: bool) -> None:
        if name not in self.open:
            return
        producer, attempt = self.producers[name], self.open[name]
        try:
            answers = self.core.begin_end(producer, is_commit, name == "raising", name)
        except ProducerFenced:
            self._fenced(name)
            return
        except WrongTransactionState:
            if attempt.written:  # timed out: a producer that raises its epoch gets an abort, as from Kafka
                assert (is_commit, name) == (True, "raising")
                self._fenced(name)
            return
        if is_cut:
            for _ in range(steps):
                self.core.runner.end_pass()
                self.core.runner.offload.run_one()
            answered = bool(answers) and name == "plain"  # the other producer waits for a later pass
            self.core.cut_power(kept)
            del self.open[name]
            if answered:
                attempt.outcome = is_commit
            self.init_producer(name)
            return
        self.core.settle()
        (done,) = answers
        assert isinstance(done, Transaction)
        assert done.is_commit is is_commit
        attempt.outcome = is_commit
        self.producers[name] = done.producer
        del self.open[name]

    @rule(milliseconds=st.integers(1, TIMEOUT_MS * 2))
    def advance(self, milliseconds: int) -> None:
        self.core.advance(milliseconds)

    @rule(kept=KEPT)
    def cut_power(self, kept: TornTails) -> None:
        self.core.cut_power(kept)

    def _attempt(self, name: str) -> Attempt:
        if name not in self.open:
            self.open[name] = Attempt()
            self.attempts.append(self.open[name])
        return self.open[name]

    def _abandon(self, name: str) -> None:
        attempt = self.open.pop(name, None)
        if attempt is not None:
            attempt.outcome = False  # an open transaction is aborted when its id is taken over

    def _fenced(self, name: str) -> None:
        """Fencing can only follow a time-out: no other producer uses the transactional id."""
        self.core.settle()
        assert self.core.registry.get(name).is_complete
        self._abandon(name)
        self.init_producer(name)

    # -- reads

    @rule()
    def compare(self) -> None:
        self.core.settle()
        visible = {(number, body) for number in range(STREAMS) for body in self.core.committed(number)}
        open_bodies = {place for attempt in self.open.values() for place in attempt.written}
        assert not visible & open_bodies
        for attempt in self.attempts:
            seen = visible.intersection(attempt.written)
            if attempt.outcome is False:
                assert not seen, "an aborted record is read"
            elif len(seen) < len(attempt.written) and not self._is_blocked(attempt):
                assert not attempt.outcome, "an acknowledged commit is lost"
                assert not seen, "a transaction is read in part"

    def _is_blocked(self, attempt: Attempt) -> bool:
        """Returns whether an older open transaction keeps readers from this one."""
        return any(self.core.stream(number).stable_end < self.core.stream(number).end for number, _ in attempt.written)

    def teardown(self) -> None:
        for name in list(self.open):
            self._abandon(name)
        self.core.advance(2 * TIMEOUT_MS)
        for number in range(STREAMS):
            assert self.core.stream(number).stable_end == self.core.stream(number).end, "a reader waits for ever"
        self.compare()


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
