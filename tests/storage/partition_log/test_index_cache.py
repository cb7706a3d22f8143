from __future__ import annotations

from trimq.storage.partition_log.index_cache import IndexCache


class Index:
    def __init__(self) -> None:
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


def test_the_least_recently_used_index_is_released() -> None:
    loaded = IndexCache(most=2)
    first, second, third = Index(), Index(), Index()
    for index in (first, second, first, third):
        loaded.use(index)
    assert [index.is_released for index in (first, second, third)] == [False, True, False]
    assert len(loaded) == 2


def test_an_index_that_was_removed_from_the_cache_is_not_released() -> None:
    loaded = IndexCache(most=1)
    first, second = Index(), Index()
    loaded.use(first)
    loaded.forget(first)
    loaded.forget(first)
    loaded.use(second)
    assert not first.is_released
