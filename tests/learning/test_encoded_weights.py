"""Learning gates: a parallel run learns as well with weights that are rounded, or sent as changes, on their way."""

from pathlib import Path

import pytest

from ding_like.config import read_config
from ding_like.entry import parallel_pipeline
from tests.learning.record import evaluations

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"


@pytest.mark.learning
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["exact", "bfloat16"])
@pytest.mark.parametrize("delta", [False, True])
def test_dqn_learns_cartpole_whatever_its_weights_travel_as(dtype, delta, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = read_config(CONFIG)
    system = dict(communication_mode="stream", weights=dict(dtype=dtype, delta=delta))

    parallel_pipeline((file.main_config, file.create_config, system), seed=0, exp_name="run", max_env_step=15_000)

    # At random it is 22. The best of a run's evaluations counts, as one run may end in a low.
    assert max(value for _, value in evaluations(Path("run/metrics.jsonl"))) >= 300
