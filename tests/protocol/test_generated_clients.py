"""Clients that generators make of the OpenAPI document type-check with what a program writes.

The generators are no dependencies: install `openapi-typescript` and `typescript` from npm, and
`openapi-python-client` from PyPI, so that their commands are in PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schedo.protocol.openapi import DOCUMENT

CLIENTS = Path(__file__).parent / "clients"


def run(*words: str, cwd: Path) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words[0]}: {done.stdout}{done.stderr}"


def needs(*commands: str) -> pytest.MarkDecorator:
    missing = [name for name in commands if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not in PATH: {', '.join(missing)}")


@needs("openapi-typescript", "tsc")
def test_types_for_typescript_take_what_the_server_takes(tmp_path: Path) -> None:
    run("openapi-typescript", str(DOCUMENT), "-o", "schedo.d.ts", cwd=tmp_path)
    shutil.copy(CLIENTS / "use.ts", tmp_path)

    options = "--strict --noEmit --module esnext --moduleResolution bundler --target es2022"
    run("tsc", *options.split(), "use.ts", cwd=tmp_path)


@needs("openapi-python-client")
def test_a_python_client_takes_what_the_server_takes(tmp_path: Path) -> None:
    options = "--meta none --output-path schedo_client"
    generate = ("openapi-python-client", "generate", "--path", str(DOCUMENT))
    run(*generate, *options.split(), cwd=tmp_path)
    shutil.copy(CLIENTS / "use.txt", tmp_path / "use.py")

    # The generated client imports httpx, which is installed beside its generator.
    beside = Path(shutil.which("openapi-python-client") or "").parent / "python"
    options = f"--strict --follow-imports silent --python-executable {beside}"
    run(sys.executable, "-m", "mypy", *options.split(), "use.py", cwd=tmp_path)
