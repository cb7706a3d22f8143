"""Byte-rate quotas: the quota that applies to a client, and its throttle time."""

from __future__ import annotations

import pytest
from doubles import FaultyFiles, PassRunner
from hypothesis import given
from hypothesis import strategies as st

from trimq.clock import ManualTime
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.quotas import Metered, QuotaEntity, QuotaEntityName, Quotas
from trimq.errors import InvalidSetting
from trimq.model import Caller
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

ALICE = Caller("alice", "app", "10.0.0.1", "kafka")
BOB = Caller("bob", "app", "10.0.0.2", "kafka")
IN, OUT, MUTATIONS = Metered.IN, Metered.OUT, Metered.MUTATIONS
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


def test_without_a_quota_no_client_is_throttled(rig: Rig) -> None:
    assert rig.quotas.charge(ALICE, IN, 1 << 40) == 0
    assert rig.quotas.wait_ms(ALICE, IN) == 0


def test_a_client_over_quota_is_throttled_until_the_rate_is_kept(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 1000})
    assert rig.quotas.charge(ALICE, IN, 1000) == 0  # a burst of one second
    assert rig.quotas.charge(ALICE, IN, 500) == 500
    rig.pass_ms(200)
    assert rig.quotas.wait_ms(ALICE, IN) == 300
    rig.pass_ms(300)
    assert rig.quotas.wait_ms(ALICE, IN) == 0
    assert rig.quotas.charge(ALICE, IN, 1) == 1


def test_sent_bytes_are_not_charged_to_the_receive_quota(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 10, OUT: 20})
    assert rig.quotas.charge(ALICE, OUT, 40) == 1000
    assert rig.quotas.wait_ms(ALICE, IN) == 0


def test_mutations_have_a_longer_burst_and_rates_below_one(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {MUTATIONS: 0.5})
    assert rig.quotas.charge(ALICE, MUTATIONS, 5) == 0
    assert rig.quotas.charge(ALICE, MUTATIONS, 1) == 1000
    assert rig.quotas.wait_ms(ALICE, IN) == 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3000)), min_size=1, max_size=50))
def test_over_any_time_no_more_passes_than_the_rate_and_a_burst_of_one_second(steps: list[tuple[int, int]]) -> None:
    rig = Rig()
    rate = 1000
    rig.quotas.define(QuotaEntity(NAMED), {IN: rate})
    began_ms, sent, last = rig.time.now_ms(), 0, 0
    for size, pause_ms in steps:
        rig.pass_ms(rig.quotas.wait_ms(ALICE, IN))
        assert rig.quotas.wait_ms(ALICE, IN) == 0  # a client that waited for its throttle time may continue
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
def test_the_most_specific_quota_applies(rig: Rig, rank: int) -> None:
    for place, holder in enumerate(RANKED[rank:], rank):
        rig.quotas.define(holder, {IN: 100 * (place + 1)})
    # Of 1000 bytes beyond the burst, the throttle time is computed by the most specific rate.
    rig.quotas.charge(ALICE, IN, 100 * (rank + 1))
    assert rig.quotas.charge(ALICE, IN, 1000) == round(10_000 / (rank + 1))


def test_a_quota_of_the_other_direction_is_ignored(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {OUT: 1})
    rig.quotas.define(QuotaEntity(ANY), {IN: 100})
    assert rig.quotas.charge(ALICE, IN, 200) == 1000


def test_clients_of_a_principal_share_its_quota_and_a_default_applies_to_each_alone(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(NAMED), {IN: 100})
    other_client = Caller("alice", "other", "10.0.0.1", "kafka")
    rig.quotas.charge(ALICE, IN, 200)
    assert rig.quotas.wait_ms(other_client, IN) == 1000
    rig.quotas.define(QuotaEntity(NAMED), {})
    rig.quotas.define(QuotaEntity(ANY), {IN: 100})
    rig.quotas.charge(ALICE, IN, 200)
    assert rig.quotas.wait_ms(BOB, IN) == 0


@pytest.mark.parametrize(
    ("holder", "rates"),
    [
        (QuotaEntity(), {IN: 1}),
        (QuotaEntity(NAMED), {IN: 0}),
        (QuotaEntity(NAMED), {OUT: -1}),
        (QuotaEntity(NAMED), {MUTATIONS: 0}),
    ],
)
def test_a_quota_without_an_entity_or_below_a_byte_is_refused(
    rig: Rig, holder: QuotaEntity, rates: dict[Metered, float]
) -> None:
    with pytest.raises(InvalidSetting):
        rig.quotas.define(holder, rates)
    assert not rig.quotas.all()


def test_quotas_and_their_removal_survive_a_restart(rig: Rig) -> None:
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


def test_many_random_client_ids_use_bounded_memory(rig: Rig) -> None:
    rig.quotas.define(QuotaEntity(None, ANY), {IN: 1000})
    for number in range(10_050):
        rig.quotas.charge(Caller("alice", str(number), "", "kafka"), IN, 1)
    assert len(rig.quotas._meters) <= 10_000
