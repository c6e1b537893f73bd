"""The builder that puts this package's policies into every startup kit, in place of NVFlare's.

A *policy* is one of the JSON files in the folder ``hardened``: which components run (resources),
who may do what (authorization), and how processes connect (comm_config).
"""

from __future__ import annotations

import json
from pathlib import Path

from nvflare.lighter.constants import ParticipantType, ProvFileName
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project
from nvflare.lighter.spec import Builder

from ...util.typing import Any
from .provision import read_hardened_policy

_KINDS = {ParticipantType.SERVER: "server", ParticipantType.CLIENT: "client"}


class HardenedPolicies(Builder):
    """Writes the policies of hub and sites; must run after NVFlare's builder of static files.

    They allow no code from the hub, no classes other than this package's, no logs that leave a
    site, and only TLS, even between processes of one machine.

    Parameters
    ----------
    store : str
        Folder at the hub for NVFlare's jobs.
    """

    def __init__(self, store: str) -> None:
        self._store = Path(store)

    def finalize(self, project: Project, ctx: ProvisionContext) -> None:
        """Replace the policies in the kits of server and clients, after all builders have run."""
        for participant in project.get_all_participants():
            kind = _KINDS.get(participant.type)
            if kind is None:
                continue
            local = Path(ctx.get_local_dir(participant))
            resources = read_hardened_policy(kind)
            if kind == "server":
                self._set_job_folders(resources)
            policies = {
                "resources": resources,
                "authorization": read_hardened_policy("authorization"),
                "comm_config": read_hardened_policy("comm_config"),
            }
            for name, policy in policies.items():
                text = json.dumps(policy, indent=2) + "\n"
                (local / f"{name}.json").write_text(text, encoding="utf-8")
            # NVFlare wrote its defaults earlier, beside these.
            (local / ProvFileName.RESOURCES_JSON_DEFAULT).unlink()
            (local / ProvFileName.AUTHORIZATION_JSON_DEFAULT).unlink()

    def _set_job_folders(self, resources: dict[str, Any]) -> None:
        """Put the folders of snapshots and jobs into the hub's resources."""
        storage = resources["snapshot_persistor"]["args"]["storage"]
        storage["args"]["root_dir"] = str(self._store / "snapshots")
        manager = next(part for part in resources["components"] if part["id"] == "job_manager")
        manager["args"]["uri_root"] = str(self._store / "jobs")
