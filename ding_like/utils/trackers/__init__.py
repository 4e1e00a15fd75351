"""Send what a run writes to an experiment tracker; a thread of the run sends it."""

from ding_like.utils.trackers.following import Trackers, tracked

__all__ = ["Trackers", "tracked"]
