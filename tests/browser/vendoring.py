"""The JavaScript libraries that the repository contains: fetch them anew, or check their hashes.

`python -m tests.browser.vendoring` gets each package by its name from npm, compares its shasum,
makes the listed edit with sed, and writes the files and their SHA-256 beside VENDOR.json. With
--check it reads only the files that are here, and ends with 1 if one differs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "schedo" / "web" / "ui" / "vendor", ROOT / "tests" / "browser" / "vendor")
LIST = "VENDOR.json"


def read_list(folder: Path) -> list[dict[str, Any]]:
    """Return the packages of a folder: name, version, shasum, licence and files."""
    packages: list[dict[str, Any]] = json.loads((folder / LIST).read_text(encoding="utf-8"))
    return packages


def find_differences() -> list[str]:
    """Return what differs between the lists and the files that are here."""
    return [finding for folder in FOLDERS for finding in _check(folder)]


def _check(folder: Path) -> Iterator[str]:
    files = {
        each["to"]: each["sha256"] for package in read_list(folder) for each in package["files"]
    }
    for name, expected in files.items():
        path = folder / name
        if not path.exists():
            yield f"{path.relative_to(ROOT)} is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            yield f"{path.relative_to(ROOT)} differs from the hash in {LIST}"
    for path in folder.iterdir():
        if path.name not in files and path.name != LIST:
            yield f"{path.relative_to(ROOT)} is not in {LIST}"


def renew(folder: Path) -> None:
    """Get the packages of a folder from npm, and write their files and hashes."""
    packages = read_list(folder)
    for package in packages:
        with tempfile.TemporaryDirectory() as scratch:
            _unpack(package, Path(scratch))
            for each in package["files"]:
                text = (Path(scratch) / "package" / each["from"]).read_bytes()
                if each["edit"]:
                    sed = ["sed", "-e", each["edit"]]
                    text = subprocess.run(sed, input=text, check=True, capture_output=True).stdout
                (folder / each["to"]).write_bytes(text)
                each["sha256"] = hashlib.sha256(text).hexdigest()
    (folder / LIST).write_text(_render(packages), encoding="utf-8")


def _unpack(package: dict[str, Any], scratch: Path) -> None:
    wanted = f"{package['name']}@{package['version']}"
    subprocess.run(["npm", "pack", "--silent", wanted], cwd=scratch, check=True)
    (archive,) = scratch.glob("*.tgz")
    found = hashlib.sha1(archive.read_bytes(), usedforsecurity=False).hexdigest()
    if found != package["shasum"]:
        sys.exit(f"{wanted} has the shasum {found}; {LIST} says {package['shasum']}")
    with tarfile.open(archive) as opened:
        opened.extractall(scratch, filter="data")


def _render(packages: list[dict[str, Any]]) -> str:
    """Return the list as JSON with one file a line, so that a change is one line of a diff."""
    parts = []
    for package in packages:
        files = ",\n".join(f"      {json.dumps(each)}" for each in package["files"])
        head = "".join(
            f"    {json.dumps(key)}: {json.dumps(value)},\n"
            for key, value in package.items()
            if key != "files"
        )
        parts.append(f'  {{\n{head}    "files": [\n{files}\n    ]\n  }}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def main() -> None:
    """Renew all folders, or check them."""
    if sys.argv[1:] != ["--check"]:
        for folder in FOLDERS:
            renew(folder)
    findings = find_differences()
    sys.exit("\n".join(findings) or None)


if __name__ == "__main__":
    main()
