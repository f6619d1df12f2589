"""The container's health check against a real socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from schedo import health
from tests.certificates import Authority


@contextmanager
def answering(
    status: int, path: str = "/healthz", tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Answer each GET of the path with this status; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_responds_is_alive() -> None:
    with answering(200) as port:
        assert health.main(environ={"SCHEDO_PORT": str(port)}) == 0


def test_a_server_bound_to_every_address_is_checked_over_loopback() -> None:
    with answering(200) as port:
        assert health.main(environ={"SCHEDO_HOST": "0.0.0.0", "SCHEDO_PORT": str(port)}) == 0


def test_a_server_with_tls_is_asked_by_tls(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server", "DNS:scheduler.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)

    with answering(200, tls=context) as port:
        variables = {"SCHEDO_PORT": str(port), "SCHEDO_TLS_CERT": str(pair.cert)}
        assert health.main(environ=variables) == 0
        assert health.main(environ={"SCHEDO_PORT": str(port)}) == 1


def test_a_server_that_responds_with_an_error_is_not_alive() -> None:
    with answering(503) as port:
        assert health.main(environ={"SCHEDO_PORT": str(port)}) == 1


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_a_server_may_be_asked_whether_it_is_ready(status: int, code: int) -> None:
    with answering(status, "/readyz") as port:
        assert health.main(["--ready"], {"SCHEDO_PORT": str(port)}) == code


def test_an_unknown_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["--redy"], {}) == 2

    assert "usage: python -m schedo.health [--ready]" in capsys.readouterr().err


def test_a_port_without_a_server_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        # Bound but not listening: connections are refused, and no other process can take the port.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        assert health.main(environ={"SCHEDO_PORT": str(port)}) == 1

    assert f"port {port}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["http", "0", "65536", "-1", "80.5"])
def test_an_invalid_port_is_reported(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(environ={"SCHEDO_PORT": port}) == 1

    assert f"SCHEDO_PORT is {port!r}" in capsys.readouterr().err
