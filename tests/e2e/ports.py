"""Ports for servers that restart at the same address."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path


def find_port() -> int:
    """Return a free port that the kernel gives no client.

    While no server listens, clients connect again and again. If the kernel may give them the port
    as their own, one of them connects to itself at last, and the port is in use.
    """
    clients_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, clients_from), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("there is no free port")
