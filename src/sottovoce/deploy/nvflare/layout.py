"""Names of the tasks and files of a job, and the check that NVFlare is installed."""

from __future__ import annotations

from ...errors import InvalidInput

TASK = "sottovoce"
"""Name of all tasks."""
SITE_FILE = "site.toml"
"""Settings of a site, in the folder ``local`` of its startup kit."""
# The hub's folder, in the folder ``local`` of the server's startup kit, and files in it.
HUB_FOLDER, PLAN_FILE, HUB_LOG, LAST_FAILURE = "hub", "plan.json", "hub.log", "last_failure.txt"
LET_GO = 60.0
"""Seconds to wait for the site's lock, which the session of the previous job may still hold."""


def need_nvflare() -> None:
    """Raise :class:`InvalidInput` unless NVFlare 2.9 is installed."""
    try:
        import nvflare
    except ImportError as error:
        rule = "needs NVFlare 2.9, which is not installed"
        raise InvalidInput(
            "transport", "nvflare", rule, "pip install 'sottovoce[nvflare]'"
        ) from error
    version = str(nvflare.__version__)
    if not version.startswith("2.9."):
        raise InvalidInput("nvflare", version, "must be 2.9", "pip install 'nvflare>=2.9,<2.10'")
