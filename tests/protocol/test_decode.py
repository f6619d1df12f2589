"""Every error of a request names its field; nothing that was sent makes an error long."""

from __future__ import annotations

import orjson
import pytest

from schedo.core.model import PLAIN, JobSpec, Retry, Unique
from schedo.errors import Invalid
from schedo.protocol.decode import decode_request
from schedo.protocol.invocations import ShortRequest
from schedo.protocol.jobs import JobRequest
from schedo.protocol.schedules import ScheduleRequest
from schedo.tasks.shell.payload import ShellPayload


def read_job(**fields: object) -> JobSpec:
    return decode_request(orjson.dumps({"task": "t", **fields}), JobRequest).to_spec()


def test_a_job_without_options_has_the_default_options() -> None:
    spec = read_job()

    assert spec == JobSpec("t")
    assert spec.options is PLAIN


def test_options_become_microseconds_and_tuples() -> None:
    spec = read_job(
        payload={"a": 1},
        delay="1h30m",
        expires_in="2h",
        retry={"max_attempts": 3, "backoff": "fixed", "initial": "500ms"},
        unique={"key": "k", "while": ["queued", "running", "queued"], "on_conflict": "replace"},
        tags=["b", "a", "b"],
        timeout=2.5,
    )

    assert (spec.payload, spec.delay_us, spec.expires_in_us) == (
        b'{"a":1}',
        5_400_000_000,
        7_200_000_000,
    )
    assert spec.options.retry == Retry(3, "fixed", 500_000)
    assert spec.options.unique == Unique("k", ("queued", "running"), None, "replace")
    assert spec.options.tags == ("b", "a")
    assert spec.options.timeout_us == 2_500_000


def test_retry_and_unique_have_short_forms() -> None:
    spec = read_job(retry=7, unique="k")

    assert spec.options.retry == Retry(max_attempts=7)
    assert spec.options.unique == Unique("k")
    webhook = read_job(retry="webhook").options.retry
    assert webhook is not None
    assert webhook.ladder_us[0] == 5_000_000


def test_a_cron_macro_with_an_interval_becomes_an_interval() -> None:
    body = b'{"cron":"@every 90s","task":"t"}'

    rule = decode_request(body, ScheduleRequest).to_spec("s").rule

    assert (rule.cron, rule.every_us) == (None, 90_000_000)


def test_a_zone_in_a_cron_expression_moves_to_its_field() -> None:
    body = b'{"cron":"CRON_TZ=Asia/Tokyo 0 9 * * *","task":"t"}'

    rule = decode_request(body, ScheduleRequest).to_spec("s").rule

    assert (rule.cron, rule.tz) == ("0 9 * * *", "Asia/Tokyo")


def test_a_command_becomes_the_payload_of_a_shell_job() -> None:
    spec = decode_request(b'{"command":"say \\"hi\\"","delay_seconds":0.5}', ShortRequest).to_spec()

    assert spec == JobSpec("shell", b'{"command":"say \\"hi\\""}', delay_us=500_000)


@pytest.mark.parametrize(
    "name", ["x" * 500_000, "x - at `$." + "y." * 100_000 + "`", " - at `$" * 60_000, "`\n`"]
)
def test_a_long_or_strange_field_name_is_shortened_in_the_error(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(**{name: 1})

    assert len(str(caught.value)) < 1_000
    assert len(caught.value.problems[0].pointer) < 500


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"task": 1}, "/task: Expected text, got whole number"),
        ({"queue": ["a"]}, "/queue: Expected text, got array"),
        ({"priority": "1"}, "/priority: Expected whole number, got text"),
        ({"priority": 10}, "/priority: Expected whole number <= 9"),
        ({"delay": {}}, "/delay: Expected number or text, got object"),
        ({"delay": True}, "/delay: Expected number or text, got true or false"),
        ({"meta": 1.5}, "/meta: Expected object, got number"),
        ({"tags": [1]}, "/tags/0: Expected text, got whole number"),
    ],
    ids=str,
)
def test_a_wrong_type_is_reported_with_the_json_names_of_the_types(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(**fields)

    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"env": {"A": "a", "PORT": 8080, "B": 1}}, "/env/PORT: Expected text, got whole number"),
        ({"env": {"a/b~": None}, "grace": {}}, "/env/a~1b~0: Expected text, got null"),
        ({"env": {"...": 1}}, "/env/...: Expected text, got whole number"),
        ({"...": 1}, "/...: there is no such field"),
        (  # to look for the name would hold the event loop up
            {"env": {"A": 1}, "stdin": "x" * 16_384},
            "/env/...: Expected text, got whole number",
        ),
    ],
    ids=range(5),
)
def test_the_error_for_a_member_of_an_object_names_the_member(
    payload: dict[str, object], reason: str
) -> None:
    with pytest.raises(Invalid) as caught:
        decode_request(orjson.dumps({"command": "x", **payload}), ShellPayload)

    assert str(caught.value) == reason


@pytest.mark.parametrize("name", [" - at `$.env[...]`", " - at `$[...]`", " - at `$.command[...]`"])
def test_the_name_of_a_field_that_looks_like_a_place_is_no_place(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_request(orjson.dumps({"command": "x", name: 1}), ShellPayload)

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"delivery": "maybe"},
            "/delivery: 'maybe' is none of at_least_once, at_most_once",
        ),
        (
            {"retry": {"backoff": "linear"}},
            "/retry/backoff: 'linear' is none of exponential, fixed",
        ),
        (
            {"unique": {"key": "k", "while": ["queued", "late"]}},
            "/unique/while/1: 'late' is none of blocked, queued, retrying, running, scheduled",
        ),
    ],
    ids=str,
)
def test_the_error_for_an_unknown_choice_names_the_choices(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(**fields)

    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"retrys": 3}, "/retrys: there is no such field; did you mean retry?"),
        ({"retry": {"max_attemps": 3}}, "/retry/max_attemps: there is no such field; did you mean"),
        ({"unique": {"key": "k", "fro": "1h"}}, "/unique/fro: there is no such field; did you"),
        ({"on_failure": {"task": "a", "qeue": "b"}}, "/on_failure/qeue: there is no such field;"),
        ({"prefer": [{"labels": {}, "wait": 1}]}, "did you mean weight?"),
        ({"colour": "red"}, "/colour: there is no such field"),
    ],
)
def test_an_unknown_field_is_refused_with_a_similar_name(
    fields: dict[str, object], place: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(**fields)

    assert place in str(caught.value)
