"""A real server process: the examples of the README, kills, signals and failed starts."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.server import Server, eventually, serving

pytestmark = pytest.mark.e2e


def test_a_delayed_command_runs_and_its_output_is_stored(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        job = server.submit(task="shell", payload={"command": "echo hello"}, delay="0.2s")
        assert job["state"] == "scheduled"

        ended = server.ended(job["id"])

        assert (ended["state"], ended["result"]["exit_code"]) == ("completed", 0)
        assert ended["started_at"] >= ended["scheduled_at"]
        assert server.output(job["id"]) == "hello\n"


def test_the_short_forms_of_the_api_run_commands(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        _, accepted = server.ask("POST", "/schedule", {"command": "exit 3", "delay_seconds": 0.1})
        task_id = accepted["task_id"]

        def failed() -> dict[str, object] | None:
            status = dict(server.ask("GET", f"/status?task_id={task_id}")[1])
            return status if "failed_at" in status else None

        status = eventually(failed, "failed command")
        assert status["exit_code"] == 3
        assert status["scheduled_at"] <= status["picked_at"] <= status["failed_at"]  # type: ignore[operator]


def test_a_schedule_fires_every_second(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        body = {"cron": "* * * * * *", "task": "shell", "payload": {"command": "true"}}
        assert server.ask("PUT", "/v1/schedules/beat", body)[0] == 201

        def first_instants() -> list[str] | None:
            _, jobs = server.ask("GET", "/v1/jobs?schedule=beat&state=completed")
            instants = [job["scheduled_for"] for job in jobs["items"]]
            return instants if len(instants) >= 3 else None

        instants = eventually(first_instants, "three runs")
        assert len(set(instants)) == len(instants)
        assert all(instant.endswith(".000000Z") for instant in instants)


def test_a_webhook_arrives_signed_at_a_real_server(tmp_path: Path) -> None:
    with (
        receiver() as (port, received),
        serving(tmp_path, "--webhook-allow", f"127.0.0.1:{port}") as server,
    ):
        payload = {
            "url": f"http://127.0.0.1:{port}/hook",
            "body": {"order": 7},
            "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }
        job = server.submit(task="http", payload=payload)

        assert server.ended(job["id"])["state"] == "completed"
        headers, body = received[0]
        assert json.loads(body) == {"order": 7}
        assert headers["webhook-id"] == job["id"]
        assert headers["webhook-signature"].startswith("v1,")


def test_a_private_target_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    with receiver() as (port, received), serving(tmp_path) as server:
        job = server.submit(task="http", payload={"url": f"http://127.0.0.1:{port}/hook"})

        ended = server.ended(job["id"])

        assert (ended["state"], ended["error"]["type"]) == ("failed", "target-refused")
        assert received == []


def test_no_acknowledged_job_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """Clients submit while the server is killed repeatedly; every acknowledged job must run."""
    acknowledged: list[str] = []
    with serving(tmp_path, "--allow-shell") as server:
        for kills in range(1, 5):
            stop = threading.Event()
            threads = [
                threading.Thread(target=_submit_until, args=(server, stop, acknowledged))
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            eventually(partial(_has_more_than, acknowledged, 30 * kills), "submits")
            server.kill()
            stop.set()
            for thread in threads:
                thread.join()
            server.start()

        for job_id in acknowledged:
            ended = server.ended(job_id)
            assert (ended["state"], ended["losses"]) == ("completed", 0), ended


def _has_more_than(acknowledged: list[str], count: int) -> bool:
    return len(acknowledged) > count


def _submit_until(server: Server, stop: threading.Event, acknowledged: list[str]) -> None:
    while not stop.is_set():
        try:
            job = server.submit(
                task="shell", payload={"command": ["/bin/true"]}, delay=0.3, retry=5
            )
        except (OSError, ValueError):
            return  # the server was killed meanwhile, so this job is not acknowledged
        acknowledged.append(job["id"])


def test_a_command_that_was_running_is_ended_and_run_again_after_a_kill(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with serving(tmp_path, "--allow-shell") as server:
        command = f"echo $$ >> {pids}; if [ $SCHEDO_ATTEMPT = 1 ]; then sleep 100; fi"
        job = server.submit(task="shell", payload={"command": command})
        eventually(lambda: pids.exists() and pids.read_text().strip(), "first attempt")
        server.kill()
        server.start()

        ended = server.ended(job["id"])

        assert (ended["state"], ended["attempt"], ended["losses"]) == ("completed", 2, 0)
        first = int(pids.read_text().split()[0])
        assert not _is_alive(first)


def _is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_sigterm_lets_running_jobs_finish(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        started = tmp_path / "started"
        command = f"touch {started}; sleep 0.5; echo done"
        job = server.submit(task="shell", payload={"command": command})
        eventually(started.exists, "start")

        assert server.terminate() == 0

        server.start()
        ended = server.ended(job["id"])
        assert (ended["state"], ended["attempt"]) == ("completed", 1)


def test_sigterm_releases_attempts_that_do_not_finish_in_time(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell", "--drain-grace", "0.2s") as server:
        started = tmp_path / "started"
        command = f"touch {started}; if [ $SCHEDO_ATTEMPT = 1 ]; then sleep 100; fi"
        job = server.submit(task="shell", payload={"command": command})
        eventually(started.exists, "start")

        assert server.terminate() == 0

        server.start()
        ended = server.ended(job["id"])
        assert (ended["state"], ended["attempt"]) == ("completed", 2)
        assert "losses" not in ended or ended["losses"] == 0


def test_a_second_sigterm_ends_the_grace_time_and_releases_the_attempts(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        started = tmp_path / "started"
        command = f"touch {started}; if [ $SCHEDO_ATTEMPT = 1 ]; then sleep 100; fi"
        job = server.submit(task="shell", payload={"command": command})
        eventually(started.exists, "start")
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: server.ask("GET", "/readyz")[0] == 503, "drain, seen over HTTP")

        assert server.terminate() == 0

        server.start()
        ended = server.ended(job["id"])
        assert (ended["state"], ended["attempt"], ended["losses"]) == ("completed", 2, 0)


def serve_second(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Start a server that cannot serve, and return how it has ended."""
    return subprocess.run(
        [sys.executable, "-m", "schedo", "serve", *args],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        second = serve_second(tmp_path, "--port", port, "--store", "other/s.db")

        assert second.returncode == 78
        assert f"port {port} of 127.0.0.1 is in use" in second.stderr


def test_a_server_whose_port_is_in_use_makes_no_store(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        second = serve_second(tmp_path, "--port", port, "--store", "other/s.db")

        assert second.returncode == 78
        assert not (tmp_path / "other").exists()


def test_a_second_server_on_the_same_file_and_port_is_refused_because_of_the_file(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:
        second = serve_second(tmp_path, "--port", server.url.rpartition(":")[2])

        assert second.returncode == 73  # after which a supervisor starts it again
        assert str(server.pid) in second.stderr


def test_an_application_is_not_imported_if_the_port_is_in_use(tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    code = f"from pathlib import Path\nPath({str(imported)!r}).touch()\nimport schedo\n"
    (tmp_path / "touching_app.py").write_text(f"{code}app = schedo.Schedo()\n")
    with serving(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        args = ["touching_app:app", "--store", "other/s.db", "--port"]
        second = serve_second(tmp_path, *args, port)

        assert second.returncode == 78
        assert f"port {port} of 127.0.0.1 is in use" in second.stderr
        assert not imported.exists()


def test_a_second_server_on_the_same_file_names_the_first(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        second = serve_second(tmp_path, "--port", "0")

        assert second.returncode == 73
        assert str(server.pid) in second.stderr
        assert server.ask("GET", "/readyz")[0] == 200


def test_a_second_server_on_the_same_file_kills_no_command_of_the_first(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        job = server.submit(task="shell", payload={"command": "sleep 2; echo done"})["id"]
        server.ended(server.submit(task="shell", payload={"command": "true"})["id"])

        second = subprocess.run(
            [sys.executable, "-m", "schedo", "serve", "--port", "0", "--allow-shell"],
            cwd=tmp_path,
            capture_output=True,
            timeout=20,
            check=False,
        )

        assert second.returncode == 73
        assert server.ended(job)["attempt"] == 1
        assert server.output(job) == "done\n"


def test_commands_are_refused_unless_allow_shell_is_set(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        status, problem = server.ask(
            "POST", "/v1/jobs", {"task": "shell", "payload": {"command": "true"}}
        )

        assert (status, problem["code"]) == (403, "shell-disabled")


def test_an_address_off_loopback_needs_a_token(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "schedo", "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert refused.returncode == 2
    assert "--token-file" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_a_command_inherits_neither_secrets_nor_descriptors(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell", SCHEDO_STORE="./other/s.db", PASSWORD="hush") as server:
        job = server.submit(
            task="shell", payload={"command": "env; ls /proc/self/fd | tr '\\n' ' '"}
        )
        assert server.ended(job["id"])["state"] == "completed"

        text = server.output(job["id"])

        assert "hush" not in text
        assert "SCHEDO_STORE" not in text
        assert f"SCHEDO_JOB_ID={job['id']}" in text
        assert text.splitlines()[-1].split()[:3] == ["0", "1", "2"]
        assert len(text.splitlines()[-1].split()) == 4  # the fourth is the directory that ls reads


@contextmanager
def receiver() -> Iterator[tuple[int, list[tuple[dict[str, str], bytes]]]]:
    """A real HTTP server that records the requests it receives."""
    received: list[tuple[dict[str, str], bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            received.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


TALKER = """
import logging
from schedo import Schedo

app = Schedo()

@app.task
def talk():
    logging.getLogger("shop").info("line one\\nline two")
"""


def test_the_log_names_a_store_of_the_application_that_the_server_does_not_use(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text("from schedo import Schedo\napp = Schedo('jobs.db')\n")
    with serving(tmp_path, "shop:app") as server:
        warning = "shop:app does not use its own store jobs.db"
        eventually(lambda: warning in server.log(), "the warning")

    assert not (tmp_path / "jobs.db").exists()


def test_the_log_lines_of_a_task_have_the_format_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    with serving(tmp_path, "--log-format", "json", "talker:app") as server:
        server.ended(server.submit(task="talk")["id"])
        lines = [json.loads(line) for line in server.log().splitlines()]

    (said,) = [line for line in lines if line["logger"] == "shop"]
    assert (said["level"], said["message"]) == ("info", "line one\nline two")
    assert said.keys() == {*lines[0], "job", "task"}
