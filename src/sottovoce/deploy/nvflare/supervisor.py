"""The supervisor: submits a run to NVFlare as a job, and again after every crash, until complete.

NVFlare does not resume a job whose server or site was killed.  A new job resumes the run, from the
hub's log and each site's journal.  So the supervisor has no state of its own, and may be killed and
started again itself.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import InvalidInput, Refused, Unreachable
from ...util.typing import Any
from ..hub import Hub
from ..hublog import HubLog
from ..plan import Plan
from ..plan_file import read_plan_file
from ..report import write_hub_results
from . import layout
from .provision import SUPERVISOR

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

_T = TypeVar("_T")
POLL = 0.05
"""Seconds after which a site asks the server again for a task."""
_HOME = __name__.rpartition(".")[0]
"""This package, whose classes a job names."""
_COMPLETED = "FINISHED:COMPLETED"
"""NVFlare's status of a job that came to its end."""
_NO_FILTERS: dict[str, Any] = {
    "components": [],
    "task_data_filters": [],
    "task_result_filters": [],
}
"""Part of the configuration of server and sites: no components besides the two classes."""
_log = logging.getLogger(__name__)


def write_job_folder(folder: Path, plan: Plan, *, task_seconds: float = 30.0) -> Path:
    """Write the job of a plan: three JSON files, without code.

    They name two installed classes and the sites.  The plan is not in them: hub and sites have
    their own copies, and compare digests.

    Parameters
    ----------
    folder : Path
        Made if absent.
    plan : Plan
        Gives the names of the run and of the sites, all of which the job needs.
    task_seconds : float
        Seconds without a result after which a site is lost.

    Returns
    -------
    Path
        `folder`.
    """
    controller = {
        "id": "run",
        "path": f"{_HOME}.controller.SiteController",
        "args": {"task_seconds": task_seconds},
    }
    server = {
        "format_version": 2,
        # Under "server", because at the top level NVFlare ignores the interval.
        "server": {"task_request_interval": POLL},
        "workflows": [controller],
        **_NO_FILTERS,
    }
    executor = {"path": f"{_HOME}.executor.SiteExecutor", "args": {}}
    client = {
        "format_version": 2,
        "executors": [{"tasks": [layout.TASK], "executor": executor}],
        **_NO_FILTERS,
    }
    meta = {
        "name": plan.run,
        "resource_spec": {},
        "min_clients": len(plan.sites),
        "mandatory_clients": list(plan.names),
        "deploy_map": {"hub": ["server"], "site": list(plan.names)},
    }
    files = {
        "meta": meta,
        "hub/config/config_fed_server": server,
        "site/config/config_fed_client": client,
    }
    for path, content in files.items():
        file = folder / f"{path}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder


def open_session(kit: Path, patience: float) -> Session:
    """Log in to NVFlare's server with the supervisor's kit, and return the session.

    Tries again for `patience` seconds, then raises :class:`Unreachable`.
    """
    from nvflare.fuel.flare_api.flare_api import new_secure_session
    from nvflare.tool.cli_output import set_output_format

    # NVFlare's messages about its connection then go to the standard error.
    set_output_format("json")
    until = time.monotonic() + patience
    pause = 0.5
    while True:
        try:
            return new_secure_session(SUPERVISOR, str(kit), timeout=5.0, auto_login_max_tries=1)
        except Exception as error:
            if time.monotonic() > until:
                raise Unreachable(
                    f"hub: no session with the server after {patience:g} s "
                    f"({type(error).__name__}: {error}); a certificate of another federation "
                    "looks the same as a server that is down"
                ) from error
            time.sleep(pause)
            pause = min(2 * pause, 5.0)


class _Lost(Exception):
    """The server does not answer, or no longer knows the job."""


def _ask_server(question: Callable[[], _T]) -> _T:
    """Return the server's answer; any error of NVFlare becomes :class:`_Lost`."""
    try:
        return question()
    # NVFlare raises a score of classes when a server goes away, RuntimeError among them.
    except Exception as error:
        raise _Lost(f"{type(error).__name__}: {error}") from error


