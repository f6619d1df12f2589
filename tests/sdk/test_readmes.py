"""The programs in the READMEs of the SDKs are what their compilers accept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.conftest import SDK, find_built


def read_blocks(readme: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme.read_text(), re.DOTALL | re.MULTILINE)


def run(command: list[str], directory: Path, **environment: str) -> None:
    ran = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout.decode()


def test_the_typescript_of_the_readme_has_no_type_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = SDK / "typescript"
    find_built(package / "dist" / "index.d.ts", capsys)
    blocks = read_blocks(package / "README.md", "ts")
    for number, block in enumerate(blocks):
        (tmp_path / f"program{number}.ts").write_text(block)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "schedo").symlink_to(package)
    (tmp_path / "node_modules" / "@types").symlink_to(package / "node_modules" / "@types")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    compiler = str(package / "node_modules" / ".bin" / "tsc")
    options = "--noEmit --strict --target es2022 --module nodenext --types node"
    run([compiler, *options.split(), *map(str, sorted(tmp_path.glob("*.ts")))], tmp_path)

    assert len(blocks) == 2


def test_the_go_programs_of_the_readme_compile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find_built(SDK / "go" / "build" / "contract", capsys)
    worker, client = read_blocks(SDK / "go" / "README.md", "go")
    (tmp_path / "go.mod").write_text(
        f"module program\ngo 1.22\nrequire schedo v0.1.0\nreplace schedo v0.1.0 => {SDK / 'go'}\n"
    )
    (tmp_path / "worker.go").write_text(worker)
    (tmp_path / "client.go").write_text(
        'package main\nimport ("context"; "fmt"; "net/url"; "schedo"; "time")\n'
        f"func use(ctx context.Context) error {{\n{client}\nreturn err\n}}\n"
    )

    own = Path(sys.prefix) / "go" / "go" / "bin" / "go"
    go = str(own) if own.exists() else shutil.which("go")
    assert go is not None
    run([go, "vet", "."], tmp_path, GOTOOLCHAIN="local", GOTELEMETRY="off", GOFLAGS="-mod=mod")
