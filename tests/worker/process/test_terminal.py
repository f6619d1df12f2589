"""A child process beside the terminal of its server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.worker.site import Site


async def test_a_child_process_leads_a_group_in_the_session_of_the_server(site: Site) -> None:
    pid = (await site.run("where"))["result"]

    assert (os.getpgid(pid), os.getsid(pid)) == (pid, os.getsid(0))


async def test_no_terminal_stops_a_child_process(site: Site) -> None:
    pid = (await site.run("where"))["result"]

    status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    ignored = int(fields["SigIgn"], 16)
    assert all(ignored & 1 << number - 1 for number in (signal.SIGTTIN, signal.SIGTTOU))
