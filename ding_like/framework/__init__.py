"""Message that names the replacement of DI-engine's `ding.framework`; this package has nothing else."""

from __future__ import annotations

from typing import NoReturn

_MESSAGE = (
    "ding_like has no middleware (ding.framework). Train with serial_pipeline(...) of ding_like.entry, or write "
    "the loop out: collector.collect, buffer.push, buffer.sample, learner.train, evaluator.eval."
)


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):  # Python's own questions
        raise AttributeError(name)
    raise ImportError(_MESSAGE, name=__name__)
