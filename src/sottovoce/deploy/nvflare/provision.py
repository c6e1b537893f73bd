"""NVFlare's startup kits of a plan: one for the hub, one for each site, one for the supervisor.

A *startup kit* is a folder with certificates, settings and policies for one participant; the
*supervisor* is the NVFlare administrator who submits jobs.  ``nvflare provision -p FILE`` on the
file that :func:`write_project` writes does the same as :func:`make_startup_kits`: the file names
:class:`sottovoce.deploy.nvflare.policies.HardenedPolicies` as a builder, so that every kit gets
them.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from ...errors import InvalidInput
from ...util.files import LARGEST, read_bounded_file
from ...util.typing import Any
from ..plan import Plan
from ..strict import NotStrict, parse_json
from .layout import need_nvflare

SUPERVISOR = "supervisor@sottovoce.invalid"
"""Name of the supervisor, which NVFlare requires to be an e-mail address."""
_ORGANISATION = "sottovoce"
_BUILDERS = "nvflare.lighter.impl"
_STATIC = {"config_folder": "config", "scheme": "tcp"}
DAYS = 3 * 365
"""Validity of the kits' certificate authority, in days."""


def describe_project(
    plan: Plan, server: str, port: int, *, store: str | Path, name: str = "sottovoce"
) -> dict[str, Any]:
    """Return NVFlare's description of the federation, as plain data.

    Parameters
    ----------
    plan : Plan
        Its sites and run give the names.
    server : str
        Host name of the hub as the sites reach it, and on its certificate.
    port : int
        The hub's port, the only one that is open anywhere.
    store : path
        Absolute folder at the hub for NVFlare's jobs.
    name : str
        Name of NVFlare's project.

    Returns
    -------
    dict
        The content of a project file as ``nvflare provision -p`` reads it.

    Raises
    ------
    InvalidInput
        If the port is out of range, `store` is not absolute, or a site has the server's name.
    """
    if not 1 <= port <= 65535:
        raise InvalidInput("port", port, "must be 1 to 65535", "give the hub's port")
    if not Path(store).is_absolute():
        raise InvalidInput(
            "store", str(store), "must be an absolute path", "e.g. /var/lib/sottovoce/nvflare"
        )
    if server.lower() in (name.lower() for name in plan.names):
        raise InvalidInput(
            "server",
            server,
            "must differ from the names of the sites",
            "rename it",
        )
    clients = [{"name": site, "type": "client", "org": _ORGANISATION} for site in plan.names]
    hub = {
        "name": server,
        "type": "server",
        "org": _ORGANISATION,
        "fed_learn_port": port,
        "admin_port": port,
    }
    supervisor = {"name": SUPERVISOR, "type": "admin", "org": _ORGANISATION, "role": "lead"}
    return {
        "api_version": 3,
        "name": name,
        "description": f"sottovoce run {plan.run}",
        "participants": [hub, *clients, supervisor],
        "builders": _kit_builders(store),
    }


def _kit_builders(store: str | Path) -> list[dict[str, Any]]:
    """Return NVFlare's builders of a startup kit, in the order in which they run."""
    return [
        {
            "path": f"{_BUILDERS}.workspace.WorkspaceBuilder",
            "args": {"template_file": ["master_template.yml"]},
        },
        {"path": f"{_BUILDERS}.static_file.StaticFileBuilder", "args": _STATIC},
        {"path": f"{_BUILDERS}.cert.CertBuilder", "args": {"root_valid_days": DAYS}},
        # Ours comes after the static files, which it replaces, and before the signatures of all.
        {"path": f"{__package__}.policies.HardenedPolicies", "args": {"store": str(store)}},
        {"path": f"{_BUILDERS}.signature.SignatureBuilder"},
    ]


def write_project(path: str | Path, description: dict[str, Any]) -> None:
    """Write a project file for ``nvflare provision -p``, in JSON, which is also YAML."""
    Path(path).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def make_startup_kits(description: dict[str, Any], workspace: str | Path) -> Path:
    """Make all startup kits of a project's `description`, and return their folder.

    Raises :class:`InvalidInput` if NVFlare does not accept the description or the workspace.
    """
    need_nvflare()
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    # a copy, because NVFlare writes into what it is given
    plain = json.loads(json.dumps(description))
    try:
        provisioner = Provisioner(str(workspace), prepare_builders(plain))
        context = provisioner.provision(prepare_project(plain), logger=_Quiet())
    except ValueError as error:
        raise InvalidInput(
            "project", None, f"NVFlare refuses it: {error}", "correct names, host or port"
        ) from error
    if context.get(CtxKey.BUILD_ERROR):
        raise InvalidInput(
            "workspace", str(workspace), "NVFlare could not make the kits", "use an empty folder"
        )
    return Path(str(context.get_result_location()))


class _Quiet:
    """A logger that drops everything: without one NVFlare prints its progress."""

    def info(self, message: str) -> None: ...

    debug = warning = error = info


def read_hardened_policy(name: str) -> dict[str, Any]:
    """Return a shipped policy by name: "server", "client", "authorization" or "comm_config"."""
    file = files(__package__).joinpath("hardened", f"{name}.json")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def check_startup_kit(kit: str | Path) -> None:
    """Check that a site's startup kit has the shipped policies and asks for mutual TLS.

    Raises :class:`InvalidInput` otherwise.
    """
    home = Path(kit)
    for file, policy in (
        ("resources", "client"),
        ("authorization", "authorization"),
        ("comm_config", "comm_config"),
    ):
        path = home / "local" / f"{file}.json"
        if _read_kit_file(path) != read_hardened_policy(policy):
            remedy = "have the kit made again or restore the file"
            raise InvalidInput("kit", str(path), "differs from the hardened policy", remedy)
    path = home / "startup" / "fed_client.json"
    if _read_kit_file(path).get("client", {}).get("connection_security") != "mtls":
        raise InvalidInput(
            "kit", str(path), "does not require mutual TLS", "have the kit made again"
        )


def _read_kit_file(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a startup kit; raises :class:`InvalidInput`."""
    try:
        return dict(parse_json(read_bounded_file("kit", path), LARGEST))
    except (NotStrict, TypeError) as error:
        raise InvalidInput(
            "kit", str(path), "cannot be read", "give the folder of a site's startup kit"
        ) from error
