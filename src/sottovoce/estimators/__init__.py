"""scikit-learn estimators; import them from :mod:`sottovoce` itself.

This package's one name of its own is :func:`sottovoce.estimators.caveats.learning_steps`, loaded on
first use.
"""


def __getattr__(name: str) -> object:
    if name != "learning_steps":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Here and not at the top, because it loads scikit-learn.
    from .caveats import learning_steps

    return learning_steps
