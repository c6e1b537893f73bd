"""A site's side of a job: an NVFlare executor.

The site's session runs in a thread of its own, for the whole job.  Each task brings it the hub's
reply to its last request, and takes its next request along (:mod:`sottovoce.deploy.nvflare.tasks`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from ...errors import EndedEarly, FinishedWithout, InvalidInput, Refused, SottovoceError
from ..lock import exclusive_lock
from ..session import check_complete_end
from ..settings import SiteSettings
from . import layout
from .tasks import Post, TaskTransport


class SiteExecutor(Executor):
    """Runs the site of ``local/site.toml`` in its own startup kit.

    It takes no arguments, because arguments would come from the hub.
    """

    def __init__(self) -> None:
        super().__init__()
        self._post = Post()
        self._thread: threading.Thread | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Hand the hub's reply to the session, and return what the session asks next.

        The first task starts the session, in a thread of its own.

        Parameters
        ----------
        task_name : str
            Any other than :data:`sottovoce.deploy.nvflare.layout.TASK` is unknown.
        shareable : Shareable
            The hub's reply to the last request.
        fl_ctx : FLContext
            Names the site, and the folder of its settings.
        abort_signal : Signal
            Not used: the end of a job is told by :meth:`handle_event`.

        Returns
        -------
        Shareable
            The next request, or that the session has ended.
        """
        if task_name != layout.TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self._thread is None:
            local = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
            name = str(fl_ctx.get_identity_name())
            self._thread = threading.Thread(
                target=self._run_session, args=(local, name), name="site", daemon=True
            )
            self._thread.start()
        result = make_reply(ReturnCode.OK)
        result.update(self._post.carry_task(shareable))
        return result

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """End the session's waiting when NVFlare says that the job ends."""
        if event_type in (EventType.ABOUT_TO_END_RUN, EventType.END_RUN, EventType.ABORT_TASK):
            self._post.close_with_reason(
                "the hub ended the job; it will be submitted again if the run is not complete"
            )

    def _run_session(self, local: Path, name: str) -> None:
        """Run the site's session, and tell the hub how it ended, without any detail of the site.

        `local` is the folder of ``site.toml``, `name` the name in the site's certificate.
        """
        failure = ""
        try:
            self.run_site(local / layout.SITE_FILE, name, self._post, self.logger.info)
        except (EndedEarly, FinishedWithout) as error:
            # An ordinary end: the hub has this site's signed farewell.
            self.logger.error("%s", error)
        except Refused as error:
            # The message is about messages and the plan, which the hub has.
            failure = f"{type(error).__name__}: {error}"
        except SottovoceError as error:
            # The message may show spending or paths, so it stays at the site.
            failure = f"{type(error).__name__}; the site's log says why"
            self.logger.error("the site's session ended: %s: %s", type(error).__name__, error)
        except BaseException as error:
            failure = f"{type(error).__name__}; the site's log says why"
            self.logger.exception("the site's session failed")
        finally:
            self._post.end_session(failure)

    @staticmethod
    def run_site(path: Path, name: str, post: Post, tell: Callable[[str], None]) -> None:
        """Run the site of a settings file to its end, and write its results down.

        Parameters
        ----------
        path : Path
            The site's ``site.toml``.
        name : str
            The name in its NVFlare certificate.
        post : Post
            Carries the requests of the session.
        tell : callable
            Called with a line about each old key that is erased.

        Raises
        ------
        InvalidInput
            If the settings are another site's.
        EndedEarly, FinishedWithout
            As :func:`sottovoce.deploy.session.check_complete_end`, after the results are written.
        """
        settings = SiteSettings.read(path)
        if settings.name != name:
            rule = f"this site's certificate is for {name!r}"
            raise InvalidInput(
                "name",
                settings.name,
                rule,
                f"correct it in {layout.SITE_FILE}, or get the right kit",
            )
        with exclusive_lock(settings.lock_file, layout.LET_GO):
            settings.erase_old_keys(tell)
            ended = settings.run_and_write_results(TaskTransport(settings.agreed_plan, post))
        check_complete_end(name, settings.agreed_plan.run, ended.outcome.stopped, ended.lost)
