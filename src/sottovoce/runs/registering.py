"""Methods of other packages or of a notebook: once registered, they work like built-in methods.

They are planned, priced, audited and offered by name.  A class is registered by :func:`register`;
an installed package can also name its methods as entry points (:mod:`sottovoce.util.plugins`),
which are loaded when a user asks for the name.  A hub or a site never loads one, because the plan
that names it comes from others.

A knob, an option of a method, has one meaning in the whole process, and never the name of a field
of runs or of an option of commands (:mod:`sottovoce.algorithms.reserved_names`).  Entry points are
loaded after estimators and commands have built their parameters from the known knobs, so their
methods cannot bring new ones.
"""

from __future__ import annotations

import sys
from inspect import isabstract
from typing import TypeVar

from ..algorithms import KNOBS, KNOWN, METHODS, NAMES, REGISTRY, Algorithm, Knob, Method
from ..algorithms.knobs import MethodOptions, gather_knobs, undeclared_fields
from ..algorithms.method import TRUSTS
from ..errors import InvalidInput
from ..util import plugins
from ..util.typing import Any

TOLD = ("name", "paper", "summary", "releases", "noise_law", "good_for")
"""Class variables by which a method describes itself: lists and records show them."""
_FIELDS_ARE_MADE = ("sottovoce.estimators.parameters", "sottovoce.cli.run_options")
"""Modules that build parameters from the knobs that are known when they are imported."""

AUTO = "auto"
"""The name that leaves the choice of a method to the package, so no method can have it."""
AUDITED = ("all", "stopping", "refusals", "labels", "capped", "sums", "answers", "people", "rare")
"""Targets of `audit` that are no methods (:data:`sottovoce.audit.ADVERSARIES`).

No method can have these names.
"""

_REGISTERED: set[str] = set()
"""Names of registered methods."""

MethodT = TypeVar("MethodT", bound=type[Algorithm[Any]])


def register(method: MethodT) -> MethodT:
    """Register a method of your own, so that configurations, commands and audits find it by name.

    Parameters
    ----------
    method : subclass of :class:`sottovoce.algorithms.base.Algorithm`
        With the class variables of :data:`TOLD`.  Its trust is the class variable `trust`, one of
        :data:`sottovoce.algorithms.method.TRUSTS`; nobody if left out.  A class that is defined
        again in the same place, as by a cell of a notebook, takes the place of the first.

    Returns
    -------
    type
        The class, so that this is a decorator.

    Raises
    ------
    InvalidInput
        If the class is no method, has a trust that is not in TRUSTS, lacks a descriptive class
        variable, has a name that is taken, or declares a new knob after the command line or the
        estimators were imported, or a knob with a reserved name.

    Guarantee
    ---------
    The privacy loss is that of the method's queries: every answer of `node.ask` is charged before
    it is given.  A method that reads rows in another way is not covered.

    Examples
    --------
    >>> import sottovoce
    >>> from sottovoce.algorithms.gradient import DGD
    >>> from sottovoce.runs.registering import unregister
    >>> @sottovoce.register
    ... class Longer(DGD):
    ...     name = "longer_steps"
    ...     summary = "gradient descent of long steps"
    ...     least_penalty = 0.01
    >>> sottovoce.RunConfig(method="longer_steps", epsilon=1.0, delta=1e-5).method
    'longer_steps'
    >>> unregister("longer_steps")
    """
    _check_method(method)
    if REGISTRY.get(method.name) is method:
        return method
    new = _undefined_knobs(method)
    loaded = _readers_of_knobs()
    if new and loaded:
        rule = (
            f"declares the new options {', '.join(new)}, but {loaded[0]} is imported already and "
            "cannot offer them"
        )
        raise InvalidInput(
            "method", method.name, rule, "register it right after `import sottovoce`"
        )
    if method.name in _REGISTERED:
        unregister(method.name)
    KNOBS.update(new)
    METHODS.append(Method(method, method.trust.kind))
    NAMES.append(method.name)
    REGISTRY[method.name] = KNOWN[method.name] = method
    _REGISTERED.add(method.name)
    return method


