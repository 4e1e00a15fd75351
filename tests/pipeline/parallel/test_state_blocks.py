"""What a block that failed had changed is not saved by the next one either."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.pipeline.parallel.core.state import StateStore


def test_changes_of_a_failed_block_are_not_saved_with_the_next(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.sqlite")
    with pytest.raises(RuntimeError), store.transaction():
        store.put("task", "half", {})
        raise RuntimeError("something went wrong in the middle")

    with store.transaction():
        store.put("task", "whole", {})

    assert [key for key, _ in store.items("task")] == ["whole"]
    store.close()
