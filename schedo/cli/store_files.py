"""The path of a store, for the commands that work on files."""

from __future__ import annotations

from schedo.cli.errors import BadConfiguration
from schedo.config_checks import IN_MEMORY
from schedo.errors import Invalid
from schedo.store import is_postgres, read_path, without_password


def path_of(store: str) -> str:
    """Return the path of a store in a file; exit with an error for a store elsewhere."""
    if store in IN_MEMORY:
        raise BadConfiguration("a store in memory has no file; give a file with --store")
    if is_postgres(store):
        raise BadConfiguration(
            f"{without_password(store)} is not a file, and this command works on files alone;"
            " docs/operations.md says what PostgreSQL has instead"
        )
    try:
        return read_path(store)
    except Invalid as error:
        raise BadConfiguration(error.problems[0].detail) from error
