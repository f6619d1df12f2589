"""GET /v1/store, and the metrics of a store in PostgreSQL; both are as of the last minute."""

from __future__ import annotations

import msgspec

from schedo.core.limits import SECOND
from schedo.protocol.database import StoreResponse
from schedo.protocol.prometheus import Family, Sample, render_labels
from schedo.store.database_health import DatabaseHealth, Holder
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def get_store(context: AppContext, request: Request) -> Response:
    series = context.engine.series
    found = StoreResponse.of(series.store_bytes, series.database.last)
    return Response(200, msgspec.json.encode(found))


def render_database(health: DatabaseHealth | None, now: int) -> list[Family]:
    """Return the families about the database server; none for a store in a file."""
    if health is None:
        return []
    tables = [(render_labels(table=each.name), each) for each in health.tables]
    return [
        _gauge(
            "schedo_postgres_table_bytes",
            "The size of a table of the store with its indexes.",
            *(Sample(each.size_bytes, label) for label, each in tables),
        ),
        _gauge(
            "schedo_postgres_dead_rows",
            "Rows of a table that wait for a vacuum, as PostgreSQL estimates.",
            *(Sample(each.dead_rows, label) for label, each in tables),
        ),
        _gauge(
            "schedo_postgres_vacuum_timestamp_seconds",
            "When a table was vacuumed last, since 1970; 0: never.",
            *(Sample((each.vacuumed_at or 0) / SECOND, label) for label, each in tables),
        ),
        _gauge(
            "schedo_postgres_oldest_snapshot_seconds",
            "How long the transaction has lasted that keeps the most dead rows; 0: none does.",
            Sample(_age_s(health.oldest_snapshot)),
        ),
        _gauge(
            "schedo_postgres_oldest_snapshot_transactions",
            "How many transactions have begun since that one sees the tables.",
            Sample(health.oldest_snapshot.transactions if health.oldest_snapshot else 0),
        ),
        _gauge(
            "schedo_postgres_longest_transaction_seconds",
            "How long the longest transaction of the database has lasted; 0: there is none.",
            Sample(_age_s(health.longest_transaction)),
        ),
        _gauge(
            "schedo_inbox_rows",
            "Jobs of SQL clients that no server has taken yet, as of the last minute.",
            Sample(health.inbox.rows),
        ),
        _gauge(
            "schedo_inbox_oldest_seconds",
            "How long ago the first of them was inserted; 0: there is none.",
            Sample(max(0, now - (health.inbox.oldest_at or now)) / SECOND),
        ),
    ]


def _gauge(name: str, text: str, *samples: Sample) -> Family:
    return Family(name, "gauge", text, list(samples))


def _age_s(holder: Holder | None) -> float:
    return 0 if holder is None else (holder.age_us or 0) / SECOND
