"""The scripts of bench/server, run as processes: their results and their clean-up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.embedded import complete
from bench.server.evidence import check_completed
from tests.e2e.server import DEADLINE_S, eventually
from tests.sources import ROOT

pytestmark = pytest.mark.e2e


async def test_a_count_that_is_not_a_multiple_of_the_batch_is_completed_exactly(
    tmp_path: Path,
) -> None:
    await complete(tmp_path / "bench.db", count=15, batch=10, in_flight=1)

    assert check_completed(tmp_path / "bench.db", "probe", 15)


def find_children(script: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()


@pytest.mark.parametrize(
    ("words", "children"),
    [
        pytest.param("submits --connections 1 --count 100000", 2, id="driving servers"),
        pytest.param("drift", 0, id="in its own loop"),
    ],
)
def test_a_script_that_gets_sigterm_removes_its_server_and_files(
    words: str, children: int, tmp_path: Path
) -> None:
    name, *options = words.split()
    script = subprocess.Popen(
        [sys.executable, "-m", f"bench.server.{name}", *options, "--directory", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: [*tmp_path.rglob("bench.db")], "store")
        begun = find_children(script)

        script.send_signal(signal.SIGTERM)

        said = script.communicate(timeout=DEADLINE_S)[1]
    finally:
        script.kill()
        script.wait()
    assert len(begun) == children
    assert script.returncode == 1
    assert said.endswith("not done: interrupted\n")  # warnings of Python may come before it
    assert "Traceback" not in said
    assert not [*tmp_path.iterdir()]
    assert not [child for child in begun if Path("/proc", child).exists()]
