"""No identifier and no text uses a word that the glossary lists as retired."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.sources import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
CHANGELOG = ROOT / "CHANGELOG.md"  # it lists the old names
CODE = ("schedo", "tests", "bench", "examples")
PAPERS = ("deploy", "docs", *CODE)
SUFFIXES = {".py", ".md", ".sql", ".js", ".go", ".sh", ".toml", ".yaml", ".yml", ".tpl", ".service"}
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)


def section(title: str) -> dict[str, str]:
    """Return the rows of one table of the glossary: each retired word with its replacement."""
    text = GLOSSARY.read_text(encoding="utf-8")
    return dict(ROW.findall(text.split(f"## {title}\n")[1].split("\n## ")[0]))


def uses(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each of the names that is an identifier in the code, with its place as path:line.

    Only the files that have one of them anywhere are read token by token, which takes long.
    """
    anywhere = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    for path in sorted(path for top in CODE for path in (ROOT / top).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if anywhere.search(source):
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.NAME and anywhere.fullmatch(token.string):
                    yield token.string, f"{path.relative_to(ROOT)}:{token.start[0]}"


@cache
def texts() -> list[tuple[str, str]]:
    """Return the lines of all documents and sources, each with its place, as path:line."""
    files = [path for top in PAPERS for path in (ROOT / top).rglob("*") if path.suffix in SUFFIXES]
    return [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in sorted([*files, *ROOT.glob("*.md"), ROOT / "Dockerfile"])
        if path not in (GLOSSARY, CHANGELOG, ROOT / "tests" / "test_words.py")
        if path.parent.name != "vendor"  # others wrote these
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    ]


@pytest.mark.parametrize("table", ["Retired names", "Retired phrases"])
def test_each_retired_word_of_the_glossary_has_a_replacement(table: str) -> None:
    rows = section(table)

    assert len(rows) > 10
    assert all(instead.strip() for instead in rows.values())


def test_no_retired_name_is_used() -> None:
    retired = section("Retired names")
    findings = [f"{name} -> {retired[name]}: {place}" for name, place in uses(retired)]

    assert not findings, "\n".join(findings[:20])


@pytest.mark.parametrize("phrase", section("Retired phrases"))
def test_no_retired_phrase_is_used(phrase: str) -> None:
    pattern = re.compile(rf"\b{phrase}\b", re.IGNORECASE)
    findings = [f"{place}: {line.strip()[:80]}" for place, line in texts() if pattern.search(line)]

    assert not findings, "\n".join(findings[:20])
