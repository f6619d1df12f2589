"""The server as a service: inherited sockets, the descriptor store, messages to systemd."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.remote import find_port
from tests.e2e.server import DEADLINE_S, Server, eventually
from tests.e2e.supervisor import Supervisor

pytestmark = pytest.mark.e2e
SERVE = ("-m", "schedo", "serve", "--store", "jobs.db")


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path) as supervisor:
        yield supervisor


@pytest.fixture
def started(supervisor: Supervisor) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of the test; they are killed at its end."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def wait_ready(supervisor: Supervisor, times: int = 1) -> None:
    eventually(lambda: count(supervisor, "READY") >= times, f"READY: {supervisor.log()}")


def count(supervisor: Supervisor, field: str) -> int:
    return sum(field in message for message in supervisor.messages)


def server_at(directory: Path, port: int) -> Server:
    """Return the server that a supervisor has started, for requests."""
    server = Server(directory)
    server.url = f"http://127.0.0.1:{port}"
    return server


def test_a_service_tells_when_it_is_ready_when_it_reloads_and_when_it_stops(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = supervisor.start(*SERVE, "--port", "1")
    started.append(process)
    wait_ready(supervisor)
    assert server_at(tmp_path, supervisor.port).ask("GET", "/readyz")[0] == 200

    process.send_signal(signal.SIGHUP)
    wait_ready(supervisor, 2)
    process.terminate()

    assert process.wait(DEADLINE_S) == 0
    assert [next(iter(message)) for message in supervisor.messages] == [
        "READY",
        "RELOADING",
        "READY",
        "STOPPING",
    ]


def test_a_service_feeds_the_watchdog(
    supervisor: Supervisor, started: list[subprocess.Popen[str]]
) -> None:
    started.append(supervisor.start(*SERVE, WATCHDOG_USEC="100000", WATCHDOG_PID="1"))

    eventually(lambda: count(supervisor, "WATCHDOG") >= 3, "watchdog messages")


def test_connections_wait_while_the_supervisor_restarts_a_killed_server(
    supervisor: Supervisor, started: list[subprocess.Popen[str]]
) -> None:
    clients = Connecting(supervisor.port)
    for times in range(1, 4):
        started.append(supervisor.start(*SERVE))
        wait_ready(supervisor, times)
        clients.wait_answered(times * 20)
        started[-1].kill()
        started[-1].wait()
    started.append(supervisor.start(*SERVE))
    clients.stop()

    assert clients.refused == 0


class Connecting:
    """A client that opens a new connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answered = self.refused = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._connect)
        self._thread.start()

    def wait_answered(self, times: int) -> None:
        eventually(lambda: self.answered >= times, f"answer number {times}")

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join()

    def _connect(self) -> None:
        while not self._is_stopping:
            try:
                with socket.create_connection(("127.0.0.1", self._port), DEADLINE_S) as client:
                    client.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    with suppress(ConnectionResetError):  # it was accepted before the kill
                        self.answered += b" 200 " in client.recv(4_096)
            except ConnectionRefusedError:
                self.refused += 1


