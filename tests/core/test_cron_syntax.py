"""The cron dialect: what is accepted, how it is normalized, and what a refusal says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.cron import explain
from schedo.core.cron_syntax import ParsedCron, is_fixed_time, parse_cron
from schedo.errors import Invalid


def normalize(text: str, seed: str = "") -> str | None:
    return parse_cron(text, seed=seed).normalized


def refusal(text: str) -> str:
    """Return the error message, after a check that it names the field."""
    with pytest.raises(Invalid) as caught:
        parse_cron(text, seed="")
    (problem,) = caught.value.problems
    assert problem.pointer == "/cron"
    return problem.detail


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("*/5 * * * *", "*/5 * * * *"),
        ("  05 \t 4 1,15 * *  ", "5 4 1,15 * *"),
        ("30 6 * * mon-Fri", "30 6 * * MON-FRI"),
        ("0 0 1 jan,Jul *", "0 0 1 JAN,JUL *"),
        ("0 0 ? * 0", "0 0 * * 0"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 * * 7", "0 0 * * 7"),
        ("0 0 L * *", "0 0 L * *"),
        ("0 0 lw * *", "0 0 LW * *"),
        ("0 0 1,L * *", "0 0 1,L * *"),
        ("0 0 * * 5L", "0 0 * * 5L"),
        ("0 0 * * fril", "0 0 * * 5L"),
        ("0 0 * * FRI#L", "0 0 * * 5L"),
        ("0 0 * * FRI#2", "0 0 * * 5#2"),
        ("0 0 * * 5#2,1#1", "0 0 * * 5#2,1#1"),
        ("10/20 * * * *", "10/20 * * * *"),
        ("10-50/20 * * * *", "10-50/20 * * * *"),
        ("5-5/10 * * * *", "5 * * * *"),
        ("0 0 * * FRI-5/2", "0 0 * * FRI"),
        ("*/15 * * * * *", "*/15 * * * * *"),
        ("0 0 9 * * MON", "0 0 9 * * MON"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_an_expression_is_normalized(text: str, normalized: str) -> None:
    assert normalize(text) == normalized


@pytest.mark.parametrize(
    "text",
    [
        "*/5 * * * *",
        "30 6 * * mon-Fri",
        "H H(0-3) * * H",
        "FRI#2 0 0 0 0",
        "0 0 ? * FRIL",
        "7-7/3 0 0 0 0",
    ],
)
def test_normalizing_twice_changes_nothing(text: str) -> None:
    try:
        once = normalize(text, "seed")
    except Invalid:
        return
    assert once is not None
    assert normalize(once, "other") == once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there are 0 fields"),
        ("* * * *", "there are 4 fields; write minute, hour, day-of-month, month and day-of-week"),
        ("0 0 0 1 1 * 2026", "there are 7 fields; a year is not supported, use end_at"),
        ("* * * * * * * *", "there are 8 fields"),
        ("0 9 * * * 2026", "looks like a year, which is not supported; write '0 9 * * *'"),
        (
            "0 18 ? * MON-FRI *",
            "looks like a year, which is not supported; write '0 18 ? * MON-FRI'",
        ),
        ("0 10 * * ? *", "looks like a year, which is not supported; write '0 10 * * ?'"),
        ("0 0 * * * 30", "seconds come first; write '30 0 0 * * *'"),
        ("*/5 * * * * */10", "seconds come first; write '*/10 */5 * * * *'"),
        ("60 * * * *", "minute '60': 60 is not between 0 and 59"),
        ("* 24 * * *", "hour '24': 24 is not between 0 and 23"),
        ("* * 0 * *", "day-of-month '0': 0 is not between 1 and 31"),
        ("* * * 13 *", "month '13': 13 is not between 1 and 12"),
        ("* * * * 8", "day-of-week '8': 8 is not between 0 and 7"),
        ("60 * * * * *", "second '60': 60 is not between 0 and 59"),
        ("* * * FOO *", "month 'FOO': write a number from 1 to 12, or a name such as FEB"),
        ("MON * * * *", "minute 'MON': write a number from 0 to 59"),
        ("* * * * MONDAY", "day-of-week 'MONDAY': names are the first three letters"),
        ("* * 15W * *", "day-of-month '15W': the nearest weekday (W) is not supported"),
        ("* * W * *", "the nearest weekday (W) is not supported"),
        ("* * L-3 * *", "days counted from the end of the month are not supported"),
        ("* * * * L", "L needs the weekday before it; write 5L or FRIL"),
        ("* * * L *", "L needs the weekday before it"),
        ("* * * * FRI#6", "after # write 1 to 5, or L"),
        ("* * * * 9#1", "9 is not between 0 and 7"),
        ("0~30 * * * *", "random ranges are not supported; write H(0-29)"),
        ("? * * * *", "? may only stand alone in one of the day fields"),
        ("* * 1,? * *", "? may only stand alone in one of the day fields"),
        ("*/0 * * * *", "minute '*/0': a step is at least 1"),
        ("5/ * * * *", "minute '5/': a step is at least 1"),
        ("*/1000000000 * * * *", "minute '*/1000000000': write a number from 0 to 59"),
        ("1,,2 * * * *", "there is an empty item"),
        ("1, * * * *", "there is an empty item"),
        ("-5 * * * *", "minute '-5': write a number from 0 to 59, or *"),
        ("1.5 * * * *", "minute '1.5': write a number from 0 to 59, or *"),
        ("H(9-2) * * * *", "the range in the parentheses runs backwards"),
        ("H(0-9)/20 * * * *", "the step is not between 1 and 10"),
        ("H/0 * * * *", "the step is not between 1 and 60"),
        ("@reboot", "@reboot is not a time"),
        ("@fortnightly", "'@fortnightly' is not known; there are @hourly, @daily"),
        ("@every", "write a duration after it, such as 90s"),
        ("@every day", "write a duration after it, such as 90s"),
        ("@every 5", "write a duration after it, such as 90s"),
        ("@every 99ms", "@every 99ms is not between 100ms and 100 years"),
        ("@every 900000000h", "is not between 100ms and 100 years"),
        ("CRON_TZ=Mars/Base * * * * *", "the time zone 'Mars/Base' is not known"),
        ("TZ=EST * * * * *", "'EST' is not an IANA time zone name"),
        ("TZ= * * * * *", "'' is not an IANA time zone name"),
        ("٣ * * * *", "the character U+0663 is not allowed"),
        ("* * * * *\n* * * * *", "the character U+000A is not allowed"),
        ("* * * * \0", "the character U+0000 is not allowed"),
        ("*" * 257, "the expression is longer than 256 characters"),
    ],
)
def test_an_error_names_the_field_and_the_correct_syntax(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("* 22-3 * * *", "22-23,0-3"),
        ("* 23-3 * * *", "23,0-3"),
        ("* 22-3/2 * * *", "22,0,2"),
        ("* 22-3/1 * * *", "22-23,0-3"),
        ("50-10 * * * *", "50-59,0-10"),
        ("* * * * FRI-MON", "5-6,0-1"),
        ("* * * * FRI-SUN", "5-6,0"),
        ("* * * * 7-2", "0-2"),
        ("* * * * FRI-MON/2", "5,0"),
        ("* * * NOV-FEB *", "11-12,1-2"),
        ("* * 30-2 * *", "30-31,1-2"),
    ],
)
def test_the_error_for_a_backward_range_shows_the_correct_range(text: str, instead: str) -> None:
    assert refusal(text).endswith(f"the range runs backwards; write {instead}")
    for item in instead.split(","):
        (field,) = (word for word in text.split() if word != "*")
        assert normalize(text.replace(field, item))


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 31 4,6 *",
        "0 0 30-31 2 */2",
        "0 0 */31 * 1#5",
        "0 0 */30 2 MON#5",
        "0 0 */29 2 0#5",
    ],
)
def test_an_expression_without_a_day_is_refused(text: str) -> None:
    assert "never fires: no month has such a day" in refusal(text)


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 29 2 1#5", "0 0 29 2 */7", "0 0 30 2 1", "0 0 31 * *", "0 0 L 2 *"]
)
def test_an_expression_with_a_rare_day_is_accepted(text: str) -> None:
    assert normalize(text) == text


def test_a_zone_prefix_is_separated_from_the_expression() -> None:
    expected = ParsedCron("30 2 * * *", "Europe/Berlin", None, ())

    assert parse_cron("CRON_TZ=Europe/Berlin 30 2 * * *", seed="") == expected
    assert parse_cron("TZ=Europe/Berlin   30 2 * * *", seed="") == expected
    assert parse_cron("TZ=Europe/Berlin @daily", seed="").normalized == "0 0 * * *"


@pytest.mark.parametrize(
    ("text", "every_us"),
    [
        ("@every 90s", 90_000_000),
        ("@every 1h30m", 5_400_000_000),
        ("@EVERY 1.5h", 5_400_000_000),
        ("@every\t250ms", 250_000),
        ("TZ=Asia/Tokyo @every 100ms", 100_000),
    ],
)
def test_the_macro_every_is_an_interval(text: str, every_us: int) -> None:
    parsed = parse_cron(text, seed="")

    assert parsed.every_us == every_us
    assert parsed.normalized is None


def test_hashes_are_chosen_by_the_seed_alone() -> None:
    assert normalize("H H * * *", "backup") == normalize("H H * * *", "backup")
    assert len({normalize("H H * * *", f"job-{n}") for n in range(50)}) > 40


@pytest.mark.parametrize("number", range(40))
def test_hashed_values_stay_within_their_range(number: int) -> None:
    seed = f"job-{number}"
    text = normalize("H(0-29)/10 H(1-5) H H H", seed)
    assert text is not None

    found = re.fullmatch(r"(\d+)-29/10 ([1-5]) (\d+) (\d+) ([0-6])", text)

    assert found is not None
    assert int(found[1]) < 10
    assert 1 <= int(found[3]) <= 28
    assert 1 <= int(found[4]) <= 12


def test_a_hash_with_a_step_keeps_its_distance() -> None:
    """By hand: printf 'a\\0minute' | sha256sum, the first 16 digits, modulo 15 and 30."""
    assert normalize("H/15 * * * *", "a") == "12-59/15 * * * *"
    assert normalize("H(0-29)/30 * * * *", "a") == "27 * * * *"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 0 1 * 1", "on days that match either, as in cron"),
        ("0 0 */2 * 1", "on days that match both, because one of them starts with *"),
        ("0 0 1 * */2", "on days that match both, because one of them starts with *"),
        ("*/90 * * * *", "minute */90: the step is larger than the field"),
    ],
)
def test_a_surprising_expression_has_a_warning(text: str, said: str) -> None:
    (warning,) = parse_cron(text, seed="").warnings

    assert said in warning


@pytest.mark.parametrize("text", ["0 0 1 * *", "0 0 * * 1", "0 0 1 * ?", "*/59 * * * *"])
def test_an_ordinary_expression_has_no_warning(text: str) -> None:
    assert parse_cron(text, seed="").warnings == ()


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("30 2 * * *", True),
        ("0 1-3 * * *", True),
        ("* 30 2 * * *", True),
        ("*/15 2 * * *", False),
        ("0 */2 * * *", False),
        ("H H * * *", True),
        ("@hourly", False),
        ("@daily", True),
    ],
)
def test_expressions_with_a_fixed_time_are_recognized(text: str, fixed: bool) -> None:
    parsed = parse_cron(text, seed="")
    assert parsed.normalized is not None

    assert is_fixed_time(parsed.normalized) is fixed


@given(st.text(max_size=300) | st.text("0123456789*/-,?LWH#()@ MONJAN", max_size=60))
def test_any_text_is_parsed_or_refused_without_another_error(text: str) -> None:
    try:
        parsed = parse_cron(text, seed="s")
    except Invalid:
        return
    if parsed.normalized is not None:
        assert normalize(parsed.normalized) == parsed.normalized
        assert explain(parsed.normalized)


def item(values: list[str]) -> st.SearchStrategy[str]:
    value = st.sampled_from(values)
    step = st.integers(1, 70).map(lambda n: f"/{n}") | st.just("")
    one = st.builds("{}{}".format, value | st.just("*"), step)
    span = st.builds("{}-{}{}".format, value, value, step)
    return st.lists(one | span, min_size=1, max_size=3).map(",".join)


lines = st.tuples(
    item([str(n) for n in range(60)]),
    item([str(n) for n in range(24)]),
    item([str(n) for n in range(1, 32)]) | st.sampled_from(["L", "LW", "1,L", "?"]),
    item(["1", "2", "FEB", "SEP", "12"]),
    item(["SUN", "0", "3", "FRI", "7"]) | st.sampled_from(["FRIL", "5#5", "MON#1,THU"]),
).map(" ".join)


@given(lines)
def test_every_accepted_expression_can_be_explained(text: str) -> None:
    try:
        parsed = parse_cron(text, seed="")
    except Invalid:
        return
    assert parsed.normalized is not None

    assert normalize(parsed.normalized) == parsed.normalized
    assert explain(parsed.normalized)[0].isalpha()
