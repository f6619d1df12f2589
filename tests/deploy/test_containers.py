"""The Dockerfile and compose.yaml: their form, and that schedo knows what they tell it.

The schema is that of the Compose Specification (compose-spec/compose-spec on GitHub, commit
170098ba, Apache License 2.0: vendor/compose-spec.LICENSE). No test starts a container.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from jsonschema import Draft7Validator

from schedo import health
from schedo.client.tokens import check_token
from schedo.config import load_config
from schedo.protocol.roles import Role
from schedo.web.permissions import parse_tokens
from tests.deploy.commands import accept
from tests.sources import ROOT

COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
SCHEMA = Path(__file__).parent / "vendor" / "compose-spec.json"
EXAMPLE = ROOT / "examples" / "compose"


def read_compose() -> dict[str, Any]:
    """Return the file as Compose reads it: with the defaults of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_compose()["services"]
    return found


def instructions(name: str) -> list[str]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)


def test_the_file_keeps_the_compose_specification() -> None:
    errors = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in Draft7Validator(json.loads(SCHEMA.read_text())).iter_errors(read_compose())
    ]

    assert errors == []


@pytest.mark.parametrize("service", ["server", "worker"])
def test_schedo_knows_the_commands_of_the_containers(
    services: dict[str, dict[str, Any]], service: str
) -> None:
    accept(services[service]["command"])


def test_a_command_with_an_unknown_option_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        accept(["serve", "--log-fromat", "json"])


@pytest.mark.parametrize("service", ["server", "worker"])
def test_the_containers_have_no_rights_that_they_do_not_need(
    services: dict[str, dict[str, Any]], service: str
) -> None:
    container = services[service]

    assert container["user"].split(":")[0] != "0"
    assert container["read_only"]
    assert container["cap_drop"] == ["ALL"]
    assert "cap_add" not in container


@pytest.mark.parametrize("service", ["server", "worker"])
def test_a_stop_waits_for_the_drain(services: dict[str, dict[str, Any]], service: str) -> None:
    grace_s = load_config({}, {}, paths=[]).drain_grace_us / 1e6

    assert int(services[service]["stop_grace_period"].removesuffix("s")) > grace_s + 3


def test_the_health_check_asks_whether_the_server_is_ready(
    services: dict[str, dict[str, Any]],
) -> None:
    kind, program, *arguments = services["server"]["healthcheck"]["test"]

    assert (kind, program, arguments[:2]) == ("CMD", "python", ["-m", health.__name__])
    assert health.PATHS[tuple(arguments[2:])] == "/readyz"
    assert services["worker"]["depends_on"]["server"] == {"condition": "service_healthy"}


def test_the_health_check_of_a_worker_looks_for_its_file(
    services: dict[str, dict[str, Any]],
) -> None:
    worker = services["worker"]
    command = worker["command"]

    file = command[command.index("--ready-file") + 1]
    assert worker["healthcheck"]["test"] == ["CMD", "test", "-e", file]
    assert str(Path(file).parent) in worker["tmpfs"]


def test_the_tokens_are_made_once_and_are_what_the_server_reads(tmp_path: Path) -> None:
    script = (ROOT / "deploy" / "compose" / "prepare.sh").read_text()
    folders = {name: tmp_path / name.replace("/", "-") for name in ("/run/server", "/run/worker")}
    for name, folder in {**folders, "/data": tmp_path, "/output": tmp_path}.items():
        folder.mkdir(exist_ok=True)
        script = script.replace(name, str(folder))
    owner = f"{os.getuid()}:{os.getgid()}"
    for _ in range(2):
        subprocess.run(["sh", "-c", script, "prepare.sh", owner], check=True)
        first = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}

    server, worker = folders["/run/server"], folders["/run/worker"]
    subprocess.run(["sh", "-c", script, "prepare.sh", owner], check=True)
    assert {path: path.read_text() for path in first} == first
    assert [oct(path.stat().st_mode & 0o777) for path in first] == ["0o600"] * 3
    text = (server / "tokens").read_text()
    [permission] = parse_tokens(text, "tokens", "the file", check_token).values()
    assert (permission.role, permission.may_declare) == (Role.WORKER, True)
    assert text.startswith((worker / "token").read_text() + " ")
    config = load_config({"token_file": str(server / "admin")}, {}, paths=[])
    assert config.token is not None
    assert (server / "admin").read_text() != (worker / "token").read_text()


def test_the_example_is_an_application() -> None:
    code = "import app; print(*sorted(app.app.registry.tasks))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLE, capture_output=True, text=True, check=True
    )

    assert ran.stdout.split() == ["count", "every_minute", "greet"]


def test_the_base_of_the_image_is_one_release() -> None:
    base = instructions("ARG")[0]

    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert [name.split()[0] for name in instructions("FROM")] == ["${BASE}", "${BASE}"]


def test_the_image_with_the_extras_has_all_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        re.split("[^a-z0-9-]", requirement)[0]
        for extra in project["optional-dependencies"].values()
        for requirement in extra
    }
    pinned = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "all.txt").read_text(), re.M)

    assert len(wanted) >= 3
    assert wanted - set(pinned) == set()


def test_the_image_starts_the_server_as_a_user_without_rights() -> None:
    (entrypoint,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")

    accept(json.loads(entrypoint)[3:] + json.loads(command))
    assert json.loads(entrypoint)[:3] == ["tini", "--", "schedo"]
    assert instructions("USER")[-1].split(":")[0].isdecimal()
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    variables = dict(each.split("=", 1) for each in " ".join(instructions("ENV")).split())
    settings = {name: value for name, value in variables.items() if name.startswith("SCHEDO_")}
    assert load_config({}, settings, paths=[]).store == "/data/schedo.db"


def test_docker_accepts_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    docker = shutil.which("docker") or "docker"
    has_compose = (
        shutil.which(docker)
        and not subprocess.run(
            [docker, "compose", "version"], capture_output=True, check=False
        ).returncode
    )
    if not has_compose:
        with capsys.disabled():
            print("\nNOT TESTED: docker compose config, because it is not installed")
        pytest.skip("there is no docker compose")
    subprocess.run([docker, "compose", "config", "--quiet"], cwd=ROOT, check=True, timeout=30)
