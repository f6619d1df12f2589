"""Values of settings that are more than a kind of value."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.config import load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid


def test_the_objective_for_lateness_is_a_bound_of_the_histograms() -> None:
    assert load_config({}, {}, []).lateness_objective_us == 10_000
    assert load_config({"lateness_objective": "0.5s"}, {}, []).lateness_objective_us == 500_000

    with pytest.raises(Invalid) as caught:
        load_config({"lateness_objective": "15ms"}, {}, [])

    assert str(caught.value).startswith(
        "lateness_objective = '15ms' (flag --lateness-objective): expected one of 50us, 100us,"
    )


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        ("myapp.py:app", "myapp:app"),
        ("../jobs/myapp.py", "myapp:app"),
        ("/srv/myapp:main.app", "myapp:main.app"),
    ],
)
def test_the_file_of_an_application_is_refused_with_what_to_write(value: str, instead: str) -> None:
    with pytest.raises(Invalid, match=f"this names a file; write {instead}, the name of the mod"):
        load_config({"app": value}, {}, [])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("host", "unix:api.sock", "expected the absolute path of a file"),
        ("host", "unix:/run/schedo/", "expected the absolute path of a file"),
        ("host", "unix:/" + "a" * 107, "has at most 107 bytes"),
        ("socket_mode", "rw", "expected octal digits"),
        ("socket_mode", "0999", "expected octal digits"),
        ("socket_mode", 660, "expected octal digits"),
    ],
)
def test_a_unix_socket_has_an_absolute_short_path_and_octal_permissions(
    key: str, value: object, reason: str
) -> None:
    with pytest.raises(Invalid, match=rf"^{key} = .*{reason}"):
        load_config({key: value}, {}, [])


def test_a_port_beside_a_unix_socket_is_refused() -> None:
    socket = "unix:/run/schedo/api.sock"
    for flags, environment, source in (
        ({"host": socket, "port": "8081"}, {}, "flag --port"),
        ({"port": "8081"}, {"SCHEDO_HOST": socket}, "flag --port"),
        ({}, {"SCHEDO_HOST": socket, "SCHEDO_PORT": "8081"}, "environment SCHEDO_PORT"),
    ):
        with pytest.raises(Invalid, match=f"^port \\({source}\\): a Unix socket .* has no port"):
            check_config(load_config(flags, environment, []))


def test_the_mode_of_a_socket_beside_a_port_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "schedo.toml"
    file.write_text('socket_mode = "0660"')

    with pytest.raises(Invalid, match=r"^socket_mode \(flag --socket-mode\): only a Unix socket"):
        check_config(load_config({"socket_mode": "0660"}, {}, []))
    with pytest.raises(Invalid, match=rf"^socket_mode \({file}\): .* host is 127\.0\.0\.1; give"):
        check_config(load_config({}, {}, [file]))
    check_config(load_config({"host": "127.0.0.1"}, {}, [file]))  # for another start of it
    check_config(load_config({"host": "unix:/run/api.sock", "socket_mode": "0660"}, {}, []))


def test_a_unix_socket_overrides_the_port_of_what_it_overrides(tmp_path: Path) -> None:
    file = tmp_path / "schedo.toml"
    file.write_text("port = 8081")

    check_config(load_config({"host": "unix:/run/api.sock"}, {"SCHEDO_PORT": "8081"}, [file]))
    check_config(load_config({}, {"SCHEDO_HOST": "unix:/run/api.sock"}, [file]))


def test_a_unix_socket_has_no_tls_and_needs_no_token() -> None:
    local = {"host": "unix:/run/schedo/api.sock"}
    check_config(load_config(local, {}, []))

    with pytest.raises(Invalid, match=r"^tls_cert .*a Unix socket .* has no TLS"):
        check_config(load_config({**local, "tls_cert": "a", "tls_key": "b"}, {}, []))


def test_a_file_may_begin_with_the_mark_that_editors_of_windows_write(tmp_path: Path) -> None:
    path = tmp_path / "schedo.toml"
    path.write_text("\ufeffport = 8081")

    assert load_config({}, {}, [path]).port == 8081
