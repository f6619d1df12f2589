"""The child process itself: what it says when it cannot work, and that it dies with its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schedo.workers.attendant import CannotServe
from tests.workers.calls import wait_gone
from tests.workers.site import LONG_S, serving


@pytest.mark.parametrize(
    ("code", "target", "reason"),
    [
        ("", "nowhere:app", "ModuleNotFoundError: No module named 'nowhere'"),
        ("1 / 0", "broken:app", 'broken.py", line 1, in <module>\n    1 / 0\n'),
        ("raise SystemExit(4)", "broken:app", "SystemExit: 4"),
        ("x = 1", "broken:app", "broken has no 'app'"),
        ("app = 1", "broken", "broken is a int, not a Schedo application"),
        ("x = 1", ":app", "write module:attribute"),
        ("import os; os._exit(9)", "broken:app", "the process exited with code 9"),
    ],
    ids=["no module", "raises", "exits", "no name", "no app", "no target", "dies"],
)
async def test_an_application_that_cannot_be_imported_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, target: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(code)

    with pytest.raises(CannotServe) as caught:
        async with serving(tmp_path, target):
            pass

    assert reason in str(caught.value)
    assert "importlib" not in str(caught.value)


def test_a_child_does_not_outlive_a_killed_server(tmp_path: Path, pipe: Path) -> None:
    code = f"""
import asyncio, pathlib
from tests.workers.site import serving
async def main():
    async with serving(pathlib.Path({str(tmp_path)!r})) as site:
        print((await site.run("where"))["result"], flush=True)
        await site.run("block", pipe={str(pipe)!r})
asyncio.run(main())
"""
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        with pipe.open("w"):  # the handler blocks its loop, for it has opened the other end
            server.kill()
            server.wait(LONG_S)

            assert wait_gone(child, LONG_S)
    finally:
        server.kill()
        server.communicate()
