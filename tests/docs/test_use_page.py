"""The blocks of docs/use.md run one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ding_like
from ding_like.config import read_config

PAGE = Path(__file__).parents[2] / "docs/use.md"


@pytest.mark.timeout(300)
def test_the_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = dict(evaluator_env_num=2, n_evaluator_episode=2)
    ding_like.train("dqn", "CartPole-v1", env_step=600, env=few, exp_name="my_exp")
    names: dict[str, Any] = {}

    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)

    assert names["action"] in (0, 1) and names["actions"].shape == (3,)
    assert names["obs"].shape == (3, 4)
    run = names["run"]
    assert run.folder == Path("two_lines") and run.result.env_step >= 2_000
    cfg = read_config(run.folder / "total_config.py").main_config
    assert cfg["policy"]["learn"]["batch_size"] == 128 and cfg["policy"]["discount_factor"] == 0.99
    assert run.agent.wrappers == ["ObsNorm"] and run.agent.act(np.zeros(4, np.float32)) in (0, 1)
    assert ding_like.Run("cartpole_dqn_seed0").is_finished
