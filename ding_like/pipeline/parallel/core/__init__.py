"""State and decisions of the coordinator, without HTTP, threads or a clock of its own."""

from ding_like.pipeline.parallel.core.core import CoordinatorCore, CoreConfig

__all__ = ["CoordinatorCore", "CoreConfig"]
