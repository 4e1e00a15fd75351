"""Send what a run writes to an experiment tracker; each works in a process of its own."""

from ding_like.utils.trackers.followed import Trackers, tracked

__all__ = ["Trackers", "tracked"]
