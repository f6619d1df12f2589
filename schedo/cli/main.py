"""The `schedo` command: finds the subcommand, and prints its errors.

The module of a subcommand is imported when it is called, so that `schedo jobs ls` loads no server.
The help lists the exit codes of schedo.errors.Exit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NamedTuple

import click

from schedo.cli.connection import options_by_pointer, wants_json
from schedo.cli.errors import Failure, describe_problem, explain
from schedo.errors import Exit, SchedoError
from schedo.suggestions import suggest


class _Entry(NamedTuple):
    target: str  # "module:name"
    help: str


# By the sections of the help.
SECTIONS = {
    "Servers and workers": {
        "serve": _Entry("schedo.cli.serve:serve", "Start the server."),
        "worker": _Entry("schedo.cli.worker:worker", "Run jobs of a server on this machine."),
        "upgrade": _Entry(
            "schedo.cli.upgrade:upgrade", "Replace a running server by a new process."
        ),
        "status": _Entry("schedo.cli.status:status", "Show the active server and its standbys."),
        "cluster": _Entry("schedo.cli.cluster:cluster", "List the servers that share the store."),
    },
    "Jobs and schedules": {
        "run": _Entry("schedo.cli.run:run", "Submit a command to run now, later or by cron."),
        "submit": _Entry("schedo.cli.submit:submit", "Submit a job of any task."),
        "invoke": _Entry(
            "schedo.cli.invoke:invoke", "Run a job on a worker right now, or fail at once."
        ),
        "jobs": _Entry(
            "schedo.cli.jobs:jobs", "List, show, change and retry jobs; print their output."
        ),
        "operations": _Entry(
            "schedo.cli.operations:operations",
            "List, show, cancel and undo operations on many jobs.",
        ),
        "schedules": _Entry("schedo.cli.schedules:schedules", "List and change schedules."),
        "expectations": _Entry(
            "schedo.cli.expectations:expectations", "Watch work outside of schedo by its beats."
        ),
        "queues": _Entry("schedo.cli.queues:queues", "List, limit, pause and resume queues."),
        "workers": _Entry("schedo.cli.workers:workers", "List, cordon and drain workers."),
        "pause": _Entry(
            "schedo.cli.pauses:pause", "Start no more jobs, fire no schedules, or both."
        ),
        "resume": _Entry("schedo.cli.pauses:resume", "End the pauses of the whole server."),
    },
    "What happens": {
        "open": _Entry(
            "schedo.cli.open_page:open_", "Open the server's page in a browser, logged in."
        ),
        "summary": _Entry(
            "schedo.cli.summary:summary", "Say in one sentence whether jobs start on time."
        ),
        "top": _Entry("schedo.cli.top:top", "Show live figures of the server."),
        "failures": _Entry(
            "schedo.cli.failures:failures", "List what fails, in groups of the same task and error."
        ),
        "stats": _Entry("schedo.cli.stats:stats", "Print what ended over hours and days."),
        "timeseries": _Entry(
            "schedo.cli.timeseries:timeseries", "Print figures over the last day."
        ),
        "events": _Entry("schedo.cli.events:events", "Print what happens, as it happens."),
        "log": _Entry("schedo.cli.log:log", "List who changed what by hand."),
        "names": _Entry("schedo.cli.known_names:names", "List the names that the server knows."),
    },
    "Schedules in files": {
        "crontab": _Entry("schedo.cli.crontab_import:crontab", "Import a crontab as schedules."),
        "apply": _Entry(
            "schedo.cli.apply:apply", "Put the schedules and queues that files declare."
        ),
        "export": _Entry("schedo.cli.export:export", "Write schedules and queues to a file."),
    },
    "The store": {
        "backup": _Entry(
            "schedo.cli.backup:backup", "Copy the store of a running server to a file."
        ),
        "restore": _Entry(
            "schedo.cli.restore:restore", "Put a backup in place of a store, paused."
        ),
        "check": _Entry("schedo.cli.check:check", "Check a store or a backup."),
        "store": _Entry("schedo.cli.store:store", "Prepare a store in PostgreSQL, or copy one."),
    },
    "Tools": {
        "cron": _Entry("schedo.cli.cron:cron", "Explain cron expressions."),
        "config": _Entry("schedo.cli.settings:config", "Show the configuration of the server."),
        "completion": _Entry(
            "schedo.cli.completion:completion", "Print a shell completion script."
        ),
        "bench": _Entry("schedo.cli.bench:bench", "Put load on a server and report the times."),
        "clock": _Entry("schedo.cli.clock:clock", "Move the clock of a test server."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


_SYNONYMS = dict.fromkeys(("list", "ps"), "ls")
# As these fields of a job are called in the API and in Python, and by other schedulers.
_OPTIONS = {
    **dict.fromkeys(("--delay", "--countdown"), "--in"),
    **dict.fromkeys(("--run-at", "--eta"), "--at"),
}


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGPIPE end the process, silently, as other commands do.

    After Ctrl-C, click would end with the code of a failure, and the loop of a shell around the
    command would go on. SIGPIPE comes when the output has no reader, as in `… | head -1`. Python
    ignores it, and has to: else a connection that a server closes would end the process as well.
    """
    try:
        yield
    except BrokenPipeError:
        _end_by(signal.SIGPIPE)
    except KeyboardInterrupt:
        with suppress(OSError):
            sys.stdout.flush()
        _end_by(signal.SIGINT)


