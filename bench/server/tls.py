"""What TLS costs the server: a new connection, and a request on one that is open.

One client after the other connects, sends a small request, reads the response and disconnects. The
figures are the processor time of the server for each of them; the client's is not counted. The
floor is the same without TLS. A client that resumes brings the ticket of its connection before.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.server.evidence import NotDone
from bench.server.process import Server
from bench.server.script import Option, Results, run_script

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
WARM_UP = 100
KEYS = {
    "ECDSA, P-256": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "RSA, 2048 bits": ("rsa:2048",),
}


class Client:
    """Connects to the server, which is on this machine; context: None without TLS."""

    def __init__(self, server: Server, context: ssl.SSLContext | None) -> None:
        self._server = server
        self._context = context
        self._ticket: ssl.SSLSession | None = None

    def visit(self, requests: int = 1, *, resumes: bool = False) -> None:
        """Connect, send the requests one after the other, and disconnect."""
        plain = socket.create_connection((self._server.host, self._server.port))
        if self._context is None:
            with plain:
                self._ask(plain, requests)
            return
        ticket = self._ticket if resumes else None
        with self._context.wrap_socket(
            plain, server_hostname=self._server.host, session=ticket
        ) as encrypted:
            self._ask(encrypted, requests)
            self._ticket = encrypted.session
            if ticket is not None and not encrypted.session_reused:
                raise NotDone("the server has not resumed the session")

    def _ask(self, connection: socket.socket, requests: int) -> None:
        for _ in range(requests):
            connection.sendall(REQUEST)
            if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                raise NotDone("a request was refused")


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the server without TLS, then with each kind of key."""

    def measured(server: Server, work: Callable[[], None], times: int) -> float:
        """Return the median of the rounds: the server's microseconds for one of the times."""
        rounds = []
        for _ in range(arguments.rounds):
            before = server.cpu_s
            work()
            rounds.append((server.cpu_s - before) / times * 1e6)
        return statistics.median(rounds)

    def visits(client: Client, *, resumes: bool = False) -> Callable[[], None]:
        def work() -> None:
            for _ in range(arguments.count):
                client.visit(resumes=resumes)

        return work

    count = arguments.count
    with Server(directory) as server:
        client = Client(server, None)
        client.visit(WARM_UP)
        connection = measured(server, visits(client), count)
        request = measured(server, lambda: client.visit(count), count)
    results.add("without TLS: a connection with one request", connection, "us")
    results.add("without TLS: a request on an open connection", request, "us")
    for kind, key in KEYS.items():
        cert, secret = make_certificate(directory, *key)
        with Server(directory, "--tls-cert", str(cert), "--tls-key", str(secret)) as server:
            context = ssl.create_default_context(cafile=cert)
            client = Client(server, context)
            client.visit(WARM_UP)
            figures = (
                ("a connection with one request", visits(client), connection),
                ("the same, resumed", visits(client, resumes=True), connection),
                ("a request on an open connection", lambda: client.visit(count), request),  # noqa: B023
            )
            for what, work, floor in figures:
                taken = measured(server, work, count)
                results.add(f"{kind}: {what}", taken, "us", floor, "without TLS")


def make_certificate(directory: Path, *key: str) -> tuple[Path, Path]:
    """Return the files of a certificate that is its own authority, and of its key."""
    cert, secret = directory / f"{key[0]}.pem", directory / f"{key[0]}.key"
    command = (
        *("openssl", "req", "-x509", "-newkey", *key, "-nodes", "-days", "1", "-subj", "/CN=bench"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(secret), "-out", str(cert)),
    )
    subprocess.run(command, check=True, capture_output=True)
    return cert, secret


OPTIONS = (Option("count", 1_000, 50, "connections"), Option("rounds", 5, 2, "rounds of each"))

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
