"""Commands that hold a run: options in groups, settings without an option, and files of both.

``--set NAME=VALUE`` gives one setting, and ``--config FILE`` gives any number of settings and
options::

    epsilon = 2.0                       # keys are names of options, without dashes in front
    trust = "sum"
    [set]                               # settings may also stand above, among the options
    loss = "huber:0.5"

A value from a file or from ``--set`` is read as if it had been typed, so it is checked by the same
rules.  What is typed wins over the file.  What each name means is declared once, in
:mod:`sottovoce.cli.run_options`.

A file says what to run.  What is spent from a ledger, written or shown to the holder of the rows,
whether a run is a release, and which package of others is loaded, is typed
(:attr:`RunOption.typed_only`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..algorithms import KNOBS, KNOWN, REGISTRY, knobs_of
from ..data.meant import suggest_spelling
from ..errors import InvalidInput
from ..runs.registering import AUTO, offered_methods
from ..util import files
from .options import FILES_OF_RUNS, Numbers, format_typed_value

SETTINGS = "help"
"""What ``--set`` takes instead of a setting, to list them."""
GROUPS = ("Data", "Privacy", "Trust", "Method", "Answers", "Sites' plan", "Output")
"""Headings of ``--help``, by what a user decides, in their order."""
_FLAGS = {
    "--centre": "centre=yes",
    "--no-centre": "centre=no",
    "--site-constants": "site_constants=yes",
    "--one-constant": "site_constants=no",
}
"""Switches that are settings now, and what to write."""


class RunOption(click.Option):
    """An option that stands under a heading of ``--help``.

    Attributes
    ----------
    group : str
        The heading.
    typed_only : bool
        True if it must be typed, so that a file with it is refused.
    is_limit : bool
        True if it bounds what a row is used for, so that a command without it refuses a file with
        it.
    """

    def __init__(
        self,
        *declarations: Any,
        group: str,
        typed_only: bool = False,
        is_limit: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(*declarations, **more)
        self.group = group
        self.typed_only = typed_only
        self.is_limit = is_limit


class Setting(RunOption):
    """A parameter for ``--set NAME=VALUE`` and files, without an option of its own."""

    def __init__(self, *declarations: Any, **more: Any) -> None:
        super().__init__(*declarations, **more)
        # click parses and names nothing without a flag.
        self.opts = []

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Leave the parser as it is."""

    def get_help_record(self, ctx: click.Context) -> None:
        """No line in ``--help``, which has one for ``--set``."""

    def explanation_line(self) -> tuple[str, str]:
        """Return the name and the meaning, for ``--set help``."""
        about = self.help or ""
        if not self.show_default:
            return str(self.name), about
        return str(self.name), f"{about}  [default: {format_typed_value(self.default)}]"


