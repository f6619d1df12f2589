"""`schedo serve` and `schedo config show`: how options become the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from schedo.cli.main import cli
from schedo.config import option, variable
from schedo.setting_table import SETTINGS

Args = tuple[str, ...]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the configuration files and variables of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for key in (*SETTINGS, "token", "config"):
        monkeypatch.delenv(variable(key), raising=False)


def schedo(*args: str) -> Result:
    return CliRunner().invoke(cli, args, prog_name="schedo")


def shown(*args: str) -> dict[str, tuple[object, str]]:
    result = schedo("config", "show", "--json", *args)
    assert result.exit_code == 0, result.stderr
    return {row["key"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}


def test_every_setting_is_an_option_and_its_help_names_the_variable() -> None:
    text = schedo("serve", "--help").stdout

    for key in SETTINGS:
        if key != "app":
            assert option(key) in text
            assert variable(key) in "".join(text.split())


def test_options_reach_the_configuration() -> None:
    settings = shown(
        *("--port", "0", "--allow-shell", "--store", "x.db", "--retention-failed", "30d"),
        *("--webhook-allow", "10.0.0.0/8", "--webhook-allow", "hooks:80"),
    )

    assert settings["port"] == (0, "flag --port")
    assert settings["allow_shell"] == (True, "flag --allow-shell")
    assert settings["store"] == ("x.db", "flag --store")
    assert settings["retention.failed"] == ("30d", "flag --retention-failed")
    assert settings["webhook_allow"] == (["10.0.0.0/8", "hooks:80"], "flag --webhook-allow")
    assert settings["host"] == ("127.0.0.1", "default")


def test_a_test_clock_is_refused_with_a_store_that_production_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_flag = schedo("serve", "--test-clock", "--store", "x.db")
    monkeypatch.setenv("SCHEDO_STORE", "y.db")
    by_variable = schedo("serve", "--test-clock")

    assert (by_flag.exit_code, by_variable.exit_code) == (2, 2)
    assert "store = 'x.db' (flag --store): a server with --test-clock keeps" in by_flag.stderr
    assert "store = 'y.db' (environment SCHEDO_STORE)" in by_variable.stderr


def test_a_reload_without_an_app_is_refused() -> None:
    refused = schedo("serve", "--reload")

    assert (refused.exit_code, "--reload needs an app" in refused.stderr) == (2, True)


def test_a_flag_can_be_turned_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDO_ALLOW_SHELL", "true")

    assert shown()["allow_shell"] == (True, "environment SCHEDO_ALLOW_SHELL")
    assert shown("--no-allow-shell")["allow_shell"] == (False, "flag --allow-shell")


def test_a_configuration_file_given_by_name_is_the_only_one_read(tmp_path: Path) -> None:
    (tmp_path / "schedo.toml").write_text("port = 1\nconcurrency = 9")
    (tmp_path / "other.toml").write_text("port = 2")

    settings = shown("--config", "other.toml")

    assert settings["port"] == (2, "other.toml")
    assert settings["concurrency"] == (16, "default")
    assert shown()["port"] == (1, "schedo.toml")


def test_the_table_masks_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDO_TOKEN", "0123456789abcdef0123")

    result = schedo("config", "show")

    assert "0123456789abcdef" not in result.stdout
    assert result.stdout.splitlines()[-1].split() == [
        *("token", "********", "environment", "SCHEDO_TOKEN")
    ]


def test_config_show_warns_if_a_server_would_not_start() -> None:
    result = schedo("config", "show", "--host", "0.0.0.0")

    assert result.exit_code == 0
    assert result.stderr.startswith(
        "schedo: a server would not start with these settings: host = '0.0.0.0'"
    )


REFUSED: list[tuple[Args, str]] = [
    (("--host", "0.0.0.0"), "host = '0.0.0.0' (flag --host): the server would accept jobs"),
    (("--host", "::"), "add --token-file schedo.token"),
    (("--port", "http"), "port = 'http' (flag --port): expected a whole number"),
    (("--config", "no.toml"), "the configuration file no.toml does not exist"),
    (("--token-file", "no"), "token_file = 'no': cannot be read"),
    (("myapp",), "app = 'myapp' (flag --app): expected module:name"),
]


@pytest.mark.parametrize(("args", "reason"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_a_wrong_configuration_is_exit_code_2_with_the_reason(args: Args, reason: str) -> None:
    result = schedo("serve", *args)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("schedo: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unknown_variable_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDO_PROT", "1")

    result = schedo("serve")

    assert result.exit_code == 2
    assert "unknown key prot (environment SCHEDO_PROT); did you mean SCHEDO_PORT?" in result.stderr


def test_an_unknown_option_is_exit_code_2() -> None:
    assert schedo("serve", "--prot", "1").exit_code == 2
