"""`ding doctor`: what is odd in an environment, in a config and in a run, each finding with its fix.

A check is a small function that yields findings; `environment.py`, `config.py` and `run.py` each have a list of them.
"""