class RunCommand(click.Command):
    """A command whose parameters are :class:`RunOption` and :class:`Setting`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--config`` and ``--set`` first, as defaults of all that is not typed."""
        # Completion in a shell parses half a line, and must not fail by its files.
        if not ctx.resilient_parsing:
            typed = self._parse_typed_options(ctx, args)
            # `--help` must print even if the file is missing or wrong.
            if not typed.get("help"):
                ctx.default_map = self._defaults_from_files(ctx, typed)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options under their headings, and names of settings under the last one."""
        for group in GROUPS:
            lines = []
            for param in self.params:
                if isinstance(param, RunOption) and param.group == group:
                    record = param.get_help_record(ctx)
                    if record is not None:
                        lines.append(record)
            if lines:
                with formatter.section(group):
                    formatter.write_dl(lines, col_max=22)
        with formatter.section(f"Settings, by --set NAME=VALUE (--set {SETTINGS} explains them)"):
            names = ", ".join(str(setting.name) for setting in self.settings_of_method())
            formatter.write_text(names)

    def settings_of_method(self, method: str | None = None) -> list[Setting]:
        """Return the settings of a method: those of no method, and its own knobs.

        Without a method, or with an unknown one, return those of all methods.
        """
        cls = REGISTRY.get(method or "")
        own = set(KNOBS)
        if cls is not None:
            own = set(knobs_of(cls.options))
        found = (param for param in self.params if isinstance(param, Setting))
        return [one for one in found if one.name not in KNOBS or one.name in own]

    def parameters_by_key(self) -> dict[str, RunOption]:
        """Return parameters by their names in files and for ``--set``.

        Those are the names of their options, or their own.
        """
        found = (
            param
            for param in self.params
            if isinstance(param, RunOption) and param.name not in FILES_OF_RUNS
        )
        return {_key_of_parameter(param): param for param in found}

    def _parse_typed_options(self, ctx: click.Context, args: list[str]) -> dict[str, Any]:
        """Parse what the command line gives, without defaults or conversions."""
        try:
            return dict(self.make_parser(ctx).parse_args(args=list(args))[0])
        # Earlier versions had an option for what is a setting now.
        except click.NoSuchOption as error:
            moved = self._error_for_moved_option(error)
            if moved is not None:
                raise moved from None
            raise

    def _error_for_moved_option(self, error: click.NoSuchOption) -> InvalidInput | None:
        """Return the error for an option that is now a setting, or spelled like one; else None."""
        flag = error.option_name
        names = [str(setting.name) for setting in self.settings_of_method()]
        name = flag.removeprefix("--").replace("-", "_")
        moved = "is no longer an option: it is set with --set"
        if flag in _FLAGS and _FLAGS[flag].partition("=")[0] in names:
            return InvalidInput(flag, None, moved, f"write --set {_FLAGS[flag]}")
        if name in names:
            return InvalidInput(flag, None, moved, f"write --set {name}=VALUE")
        # Where click knows a likely option, its own message names that one.
        if error.possibilities:
            return None
        hint = suggest_spelling(name, names)
        if not hint:
            return None
        return InvalidInput(
            flag, None, "is not an option", f"{hint} It is a setting: --set NAME=VALUE"
        )

    def _defaults_from_files(self, ctx: click.Context, typed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of files and of ``--set`` by the names of parameters.

        All of them have been checked to be of the right type.
        """
        path = typed.get("config")
        given: dict[str, Any] = {}
        if path is not None:
            given = self._read_run_file(ctx, Path(str(path)))
        texts = typed.get("set_", ())
        method = typed.get("method", given.get("method"))
        if SETTINGS in texts:
            self._list_settings(ctx, method)
        chosen = self._read_set_options(ctx, texts, typed, method)
        asked = typed.keys() | chosen.keys()
        if "method" in given and "method" not in asked:
            _check_method_of_file(given["method"])
        # A delta that is typed or set replaces `pure` in the file, and the other way round.
        if "delta" in asked:
            given.pop("pure", None)
        if "pure" in typed:
            given.pop("delta", None)
        # `--set` wins over the file; click takes both as defaults, so what is typed wins.
        return given | chosen

    def _read_run_file(self, ctx: click.Context, path: Path) -> dict[str, Any]:
        """Read the values in a file for ``--config``, by the names of this command's parameters."""
        entries = _read_file_entries(path)
        known = self.parameters_by_key()
        found = dict[str, Any]()
        for name, value in entries.items():
            key = name.replace("-", "_")
            # Other commands are loaded only if need be.
            param = known.get(key) or _keys_of_other_commands(ctx).get(key)
            if param is None:
                allowed = [one_key for one_key, one in known.items() if not one.typed_only]
                rule = f"is not an option or setting; a file may hold {', '.join(allowed)}"
                raise InvalidInput(
                    f"config: {key}", None, rule, suggest_spelling(key, allowed) or "remove it"
                )
            if param.typed_only:
                rule = "must be typed: a file cannot set what is spent, written or shown"
                remedy = f"remove it, and type {param.opts[0]}"
                raise InvalidInput(f"config: {key}", None, rule, remedy)
            if key not in known:
                _note_foreign_key(ctx, key, param)
                continue
            # `expect-share` and `expect_share` are two keys of TOML, and one parameter.
            if param.name in found:
                raise InvalidInput(
                    f"config: {key}", None, "is given twice", "remove one of the two"
                )
            found[str(param.name)] = _read_checked_value(ctx, param, f"config: {key}", value)
        return found

    def _read_set_options(
        self,
        ctx: click.Context,
        texts: Collection[str],
        typed: Mapping[str, Any],
        method: str | None,
    ) -> dict[str, Any]:
        """Read settings, and options by their names, from ``--set``."""
        known = self.parameters_by_key()
        found = dict[str, Any]()
        for text in texts:
            name, equals, value = text.partition("=")
            key = name.strip().replace("-", "_")
            if key not in known:
                raise self._unknown_setting(text, key, method)
            param = known[key]
            if not equals:
                raise InvalidInput("set", text, "must be NAME=VALUE", f"use --set {key}=VALUE")
            name = str(param.name)
            if param.name in typed or (param.name in found and not param.multiple):
                raise InvalidInput(key, None, "is given twice", "remove one of the two")
            if param.multiple:
                found[name] = _read_checked_value(ctx, param, key, [*found.get(name, []), value])
            else:
                found[name] = _read_checked_value(ctx, param, key, value)
        return found

    def _unknown_setting(self, text: str, key: str, method: str | None) -> InvalidInput:
        """Return the error for a name that no parameter has."""
        names = [str(setting.name) for setting in self.settings_of_method(method)]
        rule = f"is not a setting; settings are {', '.join(names)}"
        if method is not None:
            rule = f"is not a setting of {method}; its settings are {', '.join(names)}"
        return InvalidInput(
            "set",
            text,
            rule,
            suggest_spelling(key, self.parameters_by_key()) or f"see --set {SETTINGS}",
        )

    def _list_settings(self, ctx: click.Context, method: str | None) -> None:
        """Explain every setting, and end."""
        formatter = ctx.make_formatter()
        settings = self.settings_of_method(method)
        whose = method
        if method is None:
            whose = "all methods"
        formatter.write_text(
            f"Settings of `{ctx.command_path}` with {whose}: --set NAME=VALUE, or in a file, "
            "--config."
        )
        for group in GROUPS:
            lines = [setting.explanation_line() for setting in settings if setting.group == group]
            if lines:
                with formatter.section(group):
                    formatter.write_dl(lines)
        click.echo(formatter.getvalue(), nl=False)
        ctx.exit()


