"""The payload of shell jobs: valid fields, and refusals that name the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.errors import Invalid
from schedo.tasks.shell.payload import check_shell_payload


def test_a_payload_has_the_documented_defaults() -> None:
    payload = check_shell_payload(b'{"command": "true"}')

    assert (payload.cwd, payload.env, payload.stdin) == (None, {}, None)
    assert (payload.grace, payload.shell, payload.success_codes) == ("5s", "/bin/sh", (0,))


@pytest.mark.parametrize(
    ("payload", "pointer", "detail"),
    [
        (None, "/payload", "Expected object, got null"),
        ([], "/payload", "Expected object, got array"),
        ({}, "/payload/command", "this field is required"),
        ({"command": 1}, "/payload/command", "Expected text or array, got whole number"),
        ({"command": ["a", 1]}, "/payload/command/1", "Expected text, got whole number"),
        ({"command": ""}, "/payload/command", "it must not be empty"),
        ({"command": " "}, "/payload/command", "it must not be empty"),
        ({"command": []}, "/payload/command", "it must not be empty"),
        ({"command": ["", "a"]}, "/payload/command", "it must not be empty"),
        ({"command": "a\0b"}, "/payload/command", "NUL"),
        ({"command": ["a", "b\0"]}, "/payload/command/1", "NUL"),
        ({"command": "a" * 131_072}, "/payload/command", "longer than 131071 bytes"),
        ({"command": "a", "comand": 1}, "/payload/comand", "there is no such field"),
        ({"command": "a", "cwd": "tmp"}, "/payload/cwd", "absolute path"),
        ({"command": "a", "cwd": "/a\0"}, "/payload/cwd", "absolute path"),
        ({"command": "a", "shell": "bash"}, "/payload/shell", "absolute path"),
        ({"command": "a", "grace": "soon"}, "/payload/grace", "is not a duration"),
        ({"command": "a", "grace": -1}, "/payload/grace", "cannot be negative"),
        ({"command": "a", "grace": "2h"}, "/payload/grace", "must be 0s to 1h"),
        ({"command": "a", "success_codes": []}, "/payload/success_codes", "at least one"),
        ({"command": "a", "success_codes": [256]}, "/payload/success_codes/0", "0 to 255"),
        ({"command": "a", "env": {"A": 1}}, "/payload/env/A", "Expected text, got whole number"),
        ({"command": "a", "env": {"A=B": ""}}, "/payload/env/A=B", "letters, digits"),
        ({"command": "a", "env": {"A\n": ""}}, "/payload/env/A\n", "letters, digits"),
        ({"command": "a", "env": {"a/b~": ""}}, "/payload/env/a~1b~0", "letters, digits"),
        ({"command": "a", "env": {"A": "\0"}}, "/payload/env/A", "NUL"),
        ({"command": "a", "env": {"LD_PRELOAD": "x"}}, "/payload/env/LD_PRELOAD", "may not set"),
        ({"command": "a", "env": {"LD_LIBRARY_PATH": "x"}}, "/payload/env/LD_LIBRARY_PATH", "set"),
        ({"command": "a", "env": {"SCHEDO_JOB_ID": "x"}}, "/payload/env/SCHEDO_JOB_ID", "set"),
        ({"command": "a", "env": {"BASH_ENV": "x"}}, "/payload/env/BASH_ENV", "may not set"),
        ({"command": "a", "env": {"PYTHONPATH": "x"}}, "/payload/env/PYTHONPATH", "may not set"),
    ],
)
def test_a_bad_payload_is_refused_with_a_pointer(payload: Any, pointer: str, detail: str) -> None:
    with pytest.raises(Invalid) as raised:
        check_shell_payload(json.dumps(payload).encode())

    (problem,) = raised.value.problems
    assert problem.pointer == pointer
    assert detail in problem.detail


@pytest.mark.parametrize("payload", [b"", b"{", b'{"command"', b'{"command": "\\ud800"}'])
def test_a_body_that_is_not_json_is_refused_as_a_whole(payload: bytes) -> None:
    with pytest.raises(Invalid, match="/payload: it is not JSON"):
        check_shell_payload(payload)


def test_every_bad_field_is_named_at_once() -> None:
    with pytest.raises(Invalid) as raised:
        check_shell_payload(b'{"command": [], "cwd": ".", "env": {"ENV": "x"}}')

    assert [p.pointer for p in raised.value.problems] == [
        "/payload/command",
        "/payload/env/ENV",
        "/payload/cwd",
    ]


def test_at_most_a_bounded_number_of_problems_is_named() -> None:
    env = {f"{number}": "x" for number in range(10_000)}

    with pytest.raises(Invalid) as caught:
        check_shell_payload(json.dumps({"command": "true", "env": env}).encode())

    assert len(caught.value.problems) == 20
