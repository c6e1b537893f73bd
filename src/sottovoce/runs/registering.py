"""Methods from outside the package: registered, they are planned, priced, audited and offered as
those in it.

An installed package names its methods as entry points (:mod:`sottovoce.util.plugins`); such a
method is registered when somebody asks for it by its name.  A hub or a site asks for none: a plan
comes from others.

A knob has one meaning in the whole process, and none has the name of a field of runs or of an
option (:mod:`sottovoce.algorithms.reserved_names`).  Methods from entry points come after
configurations, estimators or commands have read the known knobs, so they bring no new ones.
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
"""Modules that make parameters of the knobs that are known when they are loaded."""

AUTO = "auto"
"""The name that leaves the choice of a method to the package, so no method can have it."""
AUDITED = ("all", "stopping", "refusals", "labels", "capped", "sums", "answers", "people", "rare")
"""What `audit` attacks besides methods (:data:`sottovoce.audit.ADVERSARIES`), so no method can
have these names.
"""

_REGISTERED: set[str] = set()
"""Names of methods from outside."""

MethodT = TypeVar("MethodT", bound=type[Algorithm[Any]])


def register(method: MethodT) -> MethodT:
    """Make a method of yours one that every configuration, command and audit knows by its name.

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

    Guarantee
    ---------
    The price is that of what the method asks: every answer of `node.ask` is charged by its query's
    event before it is given.  A method that reads rows in another way is not covered.

    Raises
    ------
    InvalidInput
        If the class is no method, has a trust of its own, tells too little of itself, has a name
        that is taken, or brings a knob of its own after the command line or estimators have read
        the known ones, or one with the name of a field or option.

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
        rule = f"brings the knobs {', '.join(new)}, and {loaded[0]} has read the known ones"
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
        rule = f"is the entry point of what calls itself {own!r}"
        raise InvalidInput("method", name, rule, "let its package give both the same name")
    _check_method(brought)
    new = _undefined_knobs(brought)
    if new:
        rule = (
            f"brings the knobs {', '.join(new)}, and what its package names comes too late for "
            "new ones"
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
            "method", name, "must be a method that was registered", "give the name of one"
        )
    METHODS.remove(next(one for one in METHODS if one.name == name))
    NAMES.remove(name)
    del REGISTRY[name], KNOWN[name]
    _REGISTERED.remove(name)
    # Modules that have read a knob go on offering it, so it must stay known.
    if not _readers_of_knobs():
        left = gather_knobs(REGISTRY.values())
        for knob in [knob for knob in KNOBS if knob not in left]:
            del KNOBS[knob]


def _readers_of_knobs() -> list[str]:
    """Return the modules that have read the known knobs, so that these cannot change any more."""
    return [module for module in _FIELDS_ARE_MADE if module in sys.modules]


def _check_method(method: Any) -> None:
    """Refuse (InvalidInput) what is no method, tells too little, or has a name that is taken."""
    is_method = isinstance(method, type) and issubclass(method, Algorithm)
    if not is_method or isabstract(method):
        rule = "must be a class of sottovoce.algorithms.base.Algorithm with init and round"
        raise InvalidInput("method", method, rule, "see docs/howto/add_a_method.md")
    untold = [name for name in TOLD if not isinstance(getattr(method, name, None), str)]
    if untold:
        rule = f"must tell, as class variables: {', '.join(untold)}"
        raise InvalidInput("method", method.__name__, rule, "write them, a line each")
    if method.name in (AUTO, *AUDITED):
        rule = "means something else where a method is named, to `train` or to `audit`"
        raise InvalidInput("method", method.name, rule, "give the class another `name`")
    _check_options(method)
    if method.trust not in TRUSTS.values():
        rule = (
            "has a trust of its own, and what a statement says of the adversary is proved for "
            "those here alone"
        )
        raise InvalidInput("method", method.name, rule, f"use one of TRUSTS: {', '.join(TRUSTS)}")
    known = KNOWN.get(method.name)
    if known is None or known is method:
        return
    # A class that is defined again in the same place, as by a cell of a notebook.
    again = method.name in _REGISTERED and _place_of_definition(known) == _place_of_definition(
        method
    )
    if not again:
        rule = f"the name {method.name!r} is taken, by {known.__module__}.{known.__name__}"
        raise InvalidInput("method", method.name, rule, "give the class another `name`")


def _check_options(method: type[Algorithm[Any]]) -> None:
    """Refuse options of which a field is no knob that commands and estimators can offer."""
    if not isinstance(method.options, MethodOptions):
        rule = "must have `options` of a class of sottovoce.algorithms.knobs.MethodOptions"
        raise InvalidInput("method", method.name, rule, "write options: MyOptions = MyOptions()")
    wrong = undeclared_fields(method.options)
    if wrong:
        rule = f"needs options declared as float, int or str; these are not: {', '.join(wrong)}"
        remedy = "declare each by knob(default, about, constraint)"
        raise InvalidInput("method", method.name, rule, remedy)


def _place_of_definition(method: type) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def _undefined_knobs(method: type[Algorithm[Any]]) -> dict[str, Knob]:
    """Return knobs of a method that are not known, or known otherwise.

    InvalidInput if one clashes with another method's.

    A method of the same name is the same one defined again, so its knobs do not count.
    """
    others = [one for name, one in REGISTRY.items() if name != method.name]
    known = gather_knobs([*others, method])
    return {name: one for name, one in known.items() if KNOBS.get(name) != one}
