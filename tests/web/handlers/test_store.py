"""GET /v1/store and the metrics of a store in PostgreSQL."""

from __future__ import annotations

from schedo.core.limits import SECOND
from schedo.protocol.times import render_instant
from schedo.store.database_health import DatabaseHealth, Holder, InboxHealth, TableHealth
from tests.web.handlers.test_metrics import scrape, values
from tests.web.world import T0, World

HEALTH = DatabaseHealth(
    [TableHealth("job", 1 << 20, 90, 12, T0), TableHealth("meta", 8192, 9, 0, None)],
    Holder("session", "report", 7, 421 * SECOND, 4_000),
    None,
    InboxHealth(3, T0 - 5 * SECOND),
)


async def test_the_store_shows_its_tables_and_old_transactions(world: World) -> None:
    world.engine.series.database.last = HEALTH

    reply = await world.get("/v1/store")

    assert reply.status == 200
    found = reply.json()
    assert found["tables"][0] == {
        "name": "job",
        "size_bytes": 1 << 20,
        "live_rows": 90,
        "dead_rows": 12,
        "vacuumed_at": render_instant(T0),
    }
    assert found["tables"][1]["vacuumed_at"] is None
    assert found["oldest_snapshot"] == {
        "kind": "session",
        "name": "report",
        "pid": 7,
        "age_seconds": 421.0,
        "transactions": 4_000,
    }
    assert found["longest_transaction"] is None
    assert found["inbox"] == {"rows": 3, "oldest_at": render_instant(T0 - 5 * SECOND)}


async def test_the_metrics_have_the_state_of_the_tables(world: World) -> None:
    world.engine.series.database.last = HEALTH

    families = await scrape(world)

    assert values(families["schedo_postgres_dead_rows"]) == {("job",): 12, ("meta",): 0}
    assert values(families["schedo_postgres_table_bytes"]) == {("job",): 1 << 20, ("meta",): 8192}
    at = values(families["schedo_postgres_vacuum_timestamp_seconds"])
    assert at == {("job",): T0 / SECOND, ("meta",): 0}
    assert values(families["schedo_postgres_oldest_snapshot_seconds"]) == {(): 421}
    assert values(families["schedo_postgres_oldest_snapshot_transactions"]) == {(): 4_000}
    assert values(families["schedo_postgres_longest_transaction_seconds"]) == {(): 0}
    assert values(families["schedo_inbox_rows"]) == {(): 3}
    assert values(families["schedo_inbox_oldest_seconds"]) == {(): 5}


async def test_a_store_in_a_file_has_neither(world: World) -> None:
    world.engine.series.database.last = None

    found = (await world.get("/v1/store")).json()

    assert (found["tables"], found["oldest_snapshot"]) == ([], None)
    assert not [name for name in await scrape(world) if name.startswith("schedo_postgres")]
