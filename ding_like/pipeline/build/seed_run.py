"""Start what a run with central inference is made of: proxy, servers and actors, and the turns that they take."""

from __future__ import annotations
