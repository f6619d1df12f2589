"""Commands given on the command line: one word is a line for the shell, several are an argv list.

What comes after `--` is always an argv list, taken as it is, also words that begin with a hyphen.
"""

from __future__ import annotations

import click

_KEY = "schedo.words"


class WordsCommand(click.Command):
    """A command that keeps the words after `--` from being read as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the words after the first `--` aside and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def read_command(before: tuple[str, ...]) -> str | list[str] | None:
    """Return the shell line or the argv list that was given, or None if there is neither."""
    after: list[str] | None = click.get_current_context().meta.get(_KEY)
    if after is None:
        return list(before) if len(before) > 1 else before[0] if before else None
    if before:
        raise click.UsageError(f"give the command before or after --, not both: {before[0]!r}")
    if not after:
        raise click.UsageError("there is no command after --")
    return after
