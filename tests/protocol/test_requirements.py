"""Requirements and preferences: reading them from JSON, refusals, and rendering them."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from schedo.core.model import PLAIN, Job, Options
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.errors import Invalid
from schedo.protocol.decode import decode_request
from schedo.protocol.jobs import JobRequest, JobResponse, job_fields
from schedo.protocol.requirements import read_amount, requirements_fields
from schedo.protocol.schedules import ScheduleRequest


def read(**fields: Any) -> Requirements | None:
    body = orjson.dumps({"task": "t", **fields})
    return decode_request(body, JobRequest).to_spec().options.requirements


def labels(**asked: Any) -> tuple[Condition, ...]:
    route = read(requires={"labels": asked})
    assert route is not None
    return route.labels


CONDITIONS: list[tuple[Any, str, tuple[str, ...]]] = [
    ("eu", "=", ("eu",)),
    ("", "=", ("",)),
    (40, "=", ("40",)),
    (40.0, "=", ("40",)),
    (0.5, "=", ("0.5",)),
    (-3, "=", ("-3",)),
    (True, "=", ("true",)),
    (["a100", "h100"], "in", ("a100", "h100")),
    ([1, 2, 1], "in", ("1", "2")),
    (["x"], "in", ("x",)),
    ({"=": "eu"}, "=", ("eu",)),
    ({"!=": "spot"}, "!=", ("spot",)),
    ({">": 1}, ">", ("1",)),
    ({">=": 40}, ">=", ("40",)),
    ({"<": 1.5}, "<", ("1.5",)),
    ({"<=": -2}, "<=", ("-2",)),
    ({"in": ["a"]}, "in", ("a",)),
    ({"not in": ["a", "b"]}, "not in", ("a", "b")),
    ("\u00e9" * 128, "=", ("\u00e9" * 128,)),
]


@pytest.mark.parametrize(("value", "op", "values"), CONDITIONS, ids=lambda value: ascii(value)[:40])
def test_a_value_a_list_or_an_operator_is_a_condition(
    value: Any, op: Any, values: tuple[str, ...]
) -> None:
    assert labels(x=value) == (Condition("x", op, values),)


def test_equal_requirements_are_written_in_the_same_order() -> None:
    first = read(requires={"labels": {"b": 1, "a": 2}, "resources": {"z": 1, "y": 2}})
    second = read(requires={"resources": {"y": 2, "z": 1}, "labels": {"a": 2, "b": 1}})

    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"requires": None, "prefer": None},
        {"requires": {}},
        {"requires": {"labels": {}, "resources": {}}, "prefer": []},
        {"requires": {"resources": {"cpu": 0}}},
    ],
    ids=str,
)
def test_empty_requirements_are_no_requirements(fields: dict[str, Any]) -> None:
    assert read(**fields) is None


def test_a_job_without_requirements_has_none_in_its_options() -> None:
    assert decode_request(b'{"task":"t"}', JobRequest).to_spec().options is PLAIN


AMOUNTS: list[tuple[Any, int]] = [
    (3, 3_000),
    (0, 0),
    (0.5, 500),
    (0.0001, 1),
    (2.0004, 2_000),
    ("3", 3_000),
    ("1.5", 1_500),
    ("0.0001", 1),
    ("2k", 2_000_000),
    ("2kB", 2_000_000),
    ("1M", 1_000_000_000),
    ("1.5G", 1_500_000_000_000),
    ("1T", 1_000_000_000_000_000),
    ("1Ki", 1_024_000),
    ("1Mi", 1_048_576_000),
    ("8GiB", 8_589_934_592_000),
    ("8 GiB", 8_589_934_592_000),
    ("1Ti", 1_099_511_627_776_000),
    (10**15, 10**18),
]


@pytest.mark.parametrize(("value", "thousandths"), AMOUNTS, ids=str)
def test_an_amount_is_a_number_or_has_a_unit(value: Any, thousandths: int) -> None:
    assert read_amount("/x", value) == thousandths


@pytest.mark.parametrize(
    "value",
    [
        -1,
        True,
        None,
        [],
        {},
        "",
        "B",
        "-1",
        "1 B B",
        "1K",
        "1m",
        "1gib",
        "1  Gi",
        "1e3",
        "0x10",
        ".5",
        "5.",
        "\u0665",
        "1" * 16,
        "inf",
        "nan",
        float("inf"),
        float("nan"),
        10**15 + 1,
        "910Ti",
        "1" * 100_000,
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_an_invalid_amount_is_refused(value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        read_amount("/x", value)

    assert caught.value.problems[0].pointer == "/x"
    assert len(str(caught.value)) < 200


def test_the_first_preference_counts_most() -> None:
    route = read(prefer=[{"zone": "lhr"}, {"zone": "eu", "tier": {"!=": "spot"}}, {}])

    assert route is not None
    assert route.prefer == (
        Preference((Condition("zone", "=", ("lhr",)),), 3.0),
        Preference((Condition("tier", "!=", ("spot",)), Condition("zone", "=", ("eu",))), 2.0),
        Preference((), 1.0),
    )


def test_a_preference_may_have_its_own_weight() -> None:
    route = read(
        prefer=[
            {"labels": {"zone": "lhr"}, "weight": 5},
            {"labels": {}, "weight": -0.5},
            {"labels": {"labels": "x"}},
            {"weight": 5},
        ]
    )

    assert route is not None
    assert route.prefer == (
        Preference((Condition("zone", "=", ("lhr",)),), 5.0),
        Preference((), -0.5),
        Preference((Condition("labels", "=", ("x",)),), 2.0),
        Preference((Condition("weight", "=", ("5",)),), 1.0),
    )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"requires": []}, "/requires"),
    ({"requires": {"label": {}}}, "/requires/label"),
    ({"requires": {"worker": ""}}, "/requires/worker"),
    ({"requires": {"worker": "a b"}}, "/requires/worker"),
    ({"requires": {"labels": []}}, "/requires/labels"),
    ({"requires": {"labels": {"x": None}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": []}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": [None]}}}, "/requires/labels/x/0"),
    ({"requires": {"labels": {"x": ["a", ["b"]]}}}, "/requires/labels/x/1"),
    ({"requires": {"labels": {"x": ["a"] * 65}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": {}}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": {">": 1, "<": 3}}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": {"~": "a"}}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": {"==": "a"}}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": {">": "a"}}}}, "/requires/labels/x/>"),
    ({"requires": {"labels": {"x": {">": True}}}}, "/requires/labels/x/>"),
    ({"requires": {"labels": {"x": {">=": [1]}}}}, "/requires/labels/x/>="),
    ({"requires": {"labels": {"x": {"in": "a"}}}}, "/requires/labels/x/in"),
    ({"requires": {"labels": {"x": {"not in": []}}}}, "/requires/labels/x/not in"),
    ({"requires": {"labels": {"x": {"=": {"=": "a"}}}}}, "/requires/labels/x/="),
    ({"requires": {"labels": {"x": {"!=": ["a"]}}}}, "/requires/labels/x/!="),
    ({"requires": {"labels": {"x": "y" * 257}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"x": "a\tb"}}}, "/requires/labels/x"),
    ({"requires": {"labels": {"": 1}}}, "/requires/labels/"),
    ({"requires": {"labels": {"/a~b": 1}}}, "/requires/labels/~1a~0b"),
    ({"requires": {"labels": {"caf\u00e9": 1}}}, "/requires/labels/caf\u00e9"),
    ({"requires": {"labels": {f"l{n}": 1 for n in range(65)}}}, "/requires/labels"),
    ({"requires": {"resources": {"cpu": -1}}}, "/requires/resources/cpu"),
    ({"requires": {"resources": {"a b": 1}}}, "/requires/resources/a b"),
    ({"requires": {"resources": {f"r{n}": 1 for n in range(33)}}}, "/requires/resources"),
    ({"prefer": {"zone": "a"}}, "/prefer"),
    ({"prefer": ["a"]}, "/prefer/0"),
    ({"prefer": [{}] * 33}, "/prefer"),
    ({"prefer": [{}, {"zone": None}]}, "/prefer/1/zone"),
    ({"prefer": [{"labels": "a"}]}, "/prefer/0/labels"),
    ({"prefer": [{"labels": {"x": {}}}]}, "/prefer/0/labels/x"),
    ({"prefer": [{"labels": {}, "wait": 1}]}, "/prefer/0/wait"),
    ({"prefer": [{"labels": {}, "weight": "much"}]}, "/prefer/0/weight"),
    ({"prefer": [{"labels": {}, "weight": True}]}, "/prefer/0/weight"),
    ({"prefer": [{"labels": {}, "weight": 1e7}]}, "/prefer/0/weight"),
    ({"broadcast": "yes"}, "/broadcast"),
]


@pytest.mark.parametrize(("fields", "pointer"), BAD, ids=lambda value: ascii(value)[:60])
def test_a_bad_requirement_is_refused_with_the_name_of_its_field(
    fields: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read(**fields)

    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert len(str(caught.value)) < 300


def test_the_jobs_of_a_schedule_have_its_requirements() -> None:
    body = b'{"task":"t","every":"1h","requires":{"labels":{"gpu":"a100"}}}'

    spec = decode_request(body, ScheduleRequest).to_spec("s")

    assert spec.job.options.requirements == Requirements((Condition("gpu", "=", ("a100",)),))


ASKED: dict[str, Any] = {
    "requires": {
        "labels": {
            "gpu": ["a100", "h100"],
            "region": "eu",
            "tier": {"!=": "spot"},
            "vram": {">=": 40},
            "zone": {"not in": ["a"]},
        },
        "resources": {"cpu": 2.5, "memory": 8_589_934_592},
        "worker": "w1",
    },
    "prefer": [{"zone": "lhr"}, {"labels": {"zone": "eu"}, "weight": 9}, {}],
}


def test_requirements_are_rendered_as_they_were_given() -> None:
    assert dict(requirements_fields(read(**ASKED))) == ASKED


def test_rendered_requirements_can_be_parsed_again() -> None:
    route = read(**ASKED)

    assert read(**dict(requirements_fields(route))) == route


def test_a_job_shows_its_requirements() -> None:
    job = Job(id=8, task="t", options=Options(requirements=read(**ASKED)))

    answer = orjson.loads(orjson.dumps(job_fields(job)))

    assert {name: answer[name] for name in ASKED} == ASKED
    msgspec.convert(answer, JobResponse)


def test_a_number_that_is_too_large_for_json_is_still_shown() -> None:
    route = read(requires={"labels": {"x": {">": 1e300}}})

    assert (
        orjson.dumps(dict(requirements_fields(route)))
        == b'{"requires":{"labels":{"x":{">":1e+300}}}}'
    )
