"""Clients that submit by SQL, with commits and rollbacks, and clients that invoke jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Sequence

import asyncpg

from schedo.store.postgres.errors import DRIVER_ERRORS
from tests.e2e.cluster.servers import SCHEMA
from tests.e2e.takeover.evidence import ClientLog, Submission
from tests.e2e.takeover.raw_http import Broken, Client
from tests.postgres import PostgresServer

ROLLED_BACK = 0.3  # the share of transactions that their client takes back
PACE_S = 0.1  # the mean pause between two transactions, or two invocations
RETRY_S = 0.1  # after a failed connect to PostgreSQL
ENQUEUE = f"SELECT {SCHEMA}.enqueue('mark', $1::jsonb)"
# Nothing has happened: no worker had room, or no server could be asked.
REFUSALS = ("no-capacity", "unsatisfiable", "unavailable", "peer-unreachable", "overloaded")


class SqlClient:
    """A client of PostgreSQL; what it takes back, or breaks before its commit, must never run."""

    def __init__(self, postgres: PostgresServer, log: ClientLog, seed: int) -> None:
        self._url = postgres.url()
        self._log = log
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self.is_stopping = False

    async def run(self) -> None:
        """Submit until the end of the run, on a new connection after each failure."""
        while not self.is_stopping:
            try:
                connection = await asyncpg.connect(self._url, timeout=5, command_timeout=20)
            except DRIVER_ERRORS:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                while not self.is_stopping:
                    await self._transact(connection)
                    await asyncio.sleep(self._random.expovariate(1 / PACE_S))
            except DRIVER_ERRORS:
                continue  # the submissions say what is known of the transaction
            finally:
                connection.terminate()

    async def _transact(self, connection: asyncpg.Connection) -> None:
        made = []
        for _ in range(self._random.randint(1, 3)):
            submission = Submission(f"sql-{next(self._numbers)}", "child", is_rejected=True)
            self._log.submissions.append(submission)
            made.append(submission)
        transaction = connection.transaction()
        await transaction.start()
        payloads = [json.dumps({"token": each.token}) for each in made]
        ids = [await connection.fetchval(ENQUEUE, payload) for payload in payloads]
        if self._random.random() < ROLLED_BACK:
            await transaction.rollback()
            return
        for submission in made:
            submission.is_rejected = False  # from here on the transaction may be committed
        await transaction.commit()
        for submission, ident in zip(made, ids, strict=True):
            submission.job = ident


class InvokingClient:
    """A client that runs jobs right now; one that is refused must not run."""

    def __init__(self, ports: Sequence[int], log: ClientLog, seed: int) -> None:
        self._ports = ports
        self._log = log
        self._random = random.Random(seed)
        self.is_stopping = False

    async def run(self) -> None:
        """Invoke until the end of the run."""
        client = Client(self._ports, self._log)
        for number in itertools.count():
            if self.is_stopping:
                break
            # An invocation has one attempt, which a killed server takes with it.
            submission = Submission(f"invoke-{number}", "child", "at_most_once")
            self._log.submissions.append(submission)
            try:
                body = {"task": "mark", "payload": {"token": submission.token}, "wait": 0}
                reply = await client.ask("POST", "/v1/invoke", body)
            except Broken:
                continue
            if reply.status == 201:
                submission.job = reply.body["id"]
            elif reply.body.get("code") in REFUSALS:
                submission.is_rejected = True
            elif reply.status < 500:
                self._log.wrong.append(f"{submission} was rejected: {reply}")
            await asyncio.sleep(self._random.expovariate(1 / PACE_S))
        client.close()
