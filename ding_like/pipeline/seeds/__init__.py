"""Run the seeds of one experiment side by side, each in a process of its own."""
