"""Run workers on a Ray cluster; only `library.py` imports ray."""
