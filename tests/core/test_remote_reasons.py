"""What the workers of other servers say about a job that waits at its owner."""

from __future__ import annotations

from typing import Any

from schedo.core.commands import Cordon
from schedo.core.explain import FEW, Check, Explanation
from schedo.core.instants import render_instant
from schedo.core.model import Job, JobSpec, Options
from schedo.core.remote_reasons import Others
from schedo.core.requirements import Condition, Requirements
from schedo.core.worker_pool import WorkerSpec
from tests.core.builders import SECOND, T0, make_spec
from tests.core.remote_site import Site
from tests.core.succession import NEXT, crashed

WORK = frozenset({"work"})
EU = Requirements((Condition("region", "=", ("eu",)),))


def explain(owner: Site, job: Job, *far: Site, missing: tuple[str, ...] = ()) -> Explanation:
    """Return what the owner explains with what the servers `far-1`, … say."""
    ready_key = owner.job(job.id).ready_key
    said = {
        f"far-{number}": site.scheduler.explain_remote(ready_key)
        for number, site in enumerate(far, 1)
    }
    return owner.scheduler.explain(owner.job(job.id), others=Others("own", said, missing))


def find(explanation: Explanation, what: str) -> Check:
    [check] = [each for each in explanation.checks if each.what == what]
    return check


def says(explanation: Explanation) -> list[tuple[str, str, str | None]]:
    return [(each.worker, each.server, each.obstacle) for each in explanation.workers]


def make_site(*names: str, slots: int = 1, **fields: Any) -> Site:
    """Return a server which these remote workers poll."""
    site = Site()
    for name in names:
        site.poll(name, slots=slots, **fields)
    return site


def relayed(name: str, slots: int = 1) -> WorkerSpec:
    return WorkerSpec(name, slots, WORK, is_relayed=True)


def test_a_worker_that_polls_another_server_could_run_the_job() -> None:
    owner = Site()
    job = owner.submit(make_spec(), T0)

    explanation = explain(owner, job, make_site("a", slots=2))

    assert [(check.what, check.text) for check in explanation.checks if check.what != "due"] == [
        ("worker", "1 worker could run it"),
        ("server", "the server is not paused"),
        ("queue", "queue default is not paused"),
        ("concurrency", "queue default has no concurrency limit"),
        ("slot", "a could take it now"),
        ("turn", "it is next"),
    ]
    assert says(explanation) == [("a", "far-1", None)]
    assert not explanation.has_more_workers


def test_a_job_whose_workers_of_other_servers_are_full_waits_for_a_slot() -> None:
    owner, far = make_site("own", slots=1), make_site("a", slots=2)
    for site, count in ((owner, 1), (far, 2)):
        for _ in range(count):
            site.submit(make_spec(), T0)
        site.turn()
    job = owner.submit(make_spec(), T0)

    explanation = explain(owner, job, far)

    assert explanation.reasons == ["all 3 slots for task work are taken"]
    assert find(explanation, "worker").text == "2 workers could run it"
    assert says(explanation) == [("own", "own", "slots"), ("a", "far-1", "slots")]


def test_a_worker_that_could_take_the_job_comes_before_those_of_the_owner_that_could_not() -> None:
    owner, far = make_site("own"), make_site("a")
    owner.apply(Cordon("own", True), T0)

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert says(explanation) == [("a", "far-1", None), ("own", "own", "cordoned")]
    assert find(explanation, "slot").text == "a could take it now"


def test_workers_of_all_servers_that_are_cordoned_are_a_permanent_obstacle() -> None:
    owner, far = make_site("own"), make_site("a")
    for site, name in ((owner, "own"), (far, "a")):
        site.apply(Cordon(name, True), T0)

    job = owner.submit(make_spec(), T0)

    explanation = explain(owner, job, far)

    assert find(explanation, "slot").is_permanent
    assert explanation.reasons == [
        "all workers that could run it are cordoned or draining: own, a",
    ]
    assert not find(explain(owner, job, far, missing=("x",)), "slot").is_permanent