def find_method(name: str) -> type[Algorithm[Any]] | None:
    """Find the method of this name; load and register it first if a package brings it.

    Parameters
    ----------
    name : str
        Of a method of the package, of a registered one, or of an entry point of the group
        ``sottovoce.methods``.

    Returns
    -------
    type or None
        None if there is no such method, and for "auto" and the names of recipes, which users do not
        choose.

    Raises
    ------
    InvalidInput
        If several packages bring the method, its package cannot be loaded, what is loaded is no
        method of this name, or it has a knob that no known method has: :func:`register` takes it,
        right after `import sottovoce`.
    """
    if name == AUTO or name in REGISTRY:
        return REGISTRY.get(name)
    # Recipes are known, but users do not choose them.
    if name in KNOWN:
        return None
    brought = plugins.load_entry_point(plugins.METHODS, name)
    if brought is None:
        return None
    own = getattr(brought, "name", None)
    if own != name:
        rule = f"is an entry point of a package, but the method that it loads is named {own!r}"
        raise InvalidInput("method", name, rule, "give both the same name in that package")
    _check_method(brought)
    new = _undefined_knobs(brought)
    if new:
        rule = (
            f"declares the new options {', '.join(new)}, which a method that is loaded by its "
            "entry point cannot do"
        )
        where = f"{brought.__module__}.{brought.__name__}"
        raise InvalidInput(
            "method", name, rule, f"call sottovoce.register({where}) right after `import sottovoce`"
        )
    return register(brought)


def offered_methods() -> list[str]:
    """Return the names of all methods that can be asked for, those of other packages included.

    Nothing is loaded.
    """
    return sorted({*REGISTRY, *plugins.installed_entry_points(plugins.METHODS)})


def is_from_outside(name: str) -> bool:
    """Return whether a method of this name comes from outside this package."""
    return name in _REGISTERED or (
        name not in KNOWN and name in plugins.installed_entry_points(plugins.METHODS)
    )


def unregister(name: str) -> None:
    """Take a registered method away again; InvalidInput if it belongs to the package or there is
    none.
    """
    if name not in _REGISTERED:
        raise InvalidInput(
            "method", name, "is not a registered method", "give the name of a registered method"
        )
    METHODS.remove(next(one for one in METHODS if one.name == name))
    NAMES.remove(name)
    del REGISTRY[name], KNOWN[name]
    _REGISTERED.remove(name)
    # Modules that offer a knob already continue to do so, so it must stay known.
    if not _readers_of_knobs():
        left = gather_knobs(REGISTRY.values())
        for knob in [knob for knob in KNOBS if knob not in left]:
            del KNOBS[knob]


def _readers_of_knobs() -> list[str]:
    """Return the imported modules that offer the known knobs: then no knob can be added."""
    return [module for module in _FIELDS_ARE_MADE if module in sys.modules]


def _check_method(method: Any) -> None:
    """Refuse (InvalidInput) what is no method, is not described, or has a name that is taken."""
    is_method = isinstance(method, type) and issubclass(method, Algorithm)
    if not is_method or isabstract(method):
        rule = "must be a subclass of sottovoce.algorithms.base.Algorithm with init and round"
        raise InvalidInput("method", method, rule, "see docs/howto/extend.md")
    untold = [name for name in TOLD if not isinstance(getattr(method, name, None), str)]
    if untold:
        rule = f"lacks the class variables {', '.join(untold)}, which describe a method in lists"
        raise InvalidInput("method", method.__name__, rule, "write one line of text for each")
    if method.name in (AUTO, *AUDITED):
        rule = "is a name with another meaning for `train` or `audit`"
        raise InvalidInput("method", method.name, rule, "give the class another `name`")
    _check_options(method)
    if method.trust not in TRUSTS.values():
        rule = (
            "has a trust of its own, but privacy statements are only proved for the trusts in "
            "sottovoce.algorithms.method.TRUSTS"
        )
        raise InvalidInput("method", method.name, rule, f"use one of these: {', '.join(TRUSTS)}")
    known = KNOWN.get(method.name)
    if known is None or known is method:
        return
    # A class that is defined again in the same place, as by a cell of a notebook.
    again = method.name in _REGISTERED and _place_of_definition(known) == _place_of_definition(
        method
    )
    if not again:
        rule = f"the name is taken by {known.__module__}.{known.__name__}"
        raise InvalidInput("method", method.name, rule, "give the class another `name`")


def _check_options(method: type[Algorithm[Any]]) -> None:
    """Refuse options of which a field is no knob that commands and estimators can offer."""
    if not isinstance(method.options, MethodOptions):
        rule = "its `options` must be of a subclass of sottovoce.algorithms.knobs.MethodOptions"
        raise InvalidInput("method", method.name, rule, "write options: MyOptions = MyOptions()")
    wrong = undeclared_fields(method.options)
    if wrong:
        rule = f"needs options declared as float, int or str; these are not: {', '.join(wrong)}"
        remedy = "declare each by knob(default, about, constraint)"
        raise InvalidInput("method", method.name, rule, remedy)


def _place_of_definition(method: type) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def _undefined_knobs(method: type[Algorithm[Any]]) -> dict[str, Knob]:
    """Return the knobs of a method that are not known yet; InvalidInput if one clashes.

    A registered method of the same name is an earlier definition of this one, so its knobs are not
    compared with.
    """
    others = [one for name, one in REGISTRY.items() if name != method.name]
    known = gather_knobs([*others, method])
    return {name: one for name, one in known.items() if KNOBS.get(name) != one}
