"""`schedo worker`: a start that fails gives its reason in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_worker_app.py").write_text("import nothing_of_that_name")
    (tmp_path / "leaving_worker_app.py").write_text("raise SystemExit(3)")
    (tmp_path / "other_worker_app.py").write_text("app = 7")
    return tmp_path


REFUSED: list[tuple[tuple[str, ...], str]] = [
    (("--name", "my worker"), "a worker's name is 1 to 128 letters"),
    (("--name", "embedded"), "is a name that the server uses itself"),
    (("--slots", "0"), "0 is not in the range"),
    (("--label", "gpu"), "'gpu': write it as name=value"),
    (("--label", "a b=c"), "label/a b"),
    (("--resource", "memory=lots"), "resource/memory"),
    (("--queues", "a,b c"), "queue 'b c'"),
    (("--queues", " ,"), "give at least one name, or omit the option for all"),
    (("--tasks", "fly"), "task 'fly': there is only http"),
    (("--tasks", "shell"), "may not run it; set allow_shell"),
    (("--output-dir", "out"), "this worker may not run commands"),
    (("--session-timeout", "1s"), "it must be 5 s to 1 h"),
    (("--session-timeout", "soon"), "'--session-timeout': 'soon' is not a duration"),
    (("--server", "127.0.0.1:8080"), "write it as http://127.0.0.1:8080"),
    (("--token-file", "no"), "token_file = 'no': cannot be read"),
    (("--log-format", "xml"), "'xml' is not one of"),
    (("missing_worker_app:app",), "cannot import 'missing_worker_app:app'"),
    (("broken_worker_app:app",), "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    (("../myapp.py:app",), "'../myapp.py:app': this names a file; write myapp:app, the name of"),
    (("myapp.py:main",), "write myapp:main"),
    (("./myapp",), "write myapp:app"),
    ((".:app",), "write myapp:app"),
    (("leaving_worker_app:app",), "cannot import 'leaving_worker_app:app': SystemExit: 3"),
    (("other_worker_app:app",), "is a int, not a Schedo application"),
    (("other_worker_app:that",), "has no 'that'"),
]


@pytest.mark.parametrize(("args", "reason"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_a_wrong_worker_is_exit_code_2_with_the_reason(
    schedo: Call, args: tuple[str, ...], reason: str
) -> None:
    result = schedo("worker", *args)

    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("SCHEDO_WORKER_NAME", "a b", "a worker's name is"),
        ("SCHEDO_WORKER_SLOTS", "none", "'none' is not a valid integer"),
        ("SCHEDO_WORKER_LABELS", "region=eu gpu", "'gpu': write it as name=value"),
        ("SCHEDO_WORKER_QUEUES", "a b", "queue 'a b'"),
        ("SCHEDO_URL", "x", "write it as http://"),
        ("SCHEDO_APP", "other_worker_app:app", "not a Schedo application"),
        ("SCHEDO_OUTPUT_DIR", "out", "this worker may not run commands"),
    ],
)
def test_every_option_can_be_set_by_a_variable(
    schedo: Call, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(variable, value)

    result = schedo("worker")

    assert result.exit_code == 2
    assert reason in result.stderr.splitlines()[-1]
