"""A hub's own settings, ``hub.toml`` in its folder: what it tells, and to whom.

All entries may be absent, and so may the file; what is typed for ``sottovoce hub run`` wins.

::

    metrics = "127.0.0.1:8445"            # /healthz and /metrics
    on_alarm = ["/usr/local/bin/tell-us"] # gets each alarm as JSON
    log_json = "hub.jsonl"                # beside the file, unless absolute
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ..errors import InvalidInput
from ..util import files
from .alarm_command import split_command
from .files import KEY

SETTINGS = "hub.toml"
_ENTRIES = ("metrics", "on_alarm", "log_json")


@dataclass(frozen=True)
class HubSettings:
    """What a hub tells besides its console.

    Parameters
    ----------
    metrics : str, optional
        ``HOST:PORT`` of ``/healthz`` and ``/metrics``.
    on_alarm : tuple of str
        Program and arguments, run for each alarm; empty for none.
    log_json : Path, optional
        File of JSON lines.
    """

    metrics: str | None = None
    on_alarm: tuple[str, ...] = ()
    log_json: Path | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read ``hub.toml`` of a folder; all defaults if there is none."""
        file = folder / SETTINGS
        if not file.exists():
            return cls()
        try:
            given = files.parse_bounded_toml(files.read_bounded_text("settings", file, KEY))
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                "settings", file, f"is not TOML: {error}", f'write e.g. {_ENTRIES[0]} = "none"'
            ) from None
        for key in given:
            if key not in _ENTRIES:
                rule = f"must be one of {', '.join(_ENTRIES)}"
                raise InvalidInput(key, None, rule, "remove or correct it")
        log_json = None
        if "log_json" in given:
            log_json = folder / _text_entry("log_json", given["log_json"])
        command = given.get("on_alarm", [])
        if isinstance(command, str):
            command = split_command(command)
        elif not isinstance(command, list) or not all(isinstance(one, str) for one in command):
            raise InvalidInput("on_alarm", None, "must be a list of texts", "write a list of texts")
        return cls(
            _text_entry("metrics", given.get("metrics", "none")), tuple(command), log_json
        ).without_none()

    def changed_by(self, metrics: str | None, on_alarm: str | None, log_json: Path | None) -> Self:
        """Return these settings with what was typed in their place; None changes nothing.

        Parameters
        ----------
        metrics : str or None
            ``HOST:PORT``, or "none".
        on_alarm : str or None
            Program and arguments as one text.
        log_json : Path or None

        Returns
        -------
        HubSettings
        """
        changed = self
        if metrics is not None:
            changed = replace(changed, metrics=metrics)
        if on_alarm is not None:
            changed = replace(changed, on_alarm=split_command(on_alarm))
        if log_json is not None:
            changed = replace(changed, log_json=log_json)
        return changed.without_none()

    def without_none(self) -> Self:
        """Return these settings, in which the word "none" is no address."""
        if self.metrics == "none":
            return replace(self, metrics=None)
        return self


def _text_entry(key: str, value: object) -> str:
    """Return a text of the file; raises :class:`InvalidInput` for anything else."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidInput(key, None, "must be a text in quotes", "write such a text")
    return value
