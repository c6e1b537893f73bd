"""The command line: ``sottovoce train``, ``plan``, ``predict`` and the others.

:func:`main` is the program.  A command's module is imported only when it is called, so that
``--help`` and short commands start fast; other packages may bring commands too.  Errors end with
one line on standard error and an exit code of :data:`sottovoce.errors.EXITS`.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from ..errors import (
    EXIT_CODES,
    SchemaError,
    SottovoceError,
    escape_unprintable,
    exit_code_for_error,
)
from ..util import plugins

_EXAMPLES = """
Train linear models across sites that may not share their rows, with a proved privacy guarantee.

\b
  sottovoce train                                  Adult, five sites
  sottovoce train --pure                           without a delta
  sottovoce train --method dvp --epsilon 2         another method and budget
  sottovoce schema init rows.csv                   first, a draft schema
  sottovoce train --data rows.csv --schema s.toml  your own table
  sottovoce plan --rounds 30 --epsilon 1           the noise of that budget
  sottovoce predict run.npz new.csv                use a saved run
  sottovoce evaluate run.npz held.csv              its quality, privately
  sottovoce describe --data rows.csv --schema s.toml --by arm    a Table 1
  sottovoce survival --data rows.csv --schema s.toml --by arm    Kaplan-Meier
  sottovoce report run.json                        an HTML page to pass on
  sottovoce export run.json --onnx m.onnx          for other programs
  sottovoce ledger init my.ledger --epsilon 3      a lifetime budget
  sottovoce claims                                 what papers claim
  sottovoce audit mr_admm                          attack a method
  sottovoce compare                                paper 003's comparison
  sottovoce study --list                           papers' experiments
  sottovoce demo                                   a hub and its sites
  sottovoce site --help                            take part with others
"""


COMMANDS = {
    "audit": "Attack METHOD (or `all`): play the worst distinguishing game known against the "
    "real code.",
    "data": "List the data sets that come with the package, or check a schema of yours (--schema).",
    "demo": "Start a hub and sites as real processes, train on Adult, "
    "and compare with one process.",
    "describe": "Describe a table by group under differential privacy: the Table 1 of a paper.",
    "evaluate": "Evaluate the model in RUN privately on labelled ROWS (CSV or Parquet).",
    "export": "Write the model in RUN for other programs, with the schema's encoding in it.",
    "graphs": "List the networks that --graph understands.",
    "hub": "Carry the messages of a run between sites.",
    "ledger": "Keep a data set's lifetime budget: one file beside the rows, which outlives runs "
    "and crashes.",
    "methods": "List the private methods: whom each can trust, what it releases, "
    "and when to pick it.",
    "plan": "Price a run from sizes alone, without data: noise from a budget, "
    "or epsilon from a noise.",
    "predict": "Classify ROWS (CSV or Parquet) with the model in RUN.",
    "report": "Write the answers in RUN as one page to read, print or pass on.",
    "schema": "Write, check and survey a schema: the public facts by which rows are encoded.",
    "site": "Take part in a run across organisations: rows, ledger and keys stay here.",
    "survival": "Estimate Kaplan-Meier curves by group under differential privacy.",
    "train": "Train across sites, print the privacy statement and the accuracy.",
}
"""The line of every command of this package in ``sottovoce --help``, which is the first line of its
own help.

