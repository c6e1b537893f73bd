"""NVFlare 2.9 as the carrier of a run's messages (extra ``nvflare``).

NVFlare moves bytes and starts processes; what a site releases, and when, is decided by
:class:`sottovoce.deploy.session.SiteSession` alone.  ``docs/deploy/nvflare.md`` says how to run it.

=================  =====================================================================
``tasks``          requests of sites and replies of the hub, carried by tasks
``controller``     the hub's side of a job: NVFlare's tasks around ``tasks``
``executor``       a site's side of a job: NVFlare's tasks around ``tasks`` and the site's session
``layout``         what the parts of a job are called, and where they lie
``provision``      project file of a plan, and the startup kits
``policies``       the hardened policies that every kit gets
``supervisor``     hands in the job, and again after a crash, until the run is complete
``loopback``       a hub and its sites as processes of this machine, for ``sottovoce demo``
=================  =====================================================================
"""
