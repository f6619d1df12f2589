"""What the spawner does with requests of a server that is gone."""

from __future__ import annotations

import marshal
import os
import socket
from pathlib import Path

from schedo.tasks.shell import spawner_process


def test_a_command_is_not_started_after_the_death_of_the_server(tmp_path: Path) -> None:
    """Another server may have started its job by then."""
    ours, theirs = socket.socketpair()
    made = tmp_path / "made"
    start = (spawner_process.START, 1, ["/bin/touch", str(made)], {"PATH": "/usr/bin:/bin"}, None)
    data = marshal.dumps(start)
    out = os.open(os.devnull, os.O_WRONLY)
    with theirs:
        spawner = spawner_process.SpawnerProcess(theirs)
        with ours:
            message = spawner_process.LENGTH.pack(len(data)) + data
            socket.send_fds(ours, [message], [out, out])

        assert spawner._handle_request()

    os.close(out)
    assert spawner._pids == {}
    assert not made.exists()