def given_parameters(ctx: click.Context) -> Iterator[tuple[click.Parameter, Any]]:
    """Yield parameters that were typed, set, or read from a file, with their values."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        # What a file or --set gives is click's map of defaults.
        asked = source in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
        if asked and param.name not in FILES_OF_RUNS:
            yield param, ctx.params.get(param.name or "")


def format_run_file(ctx: click.Context) -> str:
    """Return the run that was asked for, as text of a file for ``--config``."""
    typed = [
        param
        for param, _ in given_parameters(ctx)
        if isinstance(param, RunOption) and param.typed_only
    ]
    found = {
        param: _to_toml_value(value) for param, value in given_parameters(ctx) if param not in typed
    }
    options = {
        _key_of_parameter(param): value
        for param, value in found.items()
        if not isinstance(param, Setting)
    }
    from ..data.draft import toml_entries  # only --save-config writes TOML

    settings = {
        _key_of_parameter(param): value
        for param, value in found.items()
        if isinstance(param, Setting)
    }
    # No file can say these, so its first line does.
    flags = "".join(f" {param.opts[0]}" for param in typed)
    lines = [f"# {ctx.command_path} --config THIS_FILE{flags}", *toml_entries(options)]
    if settings:
        lines += ["", "[set]", *toml_entries(settings)]
    return "\n".join([*lines, ""])


def save_config(path: Path | None) -> None:
    """Write the run that was asked for, to the place that ``--save-config`` names."""
    if path is not None:
        files.write_atomically("save_config", path, format_run_file(click.get_current_context()))


def _to_toml_value(value: Any) -> Any:
    """Return a value as TOML has it."""
    if isinstance(value, tuple):
        return list(map(_to_toml_value, value))
    if isinstance(value, bool | int | float):
        return value
    return str(value)


def _key_of_parameter(param: click.Parameter) -> str:
    """Return a parameter's name in files and for ``--set``."""
    if not param.opts:
        return str(param.name)
    return param.opts[0].removeprefix("--").replace("-", "_")


