"""Time a block of code."""

from __future__ import annotations

import time
from types import TracebackType


class EasyTimer:
    """Measure how long a `with` block takes: `value`, in seconds, once it has ended.

    With `cuda` it waits for what the block started on the GPU, at both ends.
    """

    def __init__(self, cuda: bool = False) -> None:
        self.value = 0.0
        self._cuda = cuda

    def __enter__(self) -> EasyTimer:
        self._wait_for_gpu()
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_for_gpu()
        self.value = time.perf_counter() - self._started_s

    def _wait_for_gpu(self) -> None:
        if not self._cuda:
            return
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
