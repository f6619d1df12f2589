"""The sources of a setting's value, and the values and variables that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from schedo.cli.run import run
from schedo.cli.worker import worker
from schedo.config import Config, describe_config, load_config, option, variable
from schedo.config_checks import check_config, is_loopback
from schedo.errors import Invalid
from schedo.setting_table import SETTINGS

TOKEN = "0123456789abcdef0123"
SECOND = 1_000_000
DAY = 86_400 * SECOND


def load(
    toml: str | None = None,
    environ: dict[str, str] | None = None,
    *,
    folder: Path | None = None,
    **flags: object,
) -> Config:
    paths = []
    if toml is not None:
        assert folder is not None
        paths = [folder / "schedo.toml"]
        paths[0].write_text(toml)
    return load_config(flags, environ if environ is not None else {}, paths)


def test_the_default_settings_are_safe() -> None:
    config = load()

    assert (config.host, config.port, config.store) == ("127.0.0.1", 8080, "./data/schedo.db")
    assert (config.allow_shell, config.token, config.webhook_allow) == (False, None, ())
    assert config.drain_grace_us == 25 * SECOND
    assert (config.retention.completed_us, config.retention.failed_us) == (DAY, 7 * DAY)
    check_config(config)


def test_flags_override_the_environment_which_overrides_files(tmp_path: Path) -> None:
    toml = 'host = "127.0.0.3"\nport = 1001\nconcurrency = 3'
    environ = {"SCHEDO_PORT": "1002", "SCHEDO_HOST": "127.0.0.2"}

    config = load(toml, environ, folder=tmp_path, host="127.0.0.1", port=None)

    assert (config.host, config.port, config.concurrency) == ("127.0.0.1", 1002, 3)
    assert config.sources == {
        "host": "flag --host",
        "port": "environment SCHEDO_PORT",
        "concurrency": str(tmp_path / "schedo.toml"),
        "async_concurrency": str(tmp_path / "schedo.toml"),
    }


@pytest.mark.parametrize(
    ("toml", "concurrency", "async_concurrency"),
    [
        ("", 16, 1_000),
        ("concurrency = 8", 8, 0),
        ("async_concurrency = 50", 16, 50),
        ("concurrency = 8\nasync_concurrency = 50", 8, 50),
    ],
)
def test_async_tasks_share_a_concurrency_that_is_set_alone(
    tmp_path: Path, toml: str, concurrency: int, async_concurrency: int
) -> None:
    config = load(toml, folder=tmp_path)

    assert (config.concurrency, config.async_concurrency) == (concurrency, async_concurrency)


def test_a_later_file_overrides_an_earlier_one(tmp_path: Path) -> None:
    for name, toml in (("etc", "port = 1\nconcurrency = 1"), ("here", "port = 2")):
        (tmp_path / name).write_text(toml)

    config = load_config({}, {}, [tmp_path / "etc", tmp_path / "none", tmp_path / "here"])

    assert (config.port, config.concurrency) == (2, 1)


def test_the_default_files_are_in_the_working_directory_in_the_home_and_in_etc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedo").mkdir()
    (tmp_path / "schedo/schedo.toml").write_text("port = 1\nconcurrency = 7")
    (tmp_path / "schedo.toml").write_text("port = 2")
    monkeypatch.chdir(tmp_path)

    config = load_config({}, {"XDG_CONFIG_HOME": str(tmp_path)})

    assert (config.port, config.concurrency) == (2, 7)


def test_a_configuration_file_given_by_name_must_exist(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"no\.toml does not exist"):
        load_config({}, {}, [tmp_path / "no.toml"], must_exist=True)


def test_a_group_is_a_table_in_a_file_and_a_double_underscore_in_a_variable(
    tmp_path: Path,
) -> None:
    environ = {"SCHEDO_RETENTION__CANCELLED": "2h"}

    config = load('[retention]\nfailed = "30d"\ncompleted = 60', environ, folder=tmp_path)

    assert config.retention.failed_us == 30 * DAY
    assert config.retention.completed_us == 60 * SECOND
    assert config.retention.cancelled_us == 7_200 * SECOND


def test_a_list_is_an_array_in_a_file_and_separated_by_commas_in_a_variable(tmp_path: Path) -> None:
    environ = {"SCHEDO_WEBHOOK_ALLOW": "10.0.0.0/8, hooks.internal:9000,[::1]:80"}

    config = load('allowed_hosts = ["Jobs.Example", "*.example"]', environ, folder=tmp_path)

    assert config.allowed_hosts == ("jobs.example", "*.example")
    assert config.webhook_allow == ("10.0.0.0/8", "hooks.internal:9000", "[::1]:80")


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)]
)
def test_a_boolean_setting_is_read_from_the_environment(text: str, value: bool) -> None:
    assert load(environ={"SCHEDO_ALLOW_SHELL": text}).allow_shell is value


BAD_VALUES = [
    ("port", "abc", "expected a whole number from 0 to 65535"),
    ("port", "65536", "expected a whole number from 0 to 65535"),
    ("port", "-1", "expected a whole number"),
    ("port", "8080.0", "expected a whole number"),
    ("port", "", "expected a whole number"),
    ("port", "9" * 5_000, "expected a whole number"),
    ("concurrency", "0", "expected a whole number from 1 to 10000"),
    ("processes", "2000", "expected a whole number from 1 to 1024"),
    ("allow_shell", "maybe", "expected true or false"),
    ("log_format", "xml", "expected one of text, json"),
    ("log_level", "loud", "expected one of debug, info, warning, error"),
    ("drain_grace", "soon", "'soon' is not a duration"),
    ("drain_grace", "-5s", "negative"),
    ("store", "  ", "expected a non-empty text"),
    ("store", "a\nb", "without control characters"),
    ("app", "myapp", "expected module:name"),
    ("app", "my app:x", "expected module:name"),
    ("allowed_hosts", "http://x", "'http://x' is not a host name"),
    ("allowed_hosts", "x:80", "'x:80' is not a host name"),
    ("webhook_allow", "10.0.0.1/8", "'10.0.0.1/8' is not a host, host:port or CIDR block"),
    ("webhook_allow", "http://x", "is not a host, host:port or CIDR block"),
    ("webhook_allow", "a,,b", "'' is not a host"),
    ("retention.failed", "1 fortnight", "is not a duration"),
]


@pytest.mark.parametrize(
    ("key", "value", "reason"), BAD_VALUES, ids=[f"{k}={v:.12}" for k, v, _ in BAD_VALUES]
)
def test_a_bad_value_is_reported_with_key_and_source(key: str, value: str, reason: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(environ={variable(key): value})

    message = str(caught.value)
    assert message.startswith(f"{key} = {value!r} (environment {variable(key)}): ")
    assert reason in message


def test_a_value_of_the_wrong_type_in_a_file_is_reported(tmp_path: Path) -> None:
    for toml in ("port = true", "host = 5", "allowed_hosts = [1]", "drain_grace = [1]"):
        with pytest.raises(Invalid, match=rf"{toml.split()[0]} = .*schedo\.toml"):
            load(toml, folder=tmp_path)


def test_an_unknown_key_is_reported_with_its_source_and_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as from_file:
        load("conccurency = 5", folder=tmp_path)
    with pytest.raises(Invalid) as from_environment:
        load(environ={"SCHEDO_RETENTION_FAILED": "5d"})
    with pytest.raises(Invalid, match=r"unknown key retention\.kept"):
        load("[retention]\nkept = 5", folder=tmp_path)

    path = tmp_path / "schedo.toml"
    assert str(from_file.value) == (f"unknown key conccurency ({path}); did you mean concurrency?")
    assert str(from_environment.value) == (
        "unknown key retention_failed (environment SCHEDO_RETENTION_FAILED);"
        " did you mean SCHEDO_RETENTION__FAILED?"
    )


def test_a_group_written_as_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="unknown key retention"):
        load("retention = 5", folder=tmp_path)
    with pytest.raises(Invalid, match=r"unknown key port\.x"):
        load("[port]\nx = 5", folder=tmp_path)


def test_a_file_that_is_not_toml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot read .*schedo\.toml"):
        load("port = ", folder=tmp_path)


def test_variables_that_are_not_settings_are_ignored() -> None:
    environ = {
        "SCHEDO_URL": "http://x",
        "SCHEDO_JOB_ID": "01K",
        "SCHEDO_MARK": "1",
        "PATH": "/bin",
        # Kubernetes sets these for a service named "schedo".
        "SCHEDO_PORT": "tcp://10.0.0.1:8080",
        "SCHEDO_PORT_8080_TCP_ADDR": "10.0.0.1",
        "SCHEDO_SERVICE_HOST": "10.0.0.1",
    }

    assert load(environ=environ).port == 8080


@pytest.mark.parametrize("command", [run, worker], ids=["run", "worker"])
def test_the_server_ignores_the_variables_of_other_commands(command: click.Command) -> None:
    environ = {
        str(each.envvar): "x"
        for each in command.params
        if each.envvar and each.name not in SETTINGS and each.name != "grace"
    }

    assert "SCHEDO_URL" in environ
    assert load(environ=environ) == load()


# The token.


def write_token(folder: Path, text: str = TOKEN + "\n", mode: int = 0o600) -> str:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "written by an editor of Windows"])
def test_a_token_is_read_from_a_file(tmp_path: Path, mark: str) -> None:
    path = write_token(tmp_path, mark + TOKEN)

    config = load(token_file=path)

    assert config.token is not None
    assert config.token.reveal() == TOKEN
    assert config.sources["token"] == f"file {path}"


def test_a_token_is_removed_from_the_environment() -> None:
    environ = {"SCHEDO_TOKEN": TOKEN}

    config = load(environ=environ)

    assert config.token is not None
    assert config.token.reveal() == TOKEN
    assert environ == {}


def test_a_token_file_given_as_a_flag_overrides_the_environment(tmp_path: Path) -> None:
    other = "fedcba98765432100123"

    config = load(environ={"SCHEDO_TOKEN": other}, token_file=write_token(tmp_path))

    assert config.token is not None
    assert config.token.reveal() == TOKEN


def test_the_token_is_never_shown(tmp_path: Path) -> None:
    config = load(token_file=write_token(tmp_path))

    described = list(describe_config(config))
    assert TOKEN not in repr(config) + repr(described) + str(config.token)
    assert ("token", "********", f"file {tmp_path / 'token'}") in described


WEAK = [
    ("", "has 0 characters; at least 16"),
    ("8charsxx", "has 8 characters; at least 16"),
    ("default_token_default_token", "placeholder"),
    ("CHANGE_ME_CHANGE_ME", "placeholder"),
    ("changeme-changeme-1", "placeholder"),
    ("a" * 32, "placeholder"),
    ("two words are no token", "one line of at most 4096 visible ASCII"),
    ("0123456789abcdef\n0123456789abcdef", "one line"),
    ("x1y2" * 1_025, "one line of at most 4096"),
    ("0123456789abcdefü", "one line"),
]


@pytest.mark.parametrize(("token", "reason"), WEAK, ids=[token[:20] for token, _ in WEAK])
def test_a_weak_token_is_refused_with_the_fix_and_without_showing_it(
    tmp_path: Path, token: str, reason: str
) -> None:
    path = write_token(tmp_path, token)

    for environ in ({"SCHEDO_TOKEN": token}, {"SCHEDO_TOKEN_FILE": path}):
        with pytest.raises(Invalid) as caught:
            load(environ=environ)

        assert reason in str(caught.value)
        assert "openssl rand -hex 32" in str(caught.value)
        assert not token or token not in str(caught.value)


@pytest.mark.parametrize("mode", [0o602, 0o622, 0o666], ids=oct)
def test_a_token_file_that_every_user_can_write_is_refused_with_the_fix(
    tmp_path: Path, mode: int
) -> None:
    path = write_token(tmp_path, mode=mode)

    with pytest.raises(Invalid, match=re.escape(f"can write it; fix: chmod 600 {path}")):
        load(token_file=path)


@pytest.mark.parametrize("mode", [0o444, 0o644, 0o604], ids=oct)
def test_a_token_file_with_the_mode_of_a_container_is_accepted_with_a_warning(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_token(tmp_path, mode=mode)

    assert load(token_file=path).token is not None
    assert f"to close it: chmod 600 {path!r}, in Kubernetes `defaultMode: 0400`" in caplog.text
    assert TOKEN not in caplog.text


def test_a_token_file_of_the_group_is_allowed(tmp_path: Path) -> None:
    assert load(token_file=write_token(tmp_path, mode=0o440)).token is not None


def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"token_file = .*nothing.*cannot be read"):
        load(token_file=str(tmp_path / "nothing"))


def test_a_token_is_refused_in_a_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(
        Invalid, match=r"schedo\.toml must not contain the token: put it in a file of its own"
    ):
        load(f'token = "{TOKEN}"', folder=tmp_path)


# Addresses to listen on.


@pytest.mark.parametrize(
    ("host", "is_only_here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.example.org", False),
        ("127.1", False),
        ("example.org", False),
    ],
)
def test_only_loopback_addresses_count_as_loopback(host: str, is_only_here: bool) -> None:
    assert is_loopback(host) is is_only_here


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5"])
def test_an_address_off_loopback_requires_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"without a token; either .* --token-file schedo\.token"):
        check_config(load(host=host))

    check_config(load(host=host, token_file=write_token(tmp_path)))


# Descriptions of the settings.


def test_every_setting_is_described_with_its_source() -> None:
    described = list(describe_config(load(environ={"SCHEDO_DRAIN_GRACE": "90s"})))

    assert [key for key, _, _ in described] == [*SETTINGS, "token"]
    assert ("drain_grace", "90s", "environment SCHEDO_DRAIN_GRACE") in described
    assert ("retention.failed", "7d", "default") in described
    assert ("webhook_allow", [], "default") in described


def test_each_setting_has_a_variable_and_an_option() -> None:
    assert variable("retention.failed") == "SCHEDO_RETENTION__FAILED"
    assert option("retention.failed") == "--retention-failed"
    assert option("allow_shell") == "--allow-shell"
