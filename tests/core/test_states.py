"""The states of a job: their transitions, and the document that shows the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.core.states import (
    FINAL,
    TIMED,
    TRANSITIONS,
    State,
    can_follow,
    check_transition,
    render_mermaid,
)
from schedo.errors import IllegalTransition

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "lifecycle.md"
FENCE = "```mermaid\n"

# Written independently of the table: every pair that is not here is forbidden.
ALLOWED = {
    "scheduled": "queued cancelled expired",
    "blocked": "queued scheduled cancelled expired",
    "queued": "running scheduled cancelled expired failed",
    "running": "completed retrying failed scheduled queued cancelled",
    "retrying": "queued failed cancelled expired",
    "completed": "",
    "failed": "queued",
    "cancelled": "queued",
    "expired": "queued",
}
PAIRS = [(old, new) for old in State for new in State]


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=[f"{old}-{new}" for old, new in PAIRS])
def test_only_the_transitions_of_the_table_are_allowed(old: State, new: State) -> None:
    if new in ALLOWED[old].split():
        assert can_follow(old, new)
        check_transition("01H2", old, new)
        return

    assert not can_follow(old, new)
    with pytest.raises(IllegalTransition, match=f"job 01H2 is {old}; it cannot become {new}"):
        check_transition("01H2", old, new)


def test_the_final_states_and_the_states_that_wait_for_an_instant_are_listed() -> None:
    assert {"completed", "failed", "cancelled", "expired"} == FINAL
    assert {"scheduled", "retrying"} == TIMED


def test_every_unfinished_state_leads_to_an_end() -> None:
    reaches = set(FINAL)
    for _ in State:
        reaches |= {old for old, follow in TRANSITIONS.items() if reaches & follow.keys()}

    assert reaches == set(State)


def test_the_diagram_has_one_arrow_for_each_transition() -> None:
    lines = render_mermaid().splitlines()

    assert lines[0] == "stateDiagram-v2"
    assert "    queued --> running: claim" in lines
    assert "    retrying --> queued: due" in lines
    assert "    completed --> [*]" in lines
    assert len([line for line in lines if "[*]" not in line and "-->" in line]) == 25


def renew() -> str:
    """Return the document with its diagram generated from the table."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(FENCE)
    _, end, after = rest.partition("```\n")
    return before + FENCE + render_mermaid() + end + after


def write() -> None:
    """Write the diagram of the table into docs/lifecycle.md."""
    DOCUMENT.write_text(renew(), encoding="utf-8")


def test_the_document_shows_the_current_table_of_transitions() -> None:
    command = "from tests.core.test_states import write; write()"

    assert DOCUMENT.read_text(encoding="utf-8") == renew(), (
        f"docs/lifecycle.md is out of date; to renew it, run: python -c '{command}'"
    )


@pytest.mark.parametrize("state", State)
def test_the_document_explains_every_state(state: State) -> None:
    assert f"\n| **{state}** | " in DOCUMENT.read_text(encoding="utf-8")


def test_the_document_names_no_unknown_state() -> None:
    rows = [
        line.split("**")[1]
        for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
        if line.startswith("| **")
    ]

    assert rows == list(State)
