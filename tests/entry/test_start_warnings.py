"""The first seconds of a run say once what there is to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.config import deep_merge, read_config
from ding_like.entry import serial_pipeline

CARTPOLE = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"


@pytest.mark.parametrize(
    ("name", "batch_size", "random_collect_size", "expected"),
    [("cartpole_dqn_per", 43, 0, 1), ("cartpole_dqn", 47, 48, 0)],
)
def test_one_warning_says_that_a_buffer_fills(
    name: str,
    batch_size: int,
    random_collect_size: int,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
    main, create = read_config(str(CARTPOLE / f"{name}_config.py"))[:2]
    # A batch size of its own: a warning of another test would be taken for this one's.
    learn = dict(batch_size=batch_size, learning_rate=1e-3)
    policy = dict(learn=learn, random_collect_size=random_collect_size)
    main = deep_merge(main, dict(exp_name="exp", env=dict(n_evaluator_episode=1, evaluator_env_num=1), policy=policy))

    serial_pipeline((main, create), seed=0, max_env_step=64)

    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in said if "buffer" in line]) == expected, said
