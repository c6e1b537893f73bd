"""The hub's side of a job: NVFlare's tasks around a :class:`sottovoce.deploy.nvflare.talk.Talk`."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, TaskCompletionStatus
from nvflare.apis.controller_spec import Task as NVFlareTask
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from ...typing import Any
from ..hub import Hub
from ..hublog import HubLog
from ..plan import Plan
from . import words
from .talk import Talk, Task


class SiteController(Controller):
    """Carries the run of the plan that stands in the hub's folder, ``local/hub`` of the server's startup kit.

    A site is who its certificate says: NVFlare hands out tasks, and takes results, by the certificate's name.

    Parameters
    ----------
    task_seconds : float
        A site that has not answered a task after this time is lost; the job ends, and is to be handed in again.
        A site that computes answers after :data:`sottovoce.deploy.nvflare.words.PATIENCE`, however long its solve.
    """

    def __init__(self, task_seconds: float = 30.0) -> None:
        super().__init__(task_check_period=0.05)
        if not task_seconds >= 2 * words.PATIENCE:
            raise ValueError(f"task_seconds={task_seconds!r}: must be at least {2 * words.PATIENCE:g}")
        self._task_seconds = task_seconds
        self._results: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        self._folder = Path()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Find the hub's folder."""
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        self._folder = Path(workspace.get_site_config_dir(), words.HUB_FOLDER).resolve()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to do: the log was closed when the control flow ended."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Drop it: the site will say it again."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Talk with every site until all have ended."""
        try:
            self._talk(abort_signal, fl_ctx)
        except Exception as error:  # no site's fault; NVFlare logs it, and ends the job
            self._note(f"the hub failed: {type(error).__name__}; the server's log says why")
            raise

    def _talk(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        with HubLog(self._folder / words.HUB_LOG) as log:
            hub = Hub(Plan.read(self._folder / words.PLAN_FILE), log)
            hub.check()
            talk = Talk(hub)
            self._ask(talk.open(), fl_ctx)
            while not talk.over and not abort_signal.triggered:
                try:
                    site, result = self._results.get(timeout=0.5)
                except queue.Empty:
                    self._ask(talk.look(), fl_ctx)  # the operator may have ended the run
                    continue
                self._ask(talk.hear(site, result), fl_ctx)
        if talk.failure is not None:
            self._note(talk.failure)
            self.system_panic(talk.failure, fl_ctx)

    def _note(self, failure: str) -> None:
        (self._folder / words.LAST_FAILURE).write_text(failure + "\n", encoding="utf-8")

    def _ask(self, tasks: Iterable[Task], fl_ctx: FLContext) -> None:
        # One `send` a site: a broadcast would give every site a copy of the first site's data.
        for site, told in tasks:
            data = Shareable()
            data.update(told)
            task = NVFlareTask(
                name=words.TASK,
                data=data,
                timeout=int(self._task_seconds),
                result_received_cb=partial(self._received, site),
                task_done_cb=partial(self._done, site),
            )
            self.send(task, fl_ctx, targets=[site])

    def _received(self, site: str, client_task: ClientTask, fl_ctx: FLContext) -> None:
        result = client_task.result
        fine = isinstance(result, Shareable) and result.get_return_code() == ReturnCode.OK
        self._results.put((site, dict(result) if fine else None))
        client_task.result = None

    def _done(self, site: str, task: NVFlareTask, fl_ctx: FLContext) -> None:
        if task.completion_status != TaskCompletionStatus.OK:
            self._results.put((site, None))
