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
GRPC = ROOT / "deploy" / "compose" / "grpc.yaml"
DOCKERFILE = ROOT / "Dockerfile"
SCHEMA = Path(__file__).parent / "vendor" / "compose-spec.json"
EXAMPLE = ROOT / "examples" / "compose"


def read_compose(file: Path = COMPOSE) -> dict[str, Any]:
    """Return the file as Compose reads it: with the defaults of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", file.read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_compose()["services"]
    return found


def instructions(name: str) -> list[str]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("file", [COMPOSE, GRPC], ids=lambda file: file.name)
def test_the_file_keeps_the_compose_specification(file: Path) -> None:
    errors = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in Draft7Validator(json.loads(SCHEMA.read_text())).iter_errors(read_compose(file))
    ]

    assert errors == []


def test_grpc_has_a_port_and_an_image_with_its_extra(
    services: dict[str, dict[str, Any]],
) -> None:
    server = read_compose(GRPC)["services"]["server"]
    [published] = server["ports"]
    [argument] = server["build"]["args"].items()

    config = load_config({}, server["environment"], paths=[])
    assert published.endswith(f":{config.grpc_port}")
    assert argument == ("REQUIREMENTS", "all")
    assert f"{argument[0]}=run" in instructions("ARG")
    assert server["image"] != services["worker"]["image"]


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


def prepare(root: Path) -> dict[str, str]:
    """Run prepare.sh with its folders below the root; return the contents of its files by name."""
    script = (ROOT / "deploy" / "compose" / "prepare.sh").read_text()
    for name in ("/run/server", "/run/worker", "/data", "/output"):
        (root / name[1:]).mkdir(parents=True, exist_ok=True)
        script = script.replace(name, f"{root}{name}")
    owner = f"{os.getuid()}:{os.getgid()}"
    subprocess.run(["sh", "-c", script, "prepare.sh", owner], check=True)
    files = [path for path in (root / "run").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    return {path.name: path.read_text() for path in files}


def test_the_tokens_are_made_once_and_are_what_the_server_reads(tmp_path: Path) -> None:
    first = prepare(tmp_path)

    assert prepare(tmp_path) == first
    assert len(first) == 3
    [(_, permission)] = parse_tokens(first["tokens"], "tokens", "the file", check_token).items()
    assert (permission.role, permission.may_declare) == (Role.WORKER, True)
    assert first["tokens"].strip().startswith(first["token"] + " ")
    config = load_config({"token_file": f"{tmp_path}/run/server/admin"}, {}, paths=[])
    assert config.token is not None
    assert first["admin"] != first["token"]


def test_a_start_leaves_the_tokens_of_the_user_as_they_are(tmp_path: Path) -> None:
    first = prepare(tmp_path)
    of_ann = "0123456789abcdef0123 role=viewer name=ann"
    own = f"{first['token']} role=worker name=mine queues=mail\n{of_ann}"  # without an end of line
    (tmp_path / "run/server/tokens").write_text(own)

    assert prepare(tmp_path)["tokens"] == own

    (tmp_path / "run/worker/token").write_text("fedcba98765432100123")
    permissions = parse_tokens(prepare(tmp_path)["tokens"], "tokens", "the file", check_token)
    assert [each.name for each in permissions.values()] == ["mine", "ann", "compose"]


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
