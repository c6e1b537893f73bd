"""The hub's side of a job: an NVFlare controller that sends tasks to the sites.

What the tasks contain, and when a site counts as lost, is decided in
:func:`sottovoce.deploy.nvflare.tasks.serve_sites`; this class carries them.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from ...util.typing import Any
from ..hub import Hub
from ..hublog import HubLog
from ..plan_file import read_plan_file
from . import layout
from .tasks import PATIENCE, serve_sites


class SiteController(Controller):
    """Carries the run of the plan in the hub's folder, ``local/hub`` of the server's startup kit.

    NVFlare hands out tasks, and takes results, by the name in a site's certificate.

    Parameters
    ----------
    task_seconds : float
        Seconds after which a site without a result is lost, so that the job ends and the supervisor
        submits another.  A site that is still computing replies so after
        :data:`sottovoce.deploy.nvflare.tasks.PATIENCE` seconds, so this is no limit on its solver.
    """

    def __init__(self, task_seconds: float = 30.0) -> None:
        super().__init__(task_check_period=0.05)
        if not task_seconds >= 2 * PATIENCE:
            raise ValueError(f"task_seconds={task_seconds!r}: must be at least {2 * PATIENCE:g}")
        self._task_seconds = task_seconds
        self._folder = Path()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Find the hub's folder in the startup kit; NVFlare calls it before the control flow."""
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        self._folder = Path(workspace.get_site_config_dir(), layout.HUB_FOLDER).resolve()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to do: the log was closed when the control flow ended."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Drop the result: its task has timed out, and in this job the site is lost.

        Parameters
        ----------
        client, task_name, client_task_id, result, fl_ctx
            See NVFlare's ``Controller``; none is used.
        """

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job: NVFlare calls this once, and the job ends when it returns."""
        try:
            self._serve_all_sites(abort_signal, fl_ctx)
        except Exception as error:
            # An error of the hub, not of a site.  NVFlare logs it and ends the job.
            self._note_failure(f"the hub failed: {type(error).__name__}; the server's log says why")
            raise

    def _serve_all_sites(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Answer the requests of all sites, and end the job if it cannot go on."""
        # Set when the job is over, so that no thread waits for a task any longer.
        over = threading.Event()
        with HubLog(self._folder / layout.HUB_LOG) as log:
            hub = Hub(read_plan_file(self._folder / layout.PLAN_FILE), log)
            hub.check_log()
            failure = serve_sites(hub, partial(self._carry_task, fl_ctx, abort_signal, over), over)
        if failure is not None:
            self._note_failure(failure)
            self.system_panic(failure, fl_ctx)

    def _note_failure(self, failure: str) -> None:
        """Write down why the job failed, for the supervisor."""
        (self._folder / layout.LAST_FAILURE).write_text(failure + "\n", encoding="utf-8")

    def _carry_task(
        self,
        fl_ctx: FLContext,
        abort_signal: Signal,
        over: threading.Event,
        site: str,
        told: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Send a task to a site, and wait for its result; None if it does not come.

        Parameters
        ----------
        fl_ctx, abort_signal
            NVFlare's, of the job.
        over : Event
            Set when the job is over, here or elsewhere.
        site : str
        told : dict
            Content of the task.

        Returns
        -------
        dict or None
            Content of the result.
        """
        results = queue.Queue[dict[str, Any] | None]()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result = client_task.result
            client_task.result = None
            if isinstance(result, Shareable) and result.get_return_code() == ReturnCode.OK:
                results.put(dict(result))
            else:
                results.put(None)

        def done(task: Task, fl_ctx: FLContext) -> None:
            # Called after `received` if there is a result, and alone if the task has timed out.
            results.put(None)

        data = Shareable()
        data.update(told)
        seconds = int(self._task_seconds)
        task = Task(
            layout.TASK, data, timeout=seconds, result_received_cb=received, task_done_cb=done
        )
        # Sent to one site: a broadcast would give every site a copy of the first site's data.
        self.send(task, fl_ctx, targets=[site])
        while not over.is_set():
            with suppress(queue.Empty):
                return results.get(timeout=0.5)
            if abort_signal.triggered:
                over.set()
        return None
