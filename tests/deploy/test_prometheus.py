"""The alerts and the Grafana board: promtool accepts them, and a real Prometheus finds their data.

Debian's package `prometheus` has both programs; without them the tests are skipped loudly.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.remote import find_port
from tests.e2e.server import DEADLINE_S, Server, eventually, serving
from tests.sources import ROOT

pytestmark = pytest.mark.e2e

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
TESTS = sorted(RULES.parent.glob("*_test.yml"))
BOARD = ROOT / "deploy" / "grafana" / "schedo.json"
METRIC = re.compile(r"\b(?:schedo|process)_[a-z_]+\b")
# These have a series only while there is something to say; the tests of /metrics show that they do.
SOMETIMES = {
    "schedo_unserved_jobs",
    "schedo_expectation_missed",
    "schedo_postgres_oldest_snapshot_seconds",
    "schedo_schedule_last_completion_timestamp_seconds",
}


@pytest.fixture
def programs(capsys: pytest.CaptureFixture[str]) -> None:
    missing = [name for name in ("promtool", "prometheus") if shutil.which(name) is None]
    if missing:
        with capsys.disabled():
            print(
                f"\nNOT TESTED: deploy/prometheus, because there is no {' and no '.join(missing)}"
            )
        pytest.skip(f"there is no {missing}")


def run(*command: str) -> None:
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50, check=False
    )
    assert ran.returncode == 0, ran.stdout.decode()


def test_the_rules_are_what_prometheus_accepts(programs: None) -> None:
    run("promtool", "check", "rules", str(RULES))


def test_each_alert_fires_for_its_trouble_and_not_beside_it(programs: None) -> None:
    run("promtool", "test", "rules", *map(str, TESTS))


def test_each_alert_is_tested_and_has_a_runbook() -> None:
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    tested = "".join(file.read_text() for file in TESTS)
    runbook = (ROOT / "docs" / "operations.md").read_text()

    assert len(alerts) == len(set(alerts)) >= 10
    assert [name for name in alerts if name not in tested] == []
    assert [name for name in alerts if f"`{name}`" not in runbook] == []


class Prometheus:
    """A Prometheus that scrapes one server each second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        text = urllib.parse.urlencode(query)
        with urllib.request.urlopen(f"{self._url}{path}?{text}", timeout=DEADLINE_S) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self.ask("/api/v1/query", query=expression)["result"])


@contextmanager
def scraping(server: Server, directory: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with the rules during the block."""
    address = f"127.0.0.1:{find_port()}"
    target = server.url.removeprefix("http://")
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "schedo", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(f"http://{address}")
        eventually(lambda: scraped(prometheus), "scrapes of the server")
        yield prometheus
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def scraped(prometheus: Prometheus) -> bool:
    """Whether there are enough scrapes for a rate."""
    try:
        found = prometheus.query("count_over_time(schedo_ready[1m])")
    except OSError:  # it starts
        return False
    return bool(found) and int(found[0]["value"][1]) >= 3


def work(server: Server) -> None:
    """Let the server have something to measure, and go on while it is scraped."""
    schedule = {"every": "1s", "task": "shell", "payload": {"command": "true"}}
    assert server.ask("PUT", "/v1/schedules/tick", schedule)[0] == 201
    failing = server.submit(task="shell", payload={"command": "exit 3"})
    server.ended(failing["id"])
    server.submit(task="shell", payload={"command": "true"}, delay="1h")
    server.submit(task="nobody.has.this")


def test_each_query_of_the_rules_and_of_the_board_finds_its_data(
    programs: None, tmp_path: Path
) -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    queries = {panel["title"]: [each["expr"] for each in panel["targets"]] for panel in panels}
    with serving(tmp_path, "--allow-shell") as server:
        work(server)
        with scraping(server, tmp_path) as prometheus:
            groups = prometheus.ask("/api/v1/rules")["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            names = {name for rule in rules for name in METRIC.findall(rule["query"])}
            missing = [name for name in names - SOMETIMES if not prometheus.query(name)]
            empty = [
                (title, query)
                for title, expressions in queries.items()
                for query in expressions
                if not prometheus.query(fill_in(query))
            ]

    assert (missing, empty) == ([], [])
    assert len(names) > 10


def fill_in(query: str) -> str:
    return query.replace("$__rate_interval", "1m").replace("$instance", ".*")