def _keys_of_other_commands(ctx: click.Context) -> dict[str, RunOption]:
    """Return the options that other commands read from a file of a run, by name.

    One file may so serve a plan and its training.
    """
    if ctx.parent is None:
        return {}
    group = ctx.parent.command
    if not isinstance(group, click.Group):
        return {}
    found: dict[str, RunOption] = {}
    for name in ("plan", "train"):
        command = group.get_command(ctx.parent, name)
        if isinstance(command, RunCommand):
            found |= command.parameters_by_key()
    return found


def _note_foreign_key(ctx: click.Context, key: str, param: RunOption) -> None:
    """Say that a name in a file belongs to another command.

    Raises InvalidInput if it is a limit that would not be kept.
    """
    if param.is_limit:
        rule = f"is a limit that `{ctx.info_name}` does not enforce"
        raise InvalidInput(
            f"config: {key}", None, rule, "remove it, or write one file for each command"
        )
    click.echo(f"Note: config: {key} is an option of another command and is ignored.", err=True)


def _check_method_of_file(method: str) -> None:
    """Refuse a method of another installed package in a file.

    A file comes from others, and must not make this program load code.
    """
    if method != AUTO and method not in KNOWN and method in offered_methods():
        rule = "is from another package, and a file must not load packages"
        raise InvalidInput("config: method", method, rule, f"type --method {method}")


def _read_file_entries(path: Path) -> dict[str, Any]:
    """Read a file of a run; the entries of its table ``set`` join the others."""
    text = files.read_bounded_text("config", path)
    try:
        entries = files.parse_bounded_toml(text)
    except ValueError as error:
        raise InvalidInput(
            "config", path, f"must be TOML: {error}", "write e.g. epsilon = 2.0"
        ) from None
    # The table is for readers: names of options and of settings are all different.
    settings = entries.pop("set", {})
    if not isinstance(settings, Mapping):
        raise InvalidInput(
            "config: set", None, "must be a table", "write [set] and the settings below it"
        )
    for key in settings:
        if key in entries:
            raise InvalidInput(f"config: {key}", None, "is given twice", "remove one of the two")
    return entries | dict(settings)


def _read_checked_value(ctx: click.Context, param: click.Option, name: str, value: Any) -> Any:
    """Return a value as it would be typed, after checking it against the parameter's type."""
    text = _format_value_as_typed(param, name, value)
    try:
        param.type_cast_value(ctx, text)
    except click.BadParameter as error:
        # A message shows one value, or none.
        shown = text
        if isinstance(text, list):
            shown = None
        raise InvalidInput(
            name, shown, error.message.rstrip("."), f"see --set {SETTINGS} and --help"
        ) from None
    return text


def _format_value_as_typed(param: click.Option, name: str, value: Any) -> Any:
    """Return a value of a file as text, or as several texts."""
    if not isinstance(value, list):
        return _format_file_value(name, value)
    texts = [_format_file_value(name, each) for each in value]
    if param.multiple:
        return texts
    if isinstance(param.type, Numbers):
        return ",".join(texts)
    raise InvalidInput(name, None, "must be one value, not a list", "see --help")


def _format_file_value(name: str, value: Any) -> str:
    """Return one value of a file as it would be typed; `name` is for the message."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return format_typed_value(value)
    raise InvalidInput(name, type(value), "must be a text, a number, true or false", "see --help")
