"""Generates schedo/grpc/schedo_pb2.py from schedo.proto: `make proto`.

The files begin with the version of the generator and the SHA-256 of their source, which a test
compares, so that neither changes without the other.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "schedo" / "grpc" / "schedo.proto"
MADE = tuple(SOURCE.with_name(f"schedo_pb2.{ending}") for ending in ("py", "pyi"))


def header() -> str:
    """Return the first line of the files for the source as it is now."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    return f"# Made by `make proto` with grpcio-tools {version('grpcio-tools')} from {digest}.\n"


def generate(folder: Path) -> None:
    """Write the files below the folder, as they are below the root of the repository."""
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT}"),
            *(f"--python_out={folder}", f"--pyi_out={folder}", str(SOURCE.relative_to(ROOT))),
        ],
        cwd=ROOT,
        check=True,
    )
    for made in MADE:
        path = folder / made.relative_to(ROOT)
        # The generator leaves out what the types of a mapping are.
        text = path.read_text().replace(", _Mapping]", ", _Mapping[str, object]]")
        path.write_text(header() + text)


if __name__ == "__main__":
    generate(ROOT)
