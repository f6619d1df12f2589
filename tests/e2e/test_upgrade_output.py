"""What the application of a server writes is in its log, also after an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_upgrade import ROOT, upgradable

pytestmark = pytest.mark.e2e
APPLICATION = """\
import sys
from schedo import Schedo

app = Schedo()


@app.task
def shout(text: str) -> None:
    print(text, flush=True)
    print(text[::-1], file=sys.stderr, flush=True)
"""


def test_the_children_of_the_new_process_write_to_the_log_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "shout_app.py").write_text(APPLICATION)
    with upgradable(tmp_path, "shout_app:app", PYTHONPATH=f"{tmp_path}:{ROOT}") as upgraded:
        server = upgraded.server
        upgraded.upgraded()

        ended = server.ended(server.submit(task="shout", payload={"text": "by-a-task"})["id"])

        assert ended["state"] == "completed", ended
        assert "by-a-task" in server.log()
        assert "ksat-a-yb" in server.log()
