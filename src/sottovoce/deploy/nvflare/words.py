"""What the two ends of a job say to each other: one task is one question of the hub, its result a site's answer.

A task says where the hub is with this site; a result says what the site waits for.  Both are plain data and may be
repeated: a site states the same wish until it is granted, and the hub's log keeps the first message of a round.

==============  =====================================================
in a task       meaning
==============  =====================================================
``highest``     the highest round that the hub holds from this site
``plan``        the digest of the hub's plan; in the first task
``inbox``       the neighbours' messages of ``round``, by site
``closed``      why ``round`` will never be complete
``site``        whose leaving closed it; None if the hub ended the run
``farewell``    what that site signed
``refused``     why the message of ``round`` was not kept
``asked``       with sums: other sites' questions, by site
``question``    with sums: the site's own question, and with it
                ``answered``, by site, or ``closed`` or ``refused``
==============  =====================================================

===================  ==================================================================
in a result          meaning
===================  ==================================================================
``state``            "working", "waiting", "finished" or "failed"
``round, message``   if waiting: the message to keep, and the round whose inbox is asked for
``answers``          with sums: what it says to other sites' questions, by site
``question, enough`` with sums: what it asks the others, and how many answers it waits for
``left``             the site's signed farewell, once it has said that no more messages will come
``reason``           if failed: what to write down; never a data value
===================  ==================================================================
"""

from __future__ import annotations

from ...errors import InvalidInput

TASK = "sottovoce"
HIGHEST, PLAN, ROUND, INBOX, CLOSED, REFUSED = "highest", "plan", "round", "inbox", "closed", "refused"
SITE, FAREWELL = "site", "farewell"
ASKED, ANSWERS, QUESTION, ENOUGH, ANSWERED = "asked", "answers", "question", "enough", "answered"
STATE, MESSAGE, LEFT, REASON = "state", "message", "left", "reason"
WORKING, WAITING, FINISHED, FAILED = "working", "waiting", "finished", "failed"
SITE_FILE = "site.toml"
HUB_FOLDER, PLAN_FILE, HUB_LOG, LAST_FAILURE = "hub", "plan.json", "hub.log", "last_failure.txt"
LET_GO = 60.0
"""Seconds in which the session of the job before may end."""
PATIENCE = 5.0
"""Seconds after which a site that still computes says so."""


def need_nvflare() -> None:
    """Say what is missing if NVFlare cannot be used.

    Raises
    ------
    InvalidInput
    """
    try:
        import nvflare
    except ImportError as error:
        rule = "needs NVFlare 2.9, which is not installed"
        raise InvalidInput("transport", "nvflare", rule, "pip install 'sottovoce[nvflare]'") from error
    version = str(nvflare.__version__)
    if not version.startswith("2.9."):
        raise InvalidInput("nvflare", version, "must be 2.9", "pip install 'nvflare>=2.9,<2.10'")