def _end_by(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class LazyGroup(click.Group):
    """A group that lists its commands from a table, without importing their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, which may print the help."""
        with _ending_by_signals():
            return super().make_context(*args, **extra)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].target.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; for an unknown one, raise UsageError with a similar name."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            hint = self._suggest_subcommand(ctx, args[0]) or suggest(args[0], COMMANDS)
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def _suggest_subcommand(self, ctx: click.Context, name: str) -> str:
        """Return a hint at the groups that have a subcommand of this name, or nothing."""
        word = _SYNONYMS.get(name, name)
        groups = {each: self.get_command(ctx, each) for each in COMMANDS}
        found = [
            f"`schedo {each} {word}`"
            for each, group in groups.items()
            if isinstance(group, click.Group) and word in group.commands
        ]
        return f"; did you mean {' or '.join(found)}?" if found else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), each.help) for name, each in commands.items()]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), code.meaning) for code in Exit])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn a SchedoError into one line on stderr and exit code 1.

        With --json, each error is a JSON object on stderr, with the exit code unchanged.
        """
        with _ending_by_signals():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (SchedoError, click.ClickException) as error:
            if wants_json(ctx):
                click.echo(json.dumps(describe_problem(error)), err=True)
                ctx.exit(getattr(error, "exit_code", Exit.REFUSED))
            if isinstance(error, SchedoError):
                raise Failure(explain(error, options_by_pointer(ctx))) from error
            if isinstance(error, click.NoSuchOption):
                raise _suggest_option(error) from error
            raise


def _suggest_option(error: click.NoSuchOption) -> click.UsageError:
    """Name the option that was meant, if the command has it, instead of those spelt similarly."""
    meant = _OPTIONS.get(error.option_name)
    params = error.ctx.command.params if error.ctx is not None else []
    if meant is None or not any(meant in each.opts for each in params):
        return error
    return click.UsageError(f"{error.message} Did you mean {meant!r}?", error.ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="schedo", prog_name="schedo")
def cli() -> None:
    """A durable scheduler of cron, delayed and immediate jobs in one process."""


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] in (["serve"], ["worker"]):
        _end_on_signals()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # What the encoding of a terminal or a pipe lacks is escaped, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    with _ending_by_signals():
        cli(prog_name="schedo")


def _end_on_signals() -> None:
    """Let SIGTERM and SIGINT end the process as a drain does, until the command handles them.

    It has begun nothing so far, but loading it and its application may take seconds. SIGHUP has
    nothing to reload yet, and SIGUSR2 nothing to replace: a standby must not end by it, nor a new
    process that has not taken the store yet. Unlike SIG_IGN, handlers are not inherited by
    commands.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(Exit.DONE))
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
