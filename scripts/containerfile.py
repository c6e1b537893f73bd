"""Follow a container file in a folder: ``python scripts/containerfile.py FILE FOLDER [COMMAND
...]``, standard library.

For machines without an engine, so that the file cannot rot: COPY copies from the file's folder, RUN
runs in the order of the file, ENV holds for what follows, and COMMAND, or the file's CMD, runs
last.  The folder stands in for WORKDIR and ``python`` of this process for the base image's; nothing
is written elsewhere.  An instruction that is not known here ends the run, and so does a path
outside WORKDIR.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

CALM = ("ARG", "FROM", "USER", "EXPOSE", "LABEL")
"""Instructions that say nothing about what is installed in WORKDIR."""


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a container file, each with its arguments on one line."""
    joined = re.sub(r"\\\n", " ", text)
    lines = [line.strip() for line in joined.splitlines()]
    found = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(word.upper(), rest) for word, rest in found]


class Follower:
    """Follows the instructions of one file in a folder."""

    def __init__(self, context: Path, folder: Path) -> None:
        self.context, self.folder, self.workdir = context, folder, ""
        strange = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # which would bring other code in
        self.environment = {
            name: value for name, value in os.environ.items() if name not in strange
        }
        self.command: list[str] = []
        tools = folder.with_name(f"{folder.name}-base")
        tools.mkdir()
        (tools / "python").symlink_to(sys.executable)
        self.environment["PATH"] = f"{tools}{os.pathsep}{self.environment['PATH']}"

    def follow(self, word: str, rest: str) -> None:
        """Do what one instruction says."""
        if word in CALM:
            return
        steps = {
            "WORKDIR": self.enter,
            "COPY": self.copy,
            "RUN": self.run,
            "ENV": self.set,
            "CMD": self.name_command,
        }
        if word not in steps:
            raise SystemExit(f"{word} {rest}: is not known to {Path(__file__).name}")
        print(f"{word} {rest}", file=sys.stderr, flush=True)
        steps[word](rest)

    def enter(self, rest: str) -> None:
        if self.workdir:
            raise SystemExit(f"WORKDIR {rest}: there is one already, {self.workdir}")
        self.workdir = rest

    def inside(self, path: str) -> Path:
        """The place of a path of the image: relative ones are in WORKDIR, and others are
        refused.
        """
        relative = path.removeprefix(f"{self.workdir}/") if self.workdir else path
        place = self.folder / relative
        if Path(relative).is_absolute() or not place.resolve().is_relative_to(
            self.folder.resolve()
        ):
            raise SystemExit(f"{path}: lies outside of {self.workdir}")
        return place

    def copy(self, rest: str) -> None:
        *sources, target = rest.split()
        place, many = self.inside(target), len(sources) > 1 or target.endswith("/")
        for source in sources:
            given = self.context / source
            if given.is_dir():
                shutil.copytree(
                    given, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
                continue
            to = place / given.name if many else place
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(given, to)

    def run(self, rest: str) -> None:
        self.call(["bash", "-euo", "pipefail", "-c", rest])

    def set(self, rest: str) -> None:
        for pair in rest.split():
            name, _, value = pair.partition("=")
            known = Template(value).substitute(self.environment)
            self.environment[name] = known.replace(f"{self.workdir}/", f"{self.folder}/")

    def name_command(self, rest: str) -> None:
        self.command = json.loads(rest)

    def call(self, command: list[str]) -> None:
        found = shutil.which(command[0], path=self.environment["PATH"])
        done = subprocess.run(
            [found or command[0], *command[1:]], cwd=self.folder, env=self.environment, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with {done.returncode}")


def main() -> None:
    file, folder, command = Path(sys.argv[1]), Path(sys.argv[2]).absolute(), sys.argv[3:]
    folder.mkdir(parents=True)
    follower = Follower(file.absolute().parent, folder)
    for word, rest in instructions(file.read_text(encoding="utf-8")):
        follower.follow(word, rest)
    follower.call(command or follower.command)


if __name__ == "__main__":
    main()