def test_a_worker_that_several_servers_know_counts_as_the_one_that_has_heard_of_it_last() -> None:
    owner, before, after = Site(), Site(), Site()
    before.report_in("a", T0)
    after.poll("a", T0 + SECOND)
    job = owner.submit(make_spec(), T0)

    for order in ((before, after), (after, before)):
        explanation = explain(owner, job, *order)

        assert says(explanation) == [("a", f"far-{1 + order.index(after)}", None)]
        assert find(explanation, "worker").text == "1 worker could run it"


def test_the_owner_knows_best_about_a_worker_that_has_polled_it_last() -> None:
    owner = make_site("a")
    far = make_site("a")
    owner.report_in("a", T0 + SECOND)

    assert says(explain(owner, owner.submit(make_spec(), T0), far))[0][:2] == ("a", "own")


def test_another_server_knows_best_about_a_worker_that_polls_it_now() -> None:
    owner, far = Site(), Site()
    owner.report_in("a", T0)
    far.poll("a", T0 + SECOND)

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert says(explanation) == [("a", "far-1", None)]
    assert find(explanation, "worker").text == "1 worker could run it"
    assert find(explanation, "slot").text == "a could take it now"


def test_of_a_worker_that_runs_something_of_the_owner_its_gateway_knows_best() -> None:
    owner, far = Site(), make_site("a", slots=2)
    owner.report_in("a", T0 + SECOND, spec=relayed("a", 2))
    job = owner.submit(make_spec(), T0)

    explanation = explain(owner, job, far)

    assert says(explanation) == [("a", "far-1", None)]
    assert says(explain(far, far.submit(make_spec("other"), T0), owner)) == [("a", "own", "task")]


def test_a_worker_is_connected_if_one_server_says_so() -> None:
    owner, gone, far = Site(), Site(), Site()
    for site in (owner, gone):
        site.report_in("a", T0 + SECOND, is_draining=True)
    far.poll("a", T0)

    for order in ((gone, far), (far, gone)):
        explanation = explain(owner, owner.submit(make_spec(), T0), *order)

        assert says(explanation) == [("a", f"far-{1 + order.index(far)}", None)]


def test_a_worker_that_is_not_connected_to_any_server_could_not_run_the_job() -> None:
    owner, far = Site(), Site()
    far.report_in("a", T0, is_draining=True)

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert explanation.reasons == ["no worker offers task work on queue default"]
    assert [each.text for each in explanation.workers] == [
        f"it is not connected: its last request came at {render_instant(T0)}"
    ]


def test_a_worker_that_another_server_expects_after_a_restart_has_said_nothing() -> None:
    owner, (far, lease) = Site(), crashed()
    far.scheduler.expect_worker(lease, NEXT)

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert [each.text for each in explanation.workers] == [
        "it has not sent a request since the server started"
    ]


def test_the_own_workers_of_another_server_are_left_out() -> None:
    owner, far = Site(), Site(local_slots=3)

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert explanation.reasons == ["no worker offers task work on queue default"]
    assert not explanation.workers


def test_what_workers_of_all_servers_lack_is_named() -> None:
    owner, far = make_site("own"), Site(local_slots=1)
    far.poll("a", spec=WorkerSpec("a", 1, WORK, labels={"region": "eu"}, resources={"gpu": 500}))
    far.poll("b", spec=WorkerSpec("b", 1, WORK))
    far.poll("c", spec=WorkerSpec("c", 1, frozenset({"mail"})))
    needs = Requirements(EU.labels, (("gpu", 1_000),))
    job = owner.submit(JobSpec("work", options=Options(requirements=needs)), T0)

    explanation = explain(owner, job, far)

    assert explanation.reasons == ["no worker offers 1 gpu and label region = eu"]
    assert says(explanation)[-1] == ("c", "far-1", "task")


