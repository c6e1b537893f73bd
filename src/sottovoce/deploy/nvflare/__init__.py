"""NVFlare 2.9 as the carrier of a run's messages (extra ``nvflare``).

``docs/deploy/nvflare.md`` says how to run it.

NVFlare moves bytes and starts processes; what a site releases, and when, is decided by
:class:`sottovoce.deploy.session.SiteSession` alone.
"""
