"""Run workers on a Ray cluster; only `actors.py` imports ray."""
