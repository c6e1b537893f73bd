"""The commands ``sottovoce study``, ``claims`` and ``compare``, one file each."""
