"""The example worker for gRPC does with a real server what every worker does."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.remote import find_port
from tests.e2e.server import Server
from tests.sdk.contract_server import Command, WorkerServerClaims


@pytest.fixture
def worker_command() -> Command:
    return [sys.executable, "-m", "tests.grpc.contract_worker"]


@pytest.mark.e2e
class TestGrpcWorker(WorkerServerClaims):
    """Every claim about workers, with processes and sockets only."""

    def choose_options(self) -> list[str]:
        return ["--grpc-port", find_port()]

    def find_url(self, server: Server) -> str:
        return server.grpc_address
