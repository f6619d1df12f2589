"""Hostile clients of the control socket of a real server: they get nothing and disturb nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.server import Server, eventually, serving

pytestmark = pytest.mark.e2e

FLOOD, HELD = 2_000, 200  # connections, and how many of them at once
AS_ANOTHER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    sock.connect(sys.argv[1])
    print(sock.recv(4096).decode())
except PermissionError:
    print("no permission")
"""


def attack(path: Path) -> None:
    """Send garbage, too much, stray descriptors, a half message and thousands of connections."""
    hello = json.dumps(
        {"type": "hello", "role": "observer", "version": "1", "schema": 1, "pid": 1}
    ).encode()
    with socket.socket() as stray:
        descriptors = [stray.fileno()] * 64
        for data, fds in (
            (b"\0" * 100, []),
            (b"{}", []),
            (b'{"type":"get_listeners"}', []),
            (hello[: len(hello) // 2], []),
            (b"[" * 60_000, []),
            (hello, descriptors),
            (hello, descriptors[:3]),
            (b"\xff\xfe", descriptors[:1]),
        ):
            with suppress(OSError), connect(path) as client:
                socket.send_fds(client, [data], fds)
                client.recv(4_096)
    for _ in range(FLOOD // HELD):
        with ExitStack() as held:
            for _ in range(HELD):
                with suppress(OSError):  # the queue is full, or the server has closed it
                    held.enter_context(connect(path)).send(b"x")


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(1)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def count_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def assert_serving(server: Server) -> None:
    job = server.submit(task="shell", payload={"command": "echo $SCHEDO_EPOCH"})
    assert server.ended(job["id"])["state"] == "completed"
    assert server.output(job["id"]) == "1\n"


def test_hostile_clients_leak_nothing_and_disturb_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        assert_serving(server)
        attack(server.directory / "data" / "schedo.db.ctl")  # loads what such clients need
        before = count_descriptors(server.pid)

        attack(server.directory / "data" / "schedo.db.ctl")

        assert_serving(server)
        eventually(lambda: count_descriptors(server.pid) <= before, "end of all connections")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(
    ("mode", "answer"), [(0o600, "no permission"), (0o666, "may not use the control socket")]
)
def test_another_user_gets_nothing(tmp_path: Path, mode: int, answer: str) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        path = tmp_path / "data" / "schedo.db.ctl"
        for parent in path.parents:
            if "pytest" in str(parent):
                os.chmod(parent, 0o711)
        os.chmod(path, mode)

        client = [sys.executable, "-c", AS_ANOTHER, str(path)]
        found = subprocess.run(client, capture_output=True, text=True, check=False)

        assert answer in found.stdout, found
        assert_serving(server)
