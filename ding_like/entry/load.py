"""Use what a run trained: `ding_like.load`."""

from __future__ import annotations

from ding_like.agent.loaded import Agent, load

__all__ = ["Agent", "load"]