def test_the_listener_is_in_the_descriptor_store_and_is_used_after_a_kill(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = int(find_port())
    started.append(supervisor.start(*SERVE, "--port", str(port), sockets=()))
    wait_ready(supervisor)
    (stored,) = supervisor.stored
    assert stored.getsockname() == ("127.0.0.1", port)

    started[-1].kill()
    started[-1].wait()
    with socket.create_connection(("127.0.0.1", port)):  # the store keeps the address open
        arguments = (*SERVE, "--port", str(port))
        started.append(supervisor.start(*arguments, sockets=[stored], name="schedo-listener"))
        wait_ready(supervisor, 2)

    assert server_at(tmp_path, port).ask("GET", "/readyz")[0] == 200
    assert count(supervisor, "FDSTORE") == 1


def test_a_stored_listener_of_another_port_is_replaced(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = int(find_port())
    arguments = (*SERVE, "--port", str(port))
    started.append(supervisor.start(*arguments, name="schedo-listener"))
    wait_ready(supervisor)

    assert server_at(tmp_path, port).ask("GET", "/readyz")[0] == 200
    assert [sock.getsockname()[1] for sock in supervisor.stored] == [port]


def test_an_upgrade_moves_the_main_process_before_the_old_one_ends(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    old = supervisor.start(*SERVE)
    started.append(old)
    wait_ready(supervisor)

    command = [sys.executable, "-m", "schedo", "upgrade", "--store", str(tmp_path / "jobs.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    new = (tmp_path / "jobs.db.lock").read_text().split()[1]
    try:
        assert old.wait(DEADLINE_S) == 0
        # systemd sees the end of the old process after all that this process has sent.
        moves = [each for each in supervisor.messages if each.get("MAINPID") == new]
        assert str(old.pid) in [each["SENDER"] for each in moves]
        assert count(supervisor, "STOPPING") == 0
        assert server_at(tmp_path, supervisor.port).ask("GET", "/readyz")[0] == 200
    finally:
        os.kill(int(new), signal.SIGKILL)


def test_only_the_main_process_of_an_upgrade_feeds_the_watchdog(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    old = supervisor.start(*SERVE, "--allow-shell", WATCHDOG_USEC="40000")
    started.append(old)
    wait_ready(supervisor)
    server = server_at(tmp_path, supervisor.port)
    job = server.submit(task="shell", payload={"command": "sleep 60"})
    runs = f"/v1/jobs/{job['id']}"
    eventually(lambda: server.ask("GET", runs)[1]["state"] == "running", "a running job")

    command = [sys.executable, "-m", "schedo", "upgrade", "--store", str(tmp_path / "jobs.db")]
    subprocess.run(command, check=True)

    new = (tmp_path / "jobs.db.lock").read_text().split()[1]
    try:

        def senders() -> list[str]:
            """Return who has fed it since the old process has named the new one."""
            messages = supervisor.messages
            moves = [(m.get("MAINPID"), m["SENDER"]) == (new, str(old.pid)) for m in messages]
            after = messages[moves.index(True) :] if any(moves) else []
            return [each["SENDER"] for each in after if "WATCHDOG" in each]

        eventually(lambda: senders().count(new) >= 5, "watchdog messages of the new process")
        assert old.poll() is None
        assert str(old.pid) not in senders()
    finally:
        server.ask("POST", f"{runs}:cancel")
        os.kill(int(new), signal.SIGTERM)


def test_a_socket_that_other_machines_reach_is_refused_without_a_token(
    supervisor: Supervisor, started: list[subprocess.Popen[str]]
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        started.append(supervisor.start(*SERVE, sockets=[everywhere]))

        assert started[-1].wait(DEADLINE_S) == 2
    assert "without a token" in supervisor.log()


@pytest.mark.parametrize(
    ("family", "kind", "reason"),
    [
        (socket.AF_INET, socket.SOCK_DGRAM, "SOCK_DGRAM"),
        (socket.AF_UNIX, socket.SOCK_DGRAM, "AF_UNIX"),
        (socket.AF_UNIX, socket.SOCK_STREAM, "Accept=yes"),
        (socket.AF_INET, socket.SOCK_STREAM, "Accept=yes"),
    ],
)
def test_a_descriptor_that_is_no_listening_stream_socket_is_refused(
    supervisor: Supervisor,
    started: list[subprocess.Popen[str]],
    family: socket.AddressFamily,
    kind: socket.SocketKind,
    reason: str,
) -> None:
    with socket.socket(family, kind) as wrong:
        started.append(supervisor.start(*SERVE, sockets=[wrong]))

        assert started[-1].wait(DEADLINE_S) == 2
    assert "LISTEN_FDS: descriptor 3 is not a listening stream socket" in supervisor.log()
    assert reason in supervisor.log()


def test_commands_get_neither_the_listener_nor_the_variables(
    supervisor: Supervisor, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    started.append(supervisor.start(*SERVE, "--allow-shell", WATCHDOG_USEC="9000000"))
    wait_ready(supervisor)
    server = server_at(tmp_path, supervisor.port)
    job = server.submit(task="shell", payload={"command": "env; ls -l /proc/self/fd"})

    assert server.ended(job["id"])["state"] == "completed"
    output = server.output(job["id"])
    assert not any(word in output for word in ("LISTEN_", "NOTIFY_", "WATCHDOG_", "socket:"))
