"""The papers hold together: numbers of decisions are unique, and links lead to files."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
PAPERS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = Counter(path.name[:4] for path in DECISIONS)

    assert [number for number, count in numbers.items() if count > 1] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_begins_with_its_number(path: Path) -> None:
    assert path.read_text().startswith(f"# {int(path.name[:4])}. ")


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_paper_lead_to_files(path: Path) -> None:
    links = _LINK.findall(path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_modules_that_the_description_of_the_structure_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    places = [ROOT, ROOT / "schedo", ROOT / "schedo" / "web" / "ui"]
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|js))`", text)

    assert len(named) > 100
    assert [each for each in named if not any((place / each).exists() for place in places)] == []
