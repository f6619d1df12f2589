"""Remote workers that connect, disconnect, crash and return; every job keeps its promises."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.remote import Gate, WorkerProcess, find_port, wire_to, worker
from tests.e2e.server import Server, eventually, serving
from tests.worker.calls import is_running

pytestmark = pytest.mark.e2e

APPLICATION = """
import asyncio
from pathlib import Path

from schedo import Schedo, report_progress

app = Schedo()

@app.task(retries=0)
async def increment(Num: int) -> dict:
    return {"Num": Num + 1}

@app.task
async def read(pipe: str) -> str:
    report_progress(40, "page 4 of 10", log="it has begun")
    return await asyncio.to_thread(Path(pipe).read_text)
"""


def summary_of(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["state"], job["attempt"], job["losses"], job["worker"]


def shell_server(directory: Path, *arguments: str) -> Any:
    """Return a server that runs commands; its own worker has no label "place"."""
    return serving(directory, "--allow-shell", *arguments)


FAR = ("--queues", "far", "--allow-shell", "--label", "place=far")
PLACE = {"labels": {"place": "far"}}


def submit_remote(server: Server, gate: Gate, **options: object) -> str:
    """Submit the command for remote workers only."""
    job = server.submit(task="shell", payload=gate.payload, queue="far", requires=PLACE, **options)
    return str(job["id"])


def test_the_ready_file_exists_while_the_worker_takes_jobs(tmp_path: Path) -> None:
    gate, ready = Gate(tmp_path), tmp_path / "ready"
    ready.touch()  # as a process that was killed has left it
    with shell_server(tmp_path) as server:
        option = ("--ready-file", str(ready))
        alone = WorkerProcess(server, "alone", *option, url=f"http://127.0.0.1:{find_port()}")
        eventually(lambda: "cannot reach" in alone.log(), "an attempt to connect")
        assert not ready.exists()
        alone.process.kill()
        alone.wait()

        with worker(server, "far", *FAR, *option) as far:
            eventually(ready.exists, "the file")
            submit_remote(server, gate)
            gate.wait_begun()
            far.signal(signal.SIGTERM)
            eventually(lambda: not ready.exists(), "the end of the file at the begin of the drain")
            assert far.process.poll() is None
            gate.open()
            assert far.wait() == 0


def test_a_worker_runs_the_tasks_of_its_application(tmp_path: Path) -> None:
    (tmp_path / "calculus.py").write_text(APPLICATION)
    with serving(tmp_path) as server, worker(server, "w1", "calculus:app"):
        job = server.submit(task="increment", payload={"Num": 41})

        ended = server.ended(job["id"])

    assert (ended["result"], ended["worker"]) == ({"Num": 42}, "w1")


def test_a_commands_output_is_on_the_worker_and_on_the_server(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR, "--output-dir", str(outputs)):
        payload = {"command": "echo hello; printf '\\0\\377' >&2"}
        job = server.submit(task="shell", payload=payload, queue="far", requires=PLACE)
        ended = server.ended(job["id"])

        assert summary_of(ended) == ("completed", 1, 0, "w1")
        assert server.output(job["id"]) == "hello\n"
        assert (outputs / f"{job['id']}.1.stdout").read_text() == "hello\n"
        assert (outputs / f"{job['id']}.1.stderr").read_bytes() == b"\0\xff"


def test_an_attempt_survives_a_broken_connection(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with (
        shell_server(tmp_path) as server,
        wire_to(server) as wire,
        worker(server, "w1", *FAR, url=wire.url),
    ):
        job = submit_remote(server, gate)
        gate.wait_begun()
        wire.cut()
        gate.open()

        assert summary_of(server.ended(job)) == ("completed", 1, 0, "w1")
        assert len(gate.pids) == 1


def test_an_attempt_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    port = find_port()
    with shell_server(tmp_path, "--port", port) as server, worker(server, "w1", *FAR):
        job = submit_remote(server, gate)
        gate.wait_begun()
        server.kill()
        server.start()
        gate.open()

        assert summary_of(server.ended(job)) == ("completed", 1, 0, "w1")
        assert len(gate.pids) == 1


def test_the_job_of_a_killed_worker_goes_to_another(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR) as first:
        job = submit_remote(server, gate)
        gate.wait_begun()
        first.signal(signal.SIGKILL)
        with worker(server, "w2", *FAR):
            gate.wait_begun(times=2)
            gate.open()

            assert summary_of(server.ended(job)) == ("completed", 2, 1, "w2")


def test_a_command_that_kills_the_workers_spawner_counts_no_loss_for_other_commands(
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR):
        others = [submit_remote(server, gate) for _ in range(4)]
        gate.wait_begun(times=4)
        gate.payload = {"command": "kill -9 $PPID; sleep 60"}
        culprit = submit_remote(server, gate)

        guilty = server.ended(culprit)
        gate.open()

        assert (guilty["state"], guilty["error"]["type"]) == ("failed", "lost")
        assert (guilty["failures"], guilty["losses"]) == (0, 3)
        ended = [server.ended(job) for job in others]
        assert [(job["state"], job["losses"]) for job in ended] == [("completed", 0)] * 4


def test_the_next_worker_kills_the_commands_of_a_killed_worker(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR) as first:
        submit_remote(server, gate)
        gate.wait_begun()
        first.signal(signal.SIGKILL)
        first.wait()
        assert is_running(gate.pids[0])

        with worker(server, "w2", *FAR):
            eventually(lambda: not is_running(gate.pids[0]), "end of the old command")


def test_a_worker_that_gets_sigterm_finishes_its_attempts(tmp_path: Path) -> None:
    gate, after = Gate(tmp_path), Gate(tmp_path, "after")
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR, "--slots", "2") as first:
        job = submit_remote(server, gate)
        gate.wait_begun()
        first.signal(signal.SIGTERM)
        eventually(lambda: "draining" in first.log(), "drain")
        later = submit_remote(server, after)
        gate.open()

        assert first.wait() == 0
        assert summary_of(server.ended(job)) == ("completed", 1, 0, "w1")
        assert server.ask("GET", f"/v1/jobs/{later}")[1]["state"] == "queued"
        assert after.pids == []


def test_a_worker_without_grace_time_releases_its_attempts(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR) as first:
        job = submit_remote(server, gate)
        gate.wait_begun()
        first.signal(signal.SIGTERM)
        eventually(lambda: "draining" in first.log(), "drain")
        first.signal(signal.SIGTERM)

        assert first.wait() == 0
        with worker(server, "w2", *FAR):
            gate.wait_begun(times=2)
            gate.open()

            assert summary_of(server.ended(job)) == ("completed", 2, 0, "w2")


def test_a_worker_that_was_silent_too_long_stops_revoked_attempts(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with (
        shell_server(tmp_path) as server,
        worker(server, "w1", *FAR, "--session-timeout", "5s") as first,
    ):
        job = submit_remote(server, gate)
        gate.wait_begun()
        first.signal(signal.SIGSTOP)
        with worker(server, "w2", *FAR):
            gate.wait_begun(times=2)
            first.signal(signal.SIGCONT)
            eventually(lambda: not is_running(gate.pids[0]), "end of the first attempt")
            gate.open()

            assert summary_of(server.ended(job)) == ("completed", 2, 1, "w2")


def test_a_stale_result_is_refused_and_recorded(tmp_path: Path) -> None:
    with serving(tmp_path) as server:

        def work(session: str, **fields: object) -> dict[str, Any]:
            me = {"worker": "w1", "session": session, "tasks": ["resize"]}
            status, answer = server.ask("POST", "/v1/work", {**me, **fields})
            assert status == 200, answer
            return dict(answer)

        job = server.submit(task="resize")
        (first,) = work("one", running=[], wait="10s")["leases"]
        (second,) = work("two", running=[], wait="10s")["leases"]
        late = {"lease": first["lease"], "outcome": "completed", "result": "late"}

        (refused,) = work("two", running=[second["lease"]], results=[late])["refused"]

        assert (refused["lease"], refused["status"]) == (first["lease"], 409)
        assert (second["job"], second["attempt"]) == (job["id"], 2)
        good = {"lease": second["lease"], "outcome": "completed", "result": "good"}
        assert [work("two", running=[], results=[good])["refused"] for _ in range(2)] == [[], []]
        assert server.ended(job["id"])["result"] == "good"


def test_a_worker_ends_if_another_process_takes_its_name(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR) as first:
        job = submit_remote(server, gate)
        gate.wait_begun()
        with worker(server, "w1", *FAR):
            assert first.wait() == 1
            gate.wait_begun(times=2)
            gate.open()

            assert summary_of(server.ended(job)) == ("completed", 2, 1, "w1")
            assert "another process has taken the name 'w1'" in first.log()


def test_an_operator_drains_a_worker(tmp_path: Path) -> None:
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR) as first:
        assert server.ask("POST", "/v1/workers/w1:drain", {})[0] == 200

        assert first.wait() == 0


def test_a_cancel_reaches_a_command_on_a_remote_worker(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with shell_server(tmp_path) as server, worker(server, "w1", *FAR):
        job = submit_remote(server, gate)
        gate.wait_begun()
        server.ask("POST", f"/v1/jobs/{job}:cancel", {})

        assert server.ended(job)["state"] == "cancelled"
        assert not is_running(gate.pids[0])


SHORT = {"Task": "increment", "Requirements": {"Region": "eu"}, "Payload": {"Num": 1}}


def test_progress_is_visible_while_a_handler_runs(tmp_path: Path) -> None:
    (tmp_path / "calculus.py").write_text(APPLICATION)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with serving(tmp_path) as server, worker(server, "w1", "calculus:app"):
        job = server.submit(task="read", payload={"pipe": str(pipe)})["id"]

        def find_progress() -> list[dict[str, Any]]:
            return list(server.ask("GET", f"/v1/jobs/{job}/progress")[1]["items"])

        (said,) = eventually(find_progress, "progress")
        pipe.write_text("the end")

        assert server.ended(job)["result"] == "the end"
        assert find_progress() == []
    assert (said["percent"], said["message"], said["log"]) == (40, "page 4 of 10", "it has begun")


def test_a_worker_without_the_right_token_ends_with_a_message(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-right")
    token.chmod(0o600)
    wrong = tmp_path / "wrong"
    wrong.write_text("0123456789abcdef-wrong")
    wrong.chmod(0o600)
    with serving(tmp_path, "--token-file", str(token)) as server:
        mistaken = WorkerProcess(server, "w1", "--token-file", str(wrong))
        bare = WorkerProcess(server, "w2")

        assert (mistaken.wait(), bare.wait()) == (1, 1)
        assert mistaken.log().splitlines()[-1] == "schedo: the token is wrong"
        assert bare.log().splitlines()[-1] == (
            "schedo: the token is missing; give the token with --token-file or SCHEDO_TOKEN"
        )


def test_a_worker_waits_for_a_server_that_has_not_started(tmp_path: Path) -> None:
    port = find_port()
    server = Server(tmp_path, "--port", port)
    process = WorkerProcess(server, "w1", url=f"http://127.0.0.1:{port}")
    try:
        eventually(lambda: "cannot reach" in process.log(), "complaint")
        server.start()
        process.wait_seen()
    finally:
        process.process.kill()
        process.wait()
        server.kill()


def test_invocations_alternate_between_two_workers_and_fail_at_once_if_both_are_busy(
    tmp_path: Path,
) -> None:
    (tmp_path / "calculus.py").write_text(APPLICATION)
    one = ("calculus:app", *FAR, "--queues", "far,default", "--slots", "1", "--label", "region=eu")
    gates = [Gate(tmp_path, name) for name in ("one", "two")]
    with shell_server(tmp_path) as server, worker(server, "w1", *one), worker(server, "w2", *one):
        answers = [server.ask("POST", "/schedule", SHORT) for _ in range(4)]
        workers = {job["worker"] for job in server.ask("GET", "/v1/jobs")[1]["items"]}
        jobs = [submit_remote(server, gate) for gate in gates]
        for gate in gates:
            gate.wait_begun()
        status, refusal = server.ask("POST", "/schedule", SHORT)
        for gate in gates:
            gate.open()
        states = [server.ended(job)["state"] for job in jobs]

    assert answers == [(200, {"Num": 2})] * 4
    assert workers == {"w1", "w2"}
    assert (status, refusal["code"]) == (503, "no-capacity")
    assert sum(refusal["rejected"].values()) == refusal["considered"], refusal
    assert states == ["completed", "completed"]


@pytest.mark.parametrize("value", ["chr(0)", "2**63", "[2**64]", "'fine'"])
def test_results_follow_the_same_rules_on_every_worker(tmp_path: Path, value: str) -> None:
    (tmp_path / "some_app.py").write_text(
        f"from schedo import Schedo\napp = Schedo()\n@app.task\ndef give():\n    return {value}\n"
    )
    with serving(tmp_path, "some_app:app") as server:
        near = server.ended(server.submit(task="give")["id"])
        with worker(server, "w1", "some_app:app", "--queues", "far"):
            to = {"worker": "w1"}
            far = server.ended(server.submit(task="give", queue="far", requires=to)["id"])

    assert far["worker"] == "w1" != near["worker"]
    told = [(job["state"], job.get("result"), job.get("error")) for job in (near, far)]
    assert told[0] == told[1]
    kind = None if value == "'fine'" else "result-not-json"
    assert (near.get("error") or {}).get("type") == kind
