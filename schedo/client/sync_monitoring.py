"""The calls of a client that show how a server is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from schedo.client import monitoring_operations
from schedo.client.messages import Operation, Record, T
from schedo.client.options import LogFilters, StatsFilters
from schedo.client.rest import Page


class Monitoring:
    """A part of Client, which sends the requests."""

    def send(self, operation: Operation[T]) -> T:
        """Send any operation of schedo.client.operations."""
        raise NotImplementedError

    def get_summary(self) -> Record:
        """Return the verdict on the server, in one sentence, and its main figures."""
        return self.send(monitoring_operations.get_summary())

    def get_cluster(self) -> Record:
        """Return the servers that share the store, with the shards that they own."""
        return self.send(monitoring_operations.get_cluster())

    def get_store(self) -> Record:
        """Return the size of the store and, in PostgreSQL, its tables and old transactions."""
        return self.send(monitoring_operations.get_store())

    def get_timeseries(
        self,
        window: str = "15m",
        *,
        names: Sequence[str] | None = None,
        queue: str | None = None,
        points: int | None = None,
    ) -> Record:
        """Return figures over the last "15m" or "24h"; a queue has those of 24 hours."""
        return self.send(monitoring_operations.get_timeseries(window, names, queue, points))

    def get_stats(self, by: str = "task", **filters: Unpack[StatsFilters]) -> Record:
        """Return what ended by task, queue or schedule: counts, run times and lateness.

        since: 7 days ago by default. per: "hour" or "day", for points in time.
        """
        return self.send(monitoring_operations.get_stats({"by": by, **filters}))

    def list_log(self, **filters: Unpack[LogFilters]) -> Page:
        """Return a page of who changed what by hand, newest first."""
        return self.send(monitoring_operations.list_log(filters))

    def list_failures(self) -> Record:
        """Return what has failed since the server started, in groups of the same task and error."""
        return self.send(monitoring_operations.list_failures())

    def list_names(self) -> Record:
        """Return the names of queues, tasks, schedules, workers and tags."""
        return self.send(monitoring_operations.list_names())
