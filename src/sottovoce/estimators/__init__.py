"""scikit-learn estimators."""


def __getattr__(name: str) -> object:
    if name != "learning_steps":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .caveats import learning_steps  # loads scikit-learn

    return learning_steps
