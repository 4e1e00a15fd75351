"""A buffer that memory cannot hold is refused before it is allocated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.utils.registries import BUFFER_REGISTRY


def rows_of(shape: tuple[int, ...]) -> TransitionBatch:
    obs = np.zeros((2, *shape), np.uint8)
    return TransitionBatch({"obs": obs, "next_obs": obs, "done": np.zeros(2, bool), "lane": np.zeros(2, np.int64)})


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize(
    ("kind", "frame_stack", "rows"),
    [("naive", 0, 10**12), ("advanced", 0, 10**12), ("naive", 0, 10**8), ("naive", 4, 10**8), ("sequence", 0, 10**8)],
)
def test_a_buffer_larger_than_memory_is_refused(kind: str, frame_stack: int, rows: int) -> None:
    settings: dict[str, Any] = {"replay_buffer_size": rows, "frame_stack": frame_stack}
    cls = BUFFER_REGISTRY.get(kind)

    with pytest.raises(ConfigError, match=rf"replay_buffer_size is {rows:,}.* GiB are available: give [\d,]+ or fewer"):
        cls({**cls.default_config(), **settings}).push(rows_of((4, 512, 512)), 0)
