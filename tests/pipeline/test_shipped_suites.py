"""Every shipped config of MuJoCo, Atari, MinAtar, MiniGrid, DeepMind Control, teams and grid worlds trains."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import deep_merge
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from tests.pipeline.test_shipped_runs import is_on_policy, small

ROOT = Path(__file__).parents[2] / "dizoo"
_NEEDS = dict(
    mujoco="mujoco",
    atari="ale_py",
    minatar="minatar",
    minigrid="minigrid",
    dmc2gym="shimmy",
    petting_zoo="mpe2",
    multi_agent="mpe2",
    chain="gymnasium",
    cliffwalking="gymnasium",
    frozen_lake="gymnasium",
    taxi="gymnasium",
    pomdp="gymnasium",
    multiagent_mujoco="gymnasium_robotics",
)
# pong_rainbow is one of the type 'gymnasium', with lanes of the manager 'base', and tictactoe of self-play.
_PATTERNS = (
    "*_config.py",
    "pong_[dp]*_config.py",
    "*_config.py",
    "*_config.py",
    "*_config.py",
    "ptz_*_config.py",
    "s*_config.py",
    *["*_config.py"] * 6,
)
# Short episodes: a run ends with 20 whole ones.
_SHORT: dict[str, dict[str, Any]] = dict(
    mujoco=dict(max_episode_steps=12),
    atari=dict(kwargs=dict(max_num_frames_per_episode=200), noop_max=0),
    minatar=dict(max_episode_steps=12),
    minigrid=dict(max_step=12),
    dmc2gym=dict(max_episode_steps=12),
    petting_zoo=dict(max_cycles=10),
    multi_agent=dict(kwargs=dict(max_cycles=10)),
    multiagent_mujoco=dict(episode_limit=12),
    **{suite: dict(max_episode_steps=12) for suite in ("chain", "cliffwalking", "frozen_lake", "taxi", "pomdp")},
)
CONFIGS = [
    (suite, path)
    for suite, pattern in zip(_NEEDS, _PATTERNS, strict=True)
    for path in sorted((ROOT / suite / "config").glob(pattern))
]


def test_every_suite_has_configs() -> None:
    assert {suite for suite, _ in CONFIGS} == set(_NEEDS) and len(CONFIGS) >= 20


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("suite", "path"), CONFIGS, ids=lambda value: getattr(value, "stem", value))
def test_a_config_of_a_suite_trains(suite: str, path: Path, tmp_path: Path) -> None:
    needed = "pymunk" if "pistonball" in path.stem else _NEEDS[suite]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    main, create = small(path)
    main["env"] = deep_merge(main["env"], _SHORT[suite])
    key = "epoch_per_collect" if is_on_policy(create) else "update_per_collect"
    main["policy"]["learn"][key] = 1
    run = serial_pipeline_onpolicy if is_on_policy(create) else serial_pipeline

    policy = run((main, create), seed=0, exp_name=str(tmp_path / "run"), max_env_step=200)

    assert policy.learn_mode.state_dict()["model"]
    assert '"train_iter": 0,' not in (tmp_path / "run/result.json").read_text()
