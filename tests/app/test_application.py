"""Declaring tasks and schedules, and the declarations that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedo import Retry, Schedo
from schedo.app.options import make_job
from schedo.client.options import EventJob
from schedo.core.keep import KeepTimes
from schedo.core.model import Catchup, Overlap
from schedo.errors import Invalid
from tests.app.example import Example, Sum


async def test_a_task_can_be_called_as_a_function(example: Example) -> None:
    assert await example.add(1, b=2) == Sum(3)
    assert example.double(4) == 8
    assert (example.add.name, example.add.__name__) == ("add", "add")


def test_a_task_may_have_a_name_of_its_own() -> None:
    app = Schedo()

    @app.task(name="email.send", timeout="30s", retries=5, delivery="at_most_once", tags=["mail"])
    async def send() -> None: ...

    options = app.registry.tasks["email.send"].options
    assert options.timeout_us == 30_000_000
    assert options.retry is not None
    assert options.retry.max_attempts == 6  # the first attempt and five retries
    assert (options.at_most_once, options.tags) == (True, ("mail",))
    assert repr(send) == "Task('email.send')"


def test_options_of_a_job_override_those_of_its_task() -> None:
    defaults = {"queue": "slow", "timeout": "30s", "priority": 2, "tags": ["a"]}

    own = {"queue": "fast", "delay": timedelta(seconds=1.5), "tags": None}

    spec = make_job("t", defaults, own).spec

    assert (spec.queue, spec.delay_us, spec.priority) == ("fast", 1_500_000, 2)
    assert (spec.options.timeout_us, spec.options.tags) == (30_000_000, ("a",))


def test_every_option_of_a_retry_is_used() -> None:
    until = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    asked = Retry(4, "fixed", timedelta(seconds=1), 1.0, "2m", 0.0, until)

    retry = make_job("t", {"retries": asked}).spec.options.retry

    assert retry is not None
    assert (retry.max_attempts, retry.backoff, retry.initial_us) == (4, "fixed", 1_000_000)
    assert (retry.factor, retry.max_us, retry.jitter) == (1.0, 120_000_000, 0.0)
    assert retry.until_at == 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({"retries": 2}, 3),
        ({"retry": 2}, 2),
        ({"retry": {"max_attempts": 2}}, 2),
        ({"retries": {"max_attempts": 2}}, 2),
        ({"retry": Retry(max_attempts=2)}, 2),
    ],
)
def test_only_retries_as_a_number_leaves_out_the_first_attempt(
    options: dict[str, Any], attempts: int
) -> None:
    retry = make_job("t", options).spec.options.retry

    assert retry is not None
    assert retry.max_attempts == attempts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": "soon"}, "task 'add': delay: 'soon' is not a duration"),
        ({"delay": 1, "run_at": "2027-01-15T08:00:00Z"}, "give delay or run_at, not both"),
        ({"run_at": datetime(2027, 1, 15)}, "has no time zone"),  # noqa: DTZ001
        ({"priority": 10}, "task 'add': priority"),
        ({"queue": "a b"}, "task 'add': queue"),
        ({"retries": -1}, "task 'add': retry: the attempts must be 1 to 100"),
        ({"retries": 100}, "task 'add': retry: the attempts must be 1 to 100"),
        ({"retries": "often"}, "task 'add': retry: 'often' is no preset"),
        ({"retries": True}, "task 'add': retries"),
        ({"retries": 2, "retry": 3}, "task 'add': retries: give either retries or retry, not both"),
        ({"broadcast": True}, "task 'add': broadcast: call the task's method broadcast()"),
        ({"timeout": 0}, "task 'add': timeout"),
        ({"unique": ""}, "task 'add': unique"),
        ({"unique": "a\0b"}, "task 'add': unique: the character U+0000 is not allowed"),
        ({"unique": {"key": "\0"}}, "task 'add': unique.key: the character U+0000"),
        ({"colour": "red"}, "task 'add': colour: there is no such field"),
        ({"retrys": 3}, "task 'add': retrys: there is no such field; did you mean retry?"),
        ({"retry": {"factr": 2}}, "retry.factr: there is no such field; did you mean factor?"),
        ({"meta": {"x": object()}}, "cannot be written as JSON"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    example: Example, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid) as caught:
        example.add.options(**options)

    assert message in str(caught.value)


def test_a_bad_option_of_a_schedule_is_refused_with_the_name_of_the_schedule() -> None:
    app = Schedo()

    def work() -> None: ...

    with pytest.raises(Invalid, match=r"schedule 'nightly': cron: there are 4 fields; write"):
        app.cron("0 9 * *", name="nightly")(work)
    with pytest.raises(Invalid, match=r"overlp: there is no such field; did you mean overlap\?"):
        Schedo().every("1h", overlp="skip")(work)  # type: ignore[call-arg]


def test_a_schedule_can_be_declared_on_a_task_or_on_a_function() -> None:
    app = Schedo()

    @app.cron("30 2 * * *", tz="Europe/Paris", name="nightly", payload={"n": 3}, queue="quiet")
    @app.every("90s", overlap="allow", catchup="skip", jitter="5s")
    @app.task(timeout="30s", queue="busy")
    async def sweep(n: int = 1) -> None: ...

    @app.cron("@daily", timeout="10s")
    def report() -> None: ...

    schedules = app.registry.schedules
    assert sorted(schedules) == ["nightly", "report", "sweep"]
    nightly, often, daily = schedules["nightly"], schedules["sweep"], schedules["report"]
    assert (nightly.rule.cron, nightly.rule.tz) == ("30 2 * * *", "Europe/Paris")
    assert (nightly.job.payload, nightly.job.queue) == (b'{"n":3}', "quiet")
    assert nightly.job.options.timeout_us == 30_000_000
    assert (often.rule.every_us, often.rule.jitter_us) == (90_000_000, 5_000_000)
    assert (often.overlap, often.catchup) == (Overlap.ALLOW, Catchup.SKIP)
    assert (often.job.payload, often.job.queue) == (b"{}", "busy")
    assert daily.job.options.timeout_us == 10_000_000
    assert app.registry.tasks["report"].options.timeout_us == 10_000_000


def test_an_invalid_declaration_is_refused_at_once() -> None:
    app = Schedo()

    @app.task
    async def send(to: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'to'"):
        app.cron("@daily")(send)
    with pytest.raises(Invalid, match="99"):
        app.cron("99 * * * *", payload={"to": "x"})(send)
    with pytest.raises(Invalid, match="Mars"):
        app.cron("@daily", tz="Mars/Base", payload={"to": "x"})(send)
    with pytest.raises(TypeError, match=r"above @app\.task"):
        app.task(send)
    with pytest.raises(ValueError, match="two tasks named 'send'"):
        app.task(name="send")(lambda: None)
    with pytest.raises(TypeError, match=r"write @app\.task\(name='email'\)"):
        app.task("email")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(Invalid, match="the name of a task: '<lambda>': a name is"):
        app.task(lambda: None)
    with pytest.raises(Invalid, match="no such field"):
        app.task(colour="red")(print)  # type: ignore[call-overload]
    app.every(1.5, payload={"to": "x"})(send)
    with pytest.raises(ValueError, match="two schedules named 'send'"):
        app.every("1m", payload={"to": "x"})(send)


@pytest.mark.parametrize(
    "options", [{"store": "x", "url": "y"}, {"concurrency": 0}], ids=["both", "nobody works"]
)
def test_contradicting_arguments_of_an_application_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Schedo(**options)


def test_a_task_and_a_schedule_may_name_a_job_for_their_failures() -> None:
    app = Schedo()
    hook: EventJob = {"task": "http", "payload": {"url": "https://hooks.test/x"}}

    @app.every("1h", on_failure=hook)
    @app.task(on_failure="alert")
    async def sync() -> None: ...

    of_task = app.registry.tasks["sync"].options.on_failure
    of_schedule = app.registry.schedules["sync"].job.options.on_failure
    assert (of_task and of_task.task, of_schedule and of_schedule.task) == ("alert", "http")


def test_a_wrong_payload_of_an_event_job_is_refused_where_it_is_declared() -> None:
    app = Schedo()

    wrong: EventJob = {"task": "http", "payload": {"url": "hooks.test"}}

    with pytest.raises(Invalid, match=r"task 'sync': on_failure\.payload\.url: "):
        app.task(name="sync", on_failure=wrong)(lambda: None)


def test_each_time_of_a_keep_overrides_that_of_the_task() -> None:
    defaults = {"keep": {"completed": "1h", "failed": timedelta(days=1)}}

    keep = make_job("t", defaults, {"keep": {"completed": 0}}).spec.options.keep

    assert keep == KeepTimes(completed_us=0, failed_us=86_400_000_000)
    with pytest.raises(Invalid, match="give times by state"):
        make_job("t", defaults, {"keep": "1h"})
