"""Where spending is written down: in memory for one process, or on disk for the life of a data set."""
