"""Experiment trackers: a thread of the run sends what it writes to one."""

from ding_like.utils.trackers.tracker import Trackers, tracked

__all__ = ["Trackers", "tracked"]
