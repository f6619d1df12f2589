"""What the control socket of a server says beside its readiness."""

from __future__ import annotations

from pathlib import Path

from schedo.config import Config
from schedo.core.model import PauseScope
from schedo.server.active import ActiveServer
from schedo.server.server import Server
from schedo.server.start import PLAIN_START


async def test_the_status_has_the_note_of_a_pause_while_it_lasts(tmp_path: Path) -> None:
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, PLAIN_START, lambda: config)
    await server.open()
    active = ActiveServer(server)
    assert active.status([]).notes == []

    await server.engine.pause(list(PauseScope), "the database is being moved")
    (note,) = active.status([]).notes
    await server.engine.resume()

    assert "the server is paused: starts, schedules (the database is being moved)" in note
    assert active.status([]).notes == []
    await server.stop()
