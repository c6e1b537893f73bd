"""NVFlare 2.9 as the carrier of a run's messages (extra ``nvflare``).

NVFlare is a federated learning platform: its server (at the hub) hands out *tasks*, its clients (at
the sites) return results, and a *job* is a set of tasks that runs once.  ``docs/deploy/nvflare.md``
says how to run it.  Modules: :mod:`~.provision` makes the *startup kits* (folders with
certificates and settings) of a plan, :mod:`~.supervisor` submits jobs until the run is complete,
:mod:`~.controller` is the hub's side of a job, :mod:`~.executor` a site's, and :mod:`~.tasks` what
both put into tasks.

NVFlare moves bytes and starts processes; what a site releases, and when, is decided by
:class:`sottovoce.deploy.session.SiteSession` alone.
"""
