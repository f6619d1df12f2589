"""Looks ten times a second which server owns each shard, as PostgreSQL has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.e2e.cluster.servers import SCHEMA
from tests.e2e.takeover.checker import Findings
from tests.e2e.takeover.evidence import Kill
from tests.postgres import PostgresServer

LOOK_S = 0.1
OWNERLESS_S = 0.5
SETTLING_S = 3.0  # after an outage of PostgreSQL


class Sample(NamedTuple):
    """at: by CLOCK_MONOTONIC; owners: of each shard, the number of its server or None."""

    at: float
    owners: dict[int, int | None]


class Owners:
    """Takes the samples."""

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres
        self._samples: list[Sample] = []
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look())

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        statement = f"SELECT no, owner FROM {SCHEMA}.shard ORDER BY no"
        while True:
            try:
                text = await asyncio.to_thread(self._postgres.sql, statement)
            except AssertionError:  # PostgreSQL is away
                text = ""
            if text:
                found = (line.split("|") for line in text.splitlines())
                owners = {int(no): int(owner) if owner else None for no, owner in found}
                self._samples.append(Sample(time.monotonic(), owners))
            await asyncio.sleep(LOOK_S)

    def check(self, findings: Findings, outages: Sequence[Kill]) -> None:
        """A shard is without an owner for OWNERLESS_S at most, apart from outages."""
        findings.counts["samples of owners"] = len(self._samples)
        since: dict[int, float] = {}
        for sample in self._samples:
            is_out = any(each.at <= sample.at <= each.ready_at + SETTLING_S for each in outages)
            for shard, owner in sample.owners.items():
                if owner is not None or is_out:
                    since.pop(shard, None)
                elif sample.at - since.setdefault(shard, sample.at) > OWNERLESS_S:
                    findings.fault("shard without an owner", f"{shard} at {sample.at:.2f}")
