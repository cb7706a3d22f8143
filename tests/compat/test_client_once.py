"""Ways of idempotent consumption on PostgreSQL, MariaDB and Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from client.once import scenarios
from client.once.cases import POINTS, REDIS_WAYS, SQL_WAYS, Spec
from compat.database_servers import mariadb_server, postgres_server, redis_server

pytestmark = pytest.mark.external

DATABASES = ("postgres", "mysql")
WAYS = (*SQL_WAYS, *REDIS_WAYS)


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Spec]]:
    folder = tmp_path_factory.mktemp("servers")
    with ExitStack() as servers:
        redis = servers.enter_context(redis_server(folder))
        conninfo = servers.enter_context(postgres_server(folder))
        arguments = servers.enter_context(mariadb_server(folder))
        yield {
            "postgres": {"kind": "postgres", "conninfo": conninfo, "redis": redis},
            "mysql": {"kind": "mysql", "arguments": arguments, "redis": redis},
            "sqlite": {"kind": "sqlite", "path": str(folder / "shop.db"), "redis": redis},
        }


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("way", WAYS)
def test_a_repeated_message_has_its_effect_once(way: str, database: str, specs: dict[str, Spec]) -> None:
    scenarios.check_repeats(way, specs[database])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("way", WAYS)
def test_a_failed_work_leaves_nothing_and_is_done_again(way: str, database: str, specs: dict[str, Spec]) -> None:
    scenarios.check_failures(way, specs[database])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("way", WAYS)
def test_of_consumers_at_the_same_instant_one_does_the_work(way: str, database: str, specs: dict[str, Spec]) -> None:
    scenarios.check_rivals(way, specs[database])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_consumer_leaves_no_half_effect(way: str, point: str, database: str, specs: dict[str, Spec]) -> None:
    scenarios.check_death(way, specs[database], point)


@pytest.mark.parametrize("way", REDIS_WAYS)
def test_marks_and_locks_in_redis_work_beside_sqlite(way: str, specs: dict[str, Spec]) -> None:
    scenarios.check_repeats(way, specs["sqlite"])
    scenarios.check_rivals(way, specs["sqlite"])
