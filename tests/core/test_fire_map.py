"""The fires of all schedules in a range of time."""

from __future__ import annotations

from schedo.core.fire_map import FireMap, RuleUsers, list_together, map_fires
from schedo.core.fire_masks import Span
from schedo.core.limits import MINUTE, SECOND
from schedo.core.model import Rule
from tests.core.test_fire_masks import DAY, at, run

HOUR = 3_600
NOON = at("2027-01-15T12:00:00")
FIVE = Rule(cron="*/5 * * * *")
A_DAY = Span(NOON, DAY)
NIGHT = Rule(cron="30 2 * * *", tz="Europe/Berlin")


def users(*names: str) -> RuleUsers:
    found = RuleUsers()
    for name in names:
        found.add(name)
    return found


def mapped(
    rules: dict[Rule, RuleUsers], span: Span = A_DAY, width: int = 300, limit: int = 100
) -> FireMap:
    return run(map_fires(rules, span, width, limit))


def test_instants_are_listed_and_those_of_a_dense_rule_are_counted() -> None:
    often = Rule(every_us=250_000)
    each_second = Rule(cron="* * * * * *")

    found = mapped({NIGHT: users("n"), often: users("o"), each_second: users("s")})

    first, second, third = found.fires
    assert [first.users.names, second.users.names, third.users.names] == [["o"], ["s"], ["n"]]
    assert first.total == 4 * DAY
    assert (first.instants, first.counts) == ((), [1_200] * 288)
    assert (second.total, second.counts) == (DAY, [300] * 288)
    assert (third.total, third.counts) == (1, [])
    assert third.instants == [at("2027-01-16T01:30:00") * SECOND]
    assert not found.has_more


def test_an_instant_keeps_its_fraction() -> None:
    once, slow = Rule(at=NOON * SECOND + 7), Rule(every_us=HOUR * SECOND, phase_us=5)

    found = mapped({once: users("once"), slow: users("slow")}, Span(NOON, 2 * HOUR))

    assert [[*each.instants] for each in found.fires] == [
        [NOON * SECOND + 7],
        [NOON * SECOND + 5, (NOON + HOUR) * SECOND + 5],
    ]


def test_schedules_that_fire_in_the_same_second_are_counted_and_named() -> None:
    hour = Rule(cron="0 * * * *")
    rules = {FIVE: users("a", "b"), hour: users(*(f"h{n}" for n in range(30)))}

    found = mapped(rules, Span(NOON, 2 * HOUR), width=600)

    assert found.most == [(32, 0), *[(2, n * 600) for n in range(1, 6)], (32, 3_600)] + [
        (2, n * 600) for n in range(7, 12)
    ]
    assert [each.at for each in found.busiest] == [
        (NOON + after) * SECOND for after in (0, 600, 1_200, 1_800, 3_600)
    ]
    assert found.busiest[0].schedules == 32
    assert found.busiest[0].names == ["a", "b", *(f"h{n}" for n in range(18))]
    assert found.busiest[1].names == ["a", "b"]


def test_a_jitter_of_a_second_spreads_the_runs() -> None:
    spread = Rule(cron="*/5 * * * *", jitter_us=MINUTE)

    found = mapped({FIVE: users("a"), spread: users("b", "c")})

    assert {count for count, _ in found.most} == {1}
    assert found.busiest == []
    assert len(found.fires) == 2


def test_only_the_rules_that_fire_first_are_listed() -> None:
    never = Rule(cron="0 0 1 6 *")

    found = mapped({NIGHT: users("n"), FIVE: users("f"), never: users("never")}, limit=1)

    assert [each.rule for each in found.fires] == [FIVE]
    assert found.has_more


def test_a_change_of_the_clock_marks_the_fire_that_it_moves() -> None:
    found = mapped({NIGHT: users("n")}, Span(at("2027-03-27T12:00:00"), 3 * DAY))

    [(moved, text)] = found.fires[0].clock_changes
    assert moved == at("2027-03-28T01:00:00") * SECOND
    assert "there is no 02:00 to 03:00 that day" in text


def test_a_day_without_a_change_of_the_clock_marks_nothing() -> None:
    found = mapped({NIGHT: users("n"), Rule(every_us=HOUR * SECOND): users("e")})

    assert [each.clock_changes for each in found.fires] == [[], []]


def test_the_others_in_a_second_are_counted() -> None:
    seconds = [NOON, NOON + 1, NOON + 300]

    found = run(list_together({FIVE: users("a", "b"), NIGHT: users("n")}, seconds))

    assert [(each.at, each.schedules, each.names) for each in found] == [
        (NOON * SECOND, 2, ["a", "b"]),
        ((NOON + 1) * SECOND, 0, []),
        ((NOON + 300) * SECOND, 2, ["a", "b"]),
    ]


def test_ten_thousand_schedules_are_mapped_in_short_steps() -> None:
    rules = {
        Rule(cron=f"{n % 60} {n // 60 % 60} {n // 3_600} * * *"): users(f"s{n}")
        for n in range(9_999)
    }
    rules[Rule(every_us=SECOND)] = users("second")

    steps = 0
    work = map_fires(rules, Span(NOON, DAY), 300, 10)
    while True:
        try:
            next(work)
            steps += 1
        except StopIteration as end:
            found: FireMap = end.value
            break

    assert steps > 10_000
    assert {count for count, _ in found.most} == {1, 2}
    assert found.has_more