def test_the_task_is_known_if_a_worker_of_another_server_offers_it() -> None:
    far, other = make_site("a"), Site()
    other.poll("c", spec=WorkerSpec("c", 1, frozenset({"mail"})))
    ready_key = other.submit(JobSpec("work", options=Options(requirements=EU)), T0).ready_key

    assert Others("own", {"far": far.scheduler.explain_remote(ready_key)}).offer_task
    assert not Others("own", {"far": other.scheduler.explain_remote(ready_key)}).offer_task


def test_the_workers_of_a_server_that_does_not_respond_may_run_the_job() -> None:
    owner = Site()

    explanation = explain(owner, owner.submit(make_spec(), T0), missing=("x", "y"))

    assert explanation.reasons == [
        "no worker offers task work on queue default, as far as is known without x and y"
    ]
    assert not find(explanation, "worker").is_permanent


def test_a_job_that_is_not_due_says_nothing_of_slots() -> None:
    owner = Site()

    explanation = explain(owner, owner.submit(make_spec(delay_us=SECOND), T0), make_site("a"))

    assert find(explanation, "worker").is_ok
    assert "slot" not in [check.what for check in explanation.checks]


def test_a_server_names_64_workers_first_those_that_could_take_the_job() -> None:
    far = Site()
    for number in range(64):
        far.poll(f"mail-{number}", spec=WorkerSpec(f"mail-{number}", 1, frozenset({"mail"})))
    for name in ("full", "able"):
        far.report_in(name)
    far.poll("full")
    far.submit(make_spec(), T0)
    far.turn()
    far.poll("able")
    owner = make_site("own")

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert says(explanation)[:3] == [
        ("own", "own", None),
        ("able", "far-1", None),
        ("full", "far-1", "slots"),
    ]
    assert [len(explanation.workers), explanation.has_more_workers] == [64, True]
    assert find(explanation, "worker").text == "3 workers could run it"


def test_workers_that_a_server_leaves_out_do_not_count_if_they_could_not_run_the_job() -> None:
    owner, far = Site(), make_site("full")
    for number in range(64):
        far.poll(f"mail-{number}", spec=WorkerSpec(f"mail-{number}", 1, frozenset({"mail"})))
    far.submit(make_spec(), T0)
    far.turn()

    explanation = explain(owner, owner.submit(make_spec(), T0), far)

    assert explanation.has_more_workers
    assert find(explanation, "worker").text == "1 worker could run it"
    assert explanation.reasons == ["all 1 slots for task work are taken"]


def test_beyond_64_workers_of_a_server_their_number_is_not_known() -> None:
    owner, far = Site(), Site()
    for number in range(65):
        far.poll(f"w-{number}")
        far.submit(make_spec(), T0)
        far.turn()
    job = owner.submit(make_spec(), T0)

    explanation = explain(owner, job, far)

    assert explanation.has_more_workers
    assert find(explanation, "worker").text == "at least 64 workers could run it"
    assert explanation.reasons == ["all slots for task work are taken"]


def test_of_workers_that_could_run_a_job_a_few_say_that_there_are_more() -> None:
    few, many = make_site("a"), make_site(*(f"w{number}" for number in range(FEW + 1)))
    key = few.submit(make_spec(), T0).ready_key

    one, several = (site.scheduler.explain_remote(key, only_able=True) for site in (few, many))

    assert [each.reason.worker for each in one.workers] == ["a"]
    assert not one.has_more
    assert len(several.workers) == FEW
    assert several.has_more


def test_where_no_worker_could_run_a_job_what_they_lack_is_said() -> None:
    site = Site()
    site.poll("a", spec=WorkerSpec("a", 1, WORK))
    key = site.submit(JobSpec("work", options=Options(requirements=EU)), T0).ready_key

    said = site.scheduler.explain_remote(key, only_able=True)

    assert not said.workers
    assert said.unmet == ["label region = eu"]
