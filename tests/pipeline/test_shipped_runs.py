"""Every shipped config trains: in one process, and in parallel with the same policy, rows and buffer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import deep_merge, read_config, to_plain
from ding_like.entry import serial_pipeline, serial_pipeline_offline, serial_pipeline_onpolicy
from ding_like.policy import get_policy_cls
from tests import experts
from tests.pipeline.parallel.test_units_train import running

ROOT = Path(__file__).parents[2] / "dizoo"
# Envs that every set-up has; games and labelled images have pipelines and tests of their own.
# Those that learn from an expert, which their own tests bring: tests/entry/test_data_set.py, test_dagger.py.
FROM_AN_EXPERT = (
    *("cartpole_bc_config", "cartpole_dagger_config", "cartpole_dt_config", "pendulum_bc_config"),
    *("pendulum_iql_config", "pendulum_td3_bc_config"),
)
CONFIGS = [
    path
    for path in (
        *sorted((ROOT / "classic_control").rglob("config/*_config.py")),
        *sorted((ROOT / "multi_agent").rglob("config/two_step*_config.py")),
    )
    if path.stem not in FROM_AN_EXPERT and "serial_pipeline_offline" not in path.read_text()
]
OFFLINE = [path for path in ROOT.glob("classic_control/*/config/*.py") if "serial_pipeline_offline" in path.read_text()]
# Of suites that an extra brings: what parallel collecting adds does not depend on the env.
OF_EXTRAS = sorted(path for suite in ("box2d", "bitflip") for path in (ROOT / suite).rglob("config/*_config.py"))
# Small enough for a second: few rows before the first update, small batches, no evaluation on the way.
_ENV = dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
_BUDGET = 600  # env steps
_BUDGET_OF_EXTRAS = 200


def small(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both parts of a shipped config with small numbers."""
    file = read_config(path)
    main, create = to_plain(file.main_config), to_plain(file.create_config)
    collect = main["policy"].get("collect", {})
    changes: dict[str, Any] = dict(learn=dict(batch_size=16), eval=dict(evaluator=dict(eval_freq=10_000)))
    if main["policy"].get("random_collect_size"):
        changes["random_collect_size"] = 40
    if collect.get("n_episode"):
        changes["collect"] = dict(n_episode=4)
    elif collect.get("n_sample", 0) > 128:
        changes["collect"] = dict(n_sample=128)
    if collect.get("data_path"):
        changes["collect"] = dict(data_path=str(experts.written(collect["data_path"])))
        if path not in OFFLINE:
            changes["learn"]["pretrain_updates"] = 10
    own: dict[str, Any] = {}
    if data := main.get("reward_model", {}).get("data_path"):
        own["reward_model"] = dict(data_path=str(experts.written(data)))
    return deep_merge(main, dict(env=_ENV, policy=changes, **own)), create


def is_on_policy(create: dict[str, Any]) -> bool:
    """Tell whether the policy of a config learns only from its own newest rows."""
    return bool(get_policy_cls(create["policy"]).default_config().on_policy)


def params(paths: Iterable[Path]) -> list[Any]:
    """Return configs as parameters; the suite runs those of DQN and PPO on CartPole."""
    quick = ("cartpole_dqn_config", "cartpole_ppo_config")
    return [pytest.param(path, id=path.stem, marks=() if path.stem in quick else pytest.mark.slow) for path in paths]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", params((*CONFIGS, *OF_EXTRAS)))
def test_a_shipped_config_trains_in_one_process(path: Path, tmp_path: Path) -> None:
    main, create = small(path)
    if path in OF_EXTRAS:
        # Engines of physics are slow, and a run ends with 20 whole episodes.
        main["env"]["max_episode_steps"] = 25
    run = serial_pipeline_onpolicy if is_on_policy(create) else serial_pipeline

    budget = _BUDGET_OF_EXTRAS if path in OF_EXTRAS else _BUDGET
    policy = run((main, create), seed=0, exp_name=str(tmp_path / "run"), max_env_step=budget)

    assert policy.learn_mode.state_dict()["model"]
    assert '"train_iter": 0,' not in (tmp_path / "run/result.json").read_text()


@pytest.mark.parametrize("path", params(OFFLINE))
def test_a_shipped_config_trains_from_a_data_set(path: Path, tmp_path: Path) -> None:
    serial_pipeline_offline(small(path), seed=0, exp_name=str(tmp_path / "run"), max_iter=5)

    assert '"train_iter": 5,' in (tmp_path / "run/result.json").read_text()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", params(CONFIGS))
def test_a_shipped_config_trains_in_parallel(path: Path, tmp_path: Path) -> None:
    with running(tmp_path, small(path), max_env_step=_BUDGET) as run:
        result = run.train()

    assert result["train_iter"] > 0
    assert run.core.env_step >= _BUDGET
