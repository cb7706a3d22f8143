"""Bytes a second: who has which quota, and how long one has to wait."""

from __future__ import annotations

import pytest
from doubles import FaultyFiles, PassRunner
from hypothesis import given
from hypothesis import strategies as st

from trimq.clock import ManualTime
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.quotas import Direction, QuotaEntity, QuotaEntityName, Quotas
from trimq.errors import InvalidSetting
from trimq.model import Caller
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

ALICE = Caller("alice", "app", "10.0.0.1", "kafka")
BOB = Caller("bob", "app", "10.0.0.2", "kafka")
IN, OUT = Direction.IN, Direction.OUT
NAMED, ANY = QuotaEntityName("alice"), QuotaEntityName(None)


class Rig:
    def __init__(self) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.time = ManualTime(1_000_000)
        self.open()

    def open(self) -> None:
        self.runner = PassRunner(self.files)
        table = open_table(self.files, "meta", "catalogue", self.runner.passes, Definition, self.runner.offload)
        self.quotas = Quotas(Catalogue(table), self.time.now_ms)

    def pass_ms(self, milliseconds: int) -> None:
        self.time.step(self.time.now_ms() + milliseconds)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_without_a_quota_nobody_waits(rig: Rig) -> None:
    assert rig.quotas.charge(ALICE, IN, 1 << 40) == 0
    assert rig.quotas.wait_ms(ALICE, IN) == 0


def test_who_sends_faster_than_the_quota_waits_until_the_rate_is_kept(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 1000})
    assert rig.quotas.charge(ALICE, IN, 1000) == 0  # a second's worth at once
    assert rig.quotas.charge(ALICE, IN, 500) == 500
    rig.pass_ms(200)
    assert rig.quotas.wait_ms(ALICE, IN) == 300
    rig.pass_ms(300)
    assert rig.quotas.wait_ms(ALICE, IN) == 0
    assert rig.quotas.charge(ALICE, IN, 1) == 1


def test_what_goes_out_is_not_charged_to_what_comes_in(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 10, OUT: 20})
    assert rig.quotas.charge(ALICE, OUT, 40) == 1000
    assert rig.quotas.wait_ms(ALICE, IN) == 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3000)), min_size=1, max_size=50))
def test_over_any_time_no_more_passes_than_the_rate_and_one_second_allow(steps: list[tuple[int, int]]) -> None:
    rig = Rig()
    rate = 1000
    rig.quotas.define(QuotaEntity(NAMED), {IN: rate})
    began_ms, sent, last = rig.time.now_ms(), 0, 0
    for size, pause_ms in steps:
        rig.pass_ms(rig.quotas.wait_ms(ALICE, IN))
        assert rig.quotas.wait_ms(ALICE, IN) == 0  # whoever waits as told may go on
        rig.quotas.charge(ALICE, IN, size)
        sent, last = sent + size, size
        rig.pass_ms(pause_ms)
        elapsed_s = (rig.time.now_ms() - pause_ms - began_ms) / 1000
        assert sent - last <= rate * (elapsed_s + 1) + 1


RANKED = [
    QuotaEntity(QuotaEntityName("alice"), QuotaEntityName("app")),
    QuotaEntity(QuotaEntityName("alice"), ANY),
    QuotaEntity(QuotaEntityName("alice")),
    QuotaEntity(ANY, QuotaEntityName("app")),
    QuotaEntity(ANY, ANY),
    QuotaEntity(ANY),
    QuotaEntity(None, QuotaEntityName("app")),
    QuotaEntity(None, ANY),
]


@pytest.mark.parametrize("rank", range(len(RANKED)))
def test_the_closest_quota_counts(rig: Rig, rank: int) -> None:
    for place, holder in enumerate(RANKED[rank:], rank):
        rig.quotas.define(holder, {IN: 100 * (place + 1)})
    # Of 1000 bytes beyond the first second's worth, those of the closest rate are waited for.
    rig.quotas.charge(ALICE, IN, 100 * (rank + 1))
    assert rig.quotas.charge(ALICE, IN, 1000) == round(10_000 / (rank + 1))


def test_a_quota_of_the_other_direction_is_passed_over(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {OUT: 1})
    rig.quotas.define(QuotaEntity(ANY), {IN: 100})
    assert rig.quotas.charge(ALICE, IN, 200) == 1000


def test_a_principals_clients_share_its_quota_and_one_for_all_is_each_ones_own(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 100})
    other_client = Caller("alice", "other", "10.0.0.1", "kafka")
    rig.quotas.charge(ALICE, IN, 200)
    assert rig.quotas.wait_ms(other_client, IN) == 1000
    rig.quotas.define(QuotaEntity(NAMED), {})
    rig.quotas.define(QuotaEntity(ANY), {IN: 100})
    rig.quotas.charge(ALICE, IN, 200)
    assert rig.quotas.wait_ms(BOB, IN) == 0


@pytest.mark.parametrize(
    ("holder", "rates"), [(QuotaEntity(), {IN: 1}), (QuotaEntity(NAMED), {IN: 0}), (QuotaEntity(NAMED), {OUT: -1})]
)
def test_a_quota_for_nobody_or_below_a_byte_is_refused(
    rig: Rig, holder: QuotaEntity, rates: dict[Direction, int]
) -> None:
    with pytest.raises(InvalidSetting):
        rig.quotas.define(holder, rates)
    assert not rig.quotas.all()


def test_quotas_survive_a_restart_and_removal_too(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED, ANY), {IN: 5, OUT: 6})
    rig.quotas.define(QuotaEntity(None, QuotaEntityName("x")), {IN: 7})
    rig.runner.settle()
    rig.open()
    assert {holder: quota.rates for holder, quota in rig.quotas.all().items()} == {
        QuotaEntity(NAMED, ANY): {"in": 5, "out": 6},
        QuotaEntity(None, QuotaEntityName("x")): {"in": 7},
    }
    assert rig.quotas.define(QuotaEntity(None, QuotaEntityName("x")), {}) is not None
    assert rig.quotas.define(QuotaEntity(None, QuotaEntityName("x")), {}) is None
    rig.runner.settle()
    rig.open()
    assert list(rig.quotas.all()) == [QuotaEntity(NAMED, ANY)]


def test_client_ids_that_are_invented_take_bounded_memory(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(None, ANY), {IN: 1000})
    for number in range(10_050):
        rig.quotas.charge(Caller("alice", str(number), "", "kafka"), IN, 1)
    assert len(rig.quotas._meters) <= 10_000
