"""What handlers print and log is kept with their jobs, and still goes where it went."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, CapturedOutput, Completed
from schedo.core.limits import OUTPUT_BYTES_MAX
from schedo.core.progress import ProgressUpdate
from schedo.tasks.arguments import Arguments
from schedo.tasks.head_and_tail import HeadAndTail
from schedo.tasks.log_records import name_jobs_in_logs
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext
from schedo.tasks.task_output import REPORT_S, TaskOutput, keep_task_output
from schedo.tasks.threads import HandlerThreads
from tests.passes import WITHIN_S
from tests.worker.calls import JOB, make_context, run_task


class Process:
    """This process, with its streams replaced as in a worker process.

    It begins inside the test, because pytest sets the streams between a fixture and its test.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self._monkeypatch = monkeypatch
        self._is_begun = False

    def begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._monkeypatch.setattr(sys, "stdout", self.stdout)
            self._monkeypatch.setattr(sys, "stderr", self.stderr)
            keep_task_output("text").loop = self  # type: ignore[assignment]

    def call_soon_threadsafe(self, call_later: Any, delay_s: float, report: Any) -> None:
        self.later.append((delay_s, report))

    def call_later(self) -> None: ...

    async def run(
        self, function: Callable[[], Any], context: AttemptContext | None = None
    ) -> AttemptResult:
        """Run the function as the handler of a job."""
        self.begin()
        task = TaskSpec("talk", function, Arguments("talk", function))
        with HandlerThreads(1) as threads:
            runner = TaskRunner(task, threads)
            return await run_task(runner, context or make_context({}, "talk"))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    factory, handlers = logging.getLogRecordFactory(), list(logging.getLogger().handlers)
    yield Process(monkeypatch)
    logging.setLogRecordFactory(factory)
    logging.getLogger().handlers[:] = handlers


def kept(result: AttemptResult) -> dict[str, str]:
    """Return the text of each kept stream."""
    return {each.stream: (each.head + each.tail).decode() for each in result.output}


def talk() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)


async def talk_async() -> None:
    talk()
    await asyncio.to_thread(print, "from a thread")


async def test_what_a_plain_function_prints_is_kept_and_passed_on(process: Process) -> None:
    result = await process.run(talk)

    assert kept(result) == {"stdout": "to stdout\n", "stderr": "to stderr\n"}
    assert (process.stdout.getvalue(), process.stderr.getvalue()) == ("to stdout\n", "to stderr\n")


async def test_what_an_async_function_and_its_threads_print_is_kept(process: Process) -> None:
    result = await process.run(talk_async)

    assert kept(result)["stdout"] == "to stdout\nfrom a thread\n"


async def test_jobs_at_the_same_time_keep_their_own_output(process: Process) -> None:
    turns = [asyncio.Event(), asyncio.Event()]

    def make(number: int) -> Callable[[], Any]:
        async def handler() -> None:
            print(f"{number} begins")
            turns[number].set()
            await turns[1 - number].wait()
            sys.stdout.writelines([f"{number} ends", "\n"])

        return handler

    results = await asyncio.gather(*(process.run(make(number)) for number in (0, 1)))

    assert [kept(each)["stdout"] for each in results] == [
        "0 begins\n0 ends\n",
        "1 begins\n1 ends\n",
    ]


async def test_a_job_that_prints_nothing_has_no_output(process: Process) -> None:
    process.begin()
    print("outside")

    assert (await process.run(lambda: None)).output == ()


async def test_a_long_output_keeps_its_ends(process: Process) -> None:
    def flood() -> None:
        print("first")
        for _ in range(40):
            print("x" * 65_536)
        print("last")

    (captured,) = (await process.run(flood)).output

    assert isinstance(captured, CapturedOutput)
    assert len(captured.head) + len(captured.tail) == OUTPUT_BYTES_MAX
    assert captured.head.startswith(b"first\n")
    assert captured.tail.endswith(b"x\nlast\n")
    assert captured.total_bytes == len("first\nlast\n") + 40 * 65_537


async def test_the_output_of_a_running_job_is_reported_once_a_second(process: Process) -> None:
    reports: list[ProgressUpdate] = []
    context = make_context({}, "talk")
    context.report_progress = lambda _, update: reports.append(update)

    async def handler() -> None:
        print("one")
        print("two")
        ((delay_s, report),) = process.later
        report()
        print("three")
        assert (delay_s, len(process.later)) == (REPORT_S, 2)

    result = await process.run(handler, context)
    process.later[1][1]()  # it is due after the end

    assert isinstance(result.outcome, Completed), result
    assert reports == [ProgressUpdate(stdout="one\ntwo\n", stdout_bytes=8)]


async def test_log_lines_are_kept_with_the_job_and_name_it(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    def handler() -> None:
        logging.getLogger("svc").warning("a %s", "word")

    result = await process.run(handler)
    logging.getLogger("svc").warning("outside")

    assert kept(result)["stderr"].endswith(f"Z warning svc: job {JOB} of task talk: a word\n")
    inside, outside = caplog.records
    assert vars(inside).items() >= {
        ("schedo_job", JOB),
        ("schedo_task", "talk"),
        ("schedo_attempt", 2),
    }
    assert vars(outside).items() >= {("schedo_job", "-"), ("schedo_task", "-")}


async def test_a_format_of_the_users_own_can_name_the_job(process: Process) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(schedo_job)s %(schedo_task)s %(message)s"))
    logging.getLogger().addHandler(handler)

    await process.run(lambda: logging.getLogger("svc").error("x"))

    assert stream.getvalue() == f"{JOB} talk x\n"


def test_jobs_are_named_once(process: Process) -> None:
    process.begin()
    before = logging.getLogRecordFactory()
    name_jobs_in_logs()

    assert logging.getLogRecordFactory() is before


def test_the_replaced_streams_are_otherwise_the_old_ones(process: Process) -> None:
    process.begin()
    print("outside")

    assert getattr(sys.stdout, "getvalue")() == "outside\n"  # noqa: B009 - only the old one has it
    assert sys.stderr.isatty() is False


@pytest.mark.parametrize("moment", ["__init__", "feed"])
def test_what_a_finalizer_prints_while_another_text_is_kept_is_kept_as_well(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Python may call a finalizer wherever it makes an object, and so while a lock is held."""
    output, context = TaskOutput(), make_context(None, "talk")
    step = getattr(HeadAndTail, moment)

    def collect(kept: HeadAndTail, *arguments: bytes) -> None:
        monkeypatch.undo()
        output.keep(context, "stdout", "finalized\n")
        step(kept, *arguments)

    monkeypatch.setattr(HeadAndTail, moment, collect)
    printing = threading.Thread(
        target=output.keep, args=(context, "stdout", "printed\n"), daemon=True
    )
    printing.start()
    printing.join(WITHIN_S)

    assert not printing.is_alive()
    assert context.output is not None
    (stdout,) = context.output.end()
    assert sorted(stdout.head.splitlines()) == [b"finalized", b"printed"]


def test_a_text_that_another_thread_takes_is_kept_before_the_attempt_ends() -> None:
    output, context = TaskOutput(), make_context(None, "talk")
    with output.locked():
        output.keep(context, "stdout", "a")

        assert context.output is not None

    (stdout,) = context.output.end()
    assert stdout.head == b"a"