Others come from installed packages (:mod:`sottovoce.util.plugins`).
"""
MODULES = {"data": "lists", "graphs": "lists", "methods": "lists"}
"""Modules of commands that have no module of their own name."""


STORED = "sottovoce.stored"
"""Where the result is, among what a context keeps: see :mod:`sottovoce.cli.results`."""
CLOSED = 141
"""Exit code if the reader of a pipe has left: 128 + 13, as shells report a program that SIGPIPE
ends.
"""
_REPLACED = "sottovoce"
"""Name under which :func:`_replace_unencodable` is registered as a handler of encoding errors."""
_LOOKS = {
    "█": "#",
    "…": "...",
    "±": "+/-",
    "–": "-",
    "—": "-",
    "−": "-",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "×": "x",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
}
"""What is written for characters that an encoding lacks."""


class Commands(click.Group):
    """A group that knows commands by name and help line, and imports one when it is called.

    They are those of :data:`COMMANDS` and of other packages.
    """

    def __init__(self, **options: Any) -> None:
        # click lists these and suggests likely names; `get_command` imports the real ones.
        super().__init__(
            **options,
            commands={name: click.Command(name, help=line) for name, line in COMMANDS.items()},
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return the command; None for an unknown name."""
        command: click.Command | None
        if cmd_name in COMMANDS:
            module = import_module(f".{MODULES.get(cmd_name, cmd_name)}", __package__)
            command = getattr(module, cmd_name)
        else:
            command = plugins.load_entry_point(plugins.COMMANDS, cmd_name)
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, those of other packages included; imports none."""
        return sorted({*COMMANDS, *plugins.installed_entry_points(plugins.COMMANDS)})

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command to the end; if printing fails, say where the result is stored."""
        try:
            done = super().invoke(ctx)
            # What is buffered must fail here, where it is handled, and not at the end of Python.
            if sys.stdout is not None:
                sys.stdout.flush()
            return done
        except (click.Abort, KeyboardInterrupt, MemoryError):
            # It may come while a run is scored, after its result was stored.
            where = _stored_result_sentence(ctx)
            if where is not None:
                _print_to_stderr(where)
            raise
        except OSError as error:
            if isinstance(error, SottovoceError):
                raise
            where = _stored_result_sentence(ctx)
            # Must be asked before standard output is redirected.
            closed = isinstance(error, BrokenPipeError) and _pipe_reader_has_left()
            _discard_further_output()
            if closed:
                if where is not None:
                    _print_to_stderr(where)
                sys.exit(CLOSED)
            if where is not None:
                error.add_note(where)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from their lines alone: no command is imported for it."""
        brought = plugins.installed_entry_points(plugins.COMMANDS)
        lines = {
            name: plugins.first_docstring_line(entries[0]) for name, entries in brought.items()
        }
        known = {name: click.Command(name, help=line) for name, line in (lines | COMMANDS).items()}
        click.Group(commands=known).format_commands(ctx, formatter)


@click.group(
    cls=Commands,
    help=_EXAMPLES,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="sottovoce")
def cli() -> None:
    """Entry of all commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line on standard error.

    Exit codes: :data:`sottovoce.errors.EXITS`.
    """
    _tolerate_encodings()
    words = None
    if arguments is not None:
        words = list(arguments)
    try:
        # Else click would print errors by itself, and end with codes of its own.
        cli.main(args=words, prog_name="sottovoce", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SottovoceError as error:
        more = ""
        if isinstance(error, SchemaError):
            more = " (`sottovoce schema check SCHEMA TABLE` lists every mistake at once)"
        click.echo(f"error: {error}{more}", err=True)
        sys.exit(exit_code_for_error(error))
    except OSError as error:
        # A full disk behind standard output, for example.
        place = ""
        if error.filename is not None:
            place = f" for {error.filename!r}"
        more = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        _exit_with_line(
            f"error: {error.strerror or type(error).__name__}{place}; repair that, and try "
            f"again{more}"
        )
    except MemoryError:
        _exit_with_line(
            "error: this machine's memory does not hold that; use less data, or fewer features or "
            "replicates"
        )


def _stored_result_sentence(ctx: click.Context) -> str | None:
    """Return the sentence that says where the result is, if it is stored."""
    stored = ctx.meta.get(STORED)
    if stored is None:
        return None
    return f"the result was stored before it was shown: {stored}"


def _exit_with_line(line: str) -> None:
    """End after an unforeseen error; standard output may have failed, so it is not used again."""
    _discard_further_output()
    _print_to_stderr(line)
    sys.exit(1)


def _print_to_stderr(line: str) -> None:
    """Say something on standard error, if there is one."""
    with suppress(OSError):
        click.echo(escape_unprintable(line), err=True)


def _discard_further_output() -> None:
    """Redirect standard output to nowhere from now on."""
    if sys.stdout is None:
        return
    # Else Python, which flushes it at its end, would fail there once more.
    # Standard output that was replaced, as by a test, may be no file.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _pipe_reader_has_left() -> bool:
    """Return True if standard output is a pipe whose reader has left."""
    if sys.stdout is None:
        return False
    try:
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))
    # A system without poll, as Windows, or an output that is no file: taken as a reader that left.
    except (AttributeError, OSError, ValueError):
        return True


def _tolerate_encodings() -> None:
    """Let standard output and error write every text, whatever their encoding.

    A console of Windows, or a file to which output goes there, has a code page that lacks most of
    Unicode's characters, and what cannot be printed may have been paid for.
    """
    codecs.register_error(_REPLACED, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_REPLACED)


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return look-alikes or numbers for characters that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_LOOKS.get(c) or _escape_character(c) for c in lacking), error.end


def _escape_character(character: str) -> str:
    """Return a character's number as JSON, TOML and Python write it."""
    code = ord(character)
    if code < 2**16:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
