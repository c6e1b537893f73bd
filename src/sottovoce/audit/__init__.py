"""Attacks on every claim that the package prints: games against the real code path, and exact checks."""

from .bounds import epsilon_bound
from .game import Case, Verdict, play
from .worlds import make

__all__ = ["Case", "Verdict", "epsilon_bound", "make", "play"]