class Supervisor:
    """Drives one run to its end.

    Parameters
    ----------
    kit : path
        Folder of the supervisor's startup kit.
    hub : path
        The hub's folder, with plan and log; on the same machine.
    task_seconds : float
        See :class:`sottovoce.deploy.nvflare.controller.SiteController`.
    tries : int
        Jobs in a row without a new message in the log before the supervisor gives up.
    """

    def __init__(
        self, kit: str | Path, hub: str | Path, *, task_seconds: float = 30.0, tries: int = 5
    ) -> None:
        layout.need_nvflare()
        self._kit = Path(kit)
        self._hub = Path(hub)
        self.plan = read_plan_file(self._hub / layout.PLAN_FILE)
        if not (self._kit / "startup" / "fed_admin.json").is_file():
            raise InvalidInput(
                "kit",
                str(kit),
                "is not a supervisor's startup kit",
                f"give the folder {SUPERVISOR}",
            )
        self._task_seconds = task_seconds
        self._tries = tries
        self.jobs: list[str] = []
        """Names of the jobs so far, the last one running."""

    def run(self, observe: Callable[[], None] = lambda: None, *, patience: float = 600.0) -> None:
        """Submit jobs until the run is complete, and write the hub's report.

        Parameters
        ----------
        observe : callable
            Called about fifty times a second while a job runs.
        patience : float
            Seconds without a connection to the server after which this gives up.

        Raises
        ------
        Refused
            If several jobs in a row end without progress; with the reason of the last one.
        EndedEarly
            If a site left before its last round, or the hub ended the run.
        Unreachable
            If the server cannot be reached for `patience` seconds.
        """
        # Jobs in a row without a new message, and the messages in the log after the last job.
        idle = 0
        before = -1
        with tempfile.TemporaryDirectory() as folder:
            job = write_job_folder(
                Path(folder) / self.plan.run, self.plan, task_seconds=self._task_seconds
            )
            while True:
                status = self._run_one_job(job, observe, patience)
                if status == _COMPLETED:
                    self._check_and_report()
                    return
                _log.warning("run %s, job %d ended: %s", self.plan.run, len(self.jobs), status)
                held = self._count_messages()
                if held == before:
                    idle += 1
                else:
                    idle = 0
                before = held
                if idle >= self._tries:
                    why = self._last_failure()
                    raise Refused(
                        f"run={self.plan.run!r}: no progress after {self._tries} more jobs; {why}"
                    )

    def _run_one_job(self, job: Path, observe: Callable[[], None], patience: float) -> str:
        """Submit a job, wait for its end, and return NVFlare's last status of it, or the error.

        It counts as completed, and is aborted, if NVFlare does not end it within `task_seconds`
        after all sites have left the run.

        Parameters
        ----------
        job : Path
            Folder of the job.
        observe, patience
            As for :meth:`run`.
        """
        session = open_session(self._kit, patience)
        try:
            _ask_server(lambda: self._abort_leftover_jobs(session))
            name = _ask_server(lambda: session.submit_job(str(job)))
            self.jobs.append(name)
            # Time at which all sites were first seen to have left.
            over: float | None = None
            while True:
                status = _ask_server(lambda: session.get_job_status(name))
                if status is not None and status.startswith("FINISHED"):
                    return status
                if over is None and self._all_sites_left():
                    over = time.monotonic()
                if over is not None and time.monotonic() > over + self._task_seconds:
                    # The run is over, but NVFlare would go on waiting for a site that was killed.
                    _ask_server(lambda: session.abort_job(name))
                    return _COMPLETED
                # Half a second between questions, in which the caller is served.
                until = time.monotonic() + 0.5
                while time.monotonic() < until:
                    observe()
                    time.sleep(0.02)
        except _Lost as error:
            return str(error)
        finally:
            # Closing fails if the server is gone.
            with suppress(Exception):
                session.close()

    def _abort_leftover_jobs(self, session: Session) -> None:
        """Abort jobs of this run that NVFlare shows as running for ever after a crash."""
        for job in session.list_jobs():
            ended = str(job.get("status")).startswith("FINISHED")
            if job.get("job_name") == self.plan.run and not ended:
                # Fails if the job has ended in between, or has no process any more.
                with suppress(Exception):
                    session.abort_job(str(job["job_id"]))

    def _count_messages(self) -> int:
        """Return the number of messages in the hub's log, which measures progress."""
        with HubLog(self._hub / layout.HUB_LOG) as log:
            return len(log.messages(self.plan.run))

    def _all_sites_left(self) -> bool:
        """Return True if every site has left the run, by the hub's log."""
        with HubLog(self._hub / layout.HUB_LOG) as log:
            return Hub(self.plan, log).all_sites_left

    def _check_and_report(self) -> None:
        """Write the hub's report.

        Raises :class:`EndedEarly` if the run ended early, and :class:`Refused` if the log lacks the
        last models although the sites have sent them.
        """
        with HubLog(self._hub / layout.HUB_LOG) as log:
            hub = Hub(self.plan, log)
            written = write_hub_results(self._hub, hub)
            hub.check_complete_end()
            if not written:
                raise Refused(
                    f"run={self.plan.run!r}: the sites have completed it, but {layout.HUB_LOG} "
                    "lacks their last models"
                )

    def _last_failure(self) -> str:
        """Return why the last job failed, from the file that the controller writes."""
        path = self._hub / layout.LAST_FAILURE
        if not path.exists():
            return "look at the server's log"
        return path.read_text(encoding="utf-8").strip()
