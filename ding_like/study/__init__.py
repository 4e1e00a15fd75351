"""Several runs, each in a process of its own: the seeds of an experiment, the trials of a study of settings."""
