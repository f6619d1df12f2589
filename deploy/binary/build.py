"""Builds the binary: python deploy/binary/build.py GO RESULT (`make binary` calls it).

PyInstaller collects schedo, Python and their libraries in a directory; this packs the directory and
compiles the launcher, a program in Go, which carries the package and unpacks it where it runs. The
interpreter that runs this must have schedo installed, and PyInstaller.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / "build" / "binary"
# The same sources make the same bytes, and so the same version.
REPRODUCIBLE = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}


def main(go: str, result: str) -> None:
    """Build the file `result` with the Go toolchain whose command is `go`."""
    launcher = HERE / "launcher"
    payload = launcher / "payload.tar.gz"
    pack(collect(), payload)
    digest = hashlib.sha256(payload.read_bytes()).hexdigest()
    (launcher / "payload.version").write_text(digest[:16])
    target = Path(result).resolve()
    target.parent.mkdir(exist_ok=True)
    run(
        *(go, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(target), "."),
        cwd=launcher,
        CGO_ENABLED="0",  # so that it needs no C library
        GOTOOLCHAIN="local",
        GOTELEMETRY="off",
    )
    size = target.stat().st_size / 1e6
    print(f"{target}: {size:.0f} MB, with Python {platform.python_version()}")


def collect() -> Path:
    """Return the directory that PyInstaller makes."""
    options = ("--noconfirm", "--clean", "--log-level", "ERROR")
    paths = ("--distpath", str(WORK / "dist"), "--workpath", str(WORK / "work"))
    run(sys.executable, "-m", "PyInstaller", *options, *paths, str(HERE / "schedo.spec"))
    return WORK / "dist" / "schedo"


def pack(directory: Path, archive: Path) -> None:
    """Write the files of the directory to the archive, without their owners and times."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(directory.rglob("*")):
            tar.add(path, str(path.relative_to(directory)), recursive=False, filter=plain)


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the entry as root's, from the epoch."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def run(*command: str, cwd: Path | None = None, **environment: str) -> None:
    subprocess.run(command, check=True, cwd=cwd, env={**os.environ, **REPRODUCIBLE, **environment})


if __name__ == "__main__":
    main(*sys.argv[1:])
