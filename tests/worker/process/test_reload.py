"""`schedo serve --reload`: changes of source files, and the children that import them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schedo.core.commands import Declared
from schedo.engine.engine import Engine
from schedo.errors import Overloaded
from schedo.protocol.frames import Attach
from schedo.worker.process.pool import PoolSettings
from schedo.worker.process.source_watch import SourceWatch
from schedo.worker.process.supervisor import ChildSupervisor
from tests.worker.site import BRISK, LONG_S, Site, serving

APP = """
from schedo import Schedo
app = Schedo()
@app.{rule}
@app.task
async def version() -> str:
    return {version!r}
"""


class WatchedFolder:
    """A watch of a folder, whose looks the test makes."""

    def __init__(self, folder: Path) -> None:
        self.changes = 0
        self._folder = folder
        self._watch = SourceWatch(folder, self._count)

    def _count(self) -> None:
        self.changes += 1

    def look(self) -> int:
        """Look at the files as they are; return the number of changes so far."""
        fresh = SourceWatch(self._folder, self._count)
        self._watch.look(fresh.files)
        return self.changes


def test_a_change_counts_when_a_look_finds_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.worker")
    (tmp_path / "a.py").write_text("1")
    watch = WatchedFolder(tmp_path)
    counts = [watch.look()]
    (tmp_path / "a.py").write_text("22")
    counts.append(watch.look())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_text("1")
    counts += [watch.look(), watch.look(), watch.look()]
    (tmp_path / "a.py").unlink()
    counts += [watch.look(), watch.look()]

    assert counts == [0, 0, 0, 1, 1, 1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "reload: a.py, sub/b.py changed",
        "reload: a.py changed",
    ]


@pytest.mark.parametrize(
    "name", ["notes.txt", ".git/a.py", "node_modules/a.py", "__pycache__/a.py", "env/lib/a.py"]
)
def test_other_files_do_not_count(tmp_path: Path, name: str) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    watch = WatchedFolder(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("1")

    assert [watch.look(), watch.look()] == [0, 0]


async def until_version(site: Site, version: str) -> None:
    async with asyncio.timeout(LONG_S):
        while (await site.run("version"))["result"] != version:
            pass


async def rule_of(engine: Engine) -> str | None:
    return (await engine.get_schedule("version")).spec.rule.cron


@asynccontextmanager
async def starting(folder: Path) -> AsyncIterator[tuple[Site, asyncio.Task[None]]]:
    """A site in which children of `changing:app` are being started, with --reload."""
    site = Site(folder, "changing:app", PoolSettings(1, 4, 0, BRISK, is_reloading=True))
    await site.engine.start()
    start = asyncio.create_task(site.children.start())
    try:
        yield site, start
    finally:
        await site.children.stop(0)
        await site.engine.stop()


async def logged(site: Site, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Return once the text is in the log."""
    async with asyncio.timeout(LONG_S):
        while text not in caplog.text:
            await site.engine.flush()


async def test_new_children_run_the_new_code_and_its_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text(APP.format(version="old", rule='cron("0 1 * * *")'))
    async with serving(tmp_path, "changing:app") as site:
        await until_version(site, "old")
        before = await rule_of(site.engine)

        module.write_text(APP.format(version="the new one", rule='cron("0 2 * * *")'))
        site.children.reload()
        await until_version(site, "the new one")
        async with asyncio.timeout(LONG_S):
            while await rule_of(site.engine) == before:
                await site.engine.flush()

        assert (before, await rule_of(site.engine)) == ("0 1 * * *", "0 2 * * *")


async def test_jobs_wait_while_the_new_code_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text(APP.format(version="old", rule='every("1h")'))
    async with serving(tmp_path, "changing:app") as site:
        module.write_text("1 / 0")
        site.children.reload()
        job = await site.submit("version")
        await logged(site, caplog, "ZeroDivisionError")
        module.write_text(APP.format(version="mended", rule='every("1h")'))
        site.children.reload()

        assert (await site.end(job))["result"] == "mended"


async def test_a_child_that_was_importing_during_a_reload_gets_no_job_and_declares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text(APP.format(version="old", rule='cron("0 1 * * *")'))
    async with serving(tmp_path, "changing:app") as site:
        changes = [APP.format(version="the newest", rule='cron("0 3 * * *")')]
        attach = ChildSupervisor._on_attach

        def change_and_attach(child: ChildSupervisor, frame: Attach) -> None:
            while changes:
                module.write_text(changes.pop())
                site.children.reload()
            attach(child, frame)

        monkeypatch.setattr(ChildSupervisor, "_on_attach", change_and_attach)
        module.write_text(APP.format(version="the new one", rule='cron("0 2 * * *")'))
        site.children.reload()
        ended = await site.end(await site.submit("version"))
        async with asyncio.timeout(LONG_S):
            while await rule_of(site.engine) != "0 3 * * *":
                await site.engine.flush()

    assert (ended["result"], ended["attempt"]) == ("the newest", 1)


async def test_a_start_waits_until_the_code_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text("1 / 0")
    async with starting(tmp_path) as (site, start):
        await logged(site, caplog, "the start continues when a source file changes")
        assert "ZeroDivisionError" in caplog.text
        assert not start.done()
        module.write_text(APP.format(version="mended", rule='every("1h")'))
        site.children.reload()
        await start

        await until_version(site, "mended")
        assert await rule_of(site.engine) is None  # it is declared: an interval


async def test_a_start_that_waits_for_a_change_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changing.py").write_text("1 / 0")
    async with starting(tmp_path) as (site, start):
        await logged(site, caplog, "the start continues")
        start.cancel()
        await asyncio.wait([start])
        assert start.cancelled()


async def test_new_code_runs_even_if_its_schedules_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "changing.py"
    module.write_text(APP.format(version="old", rule='every("1h")'))
    refused = asyncio.Event()
    async with serving(tmp_path, "changing:app") as site:

        async def refuse(command: object) -> list[Declared]:
            refused.set()
            raise Overloaded("there are too many expectations")

        monkeypatch.setattr(site.engine.declarations, "put", refuse)
        module.write_text(APP.format(version="the new one", rule='every("2h")'))
        site.children.reload()
        await until_version(site, "the new one")
        await asyncio.wait_for(refused.wait(), 10)

    assert "of changing:app were not put: there are too many expectations" in caplog.text
