"""Policies with central inference: which train, and one actor in rounds, which is the serial run, bit for bit."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.tensors import state_of
from ding_like.config import compile_config, read_config
from ding_like.entry.training import load_config
from ding_like.errors import ConfigError
from ding_like.pipeline.envs import build_eval_env, build_policy, fit_policy_config
from ding_like.pipeline.settings import SeedSettings, read_seed
from tests.pipeline.ray import runs
from tests.pipeline.ray.test_equality import assert_equal
from tests.pipeline.seed import runs as seed_runs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

DIZOO = Path(__file__).parents[3] / "dizoo"
CONFIGS = {path.stem.removesuffix("_config"): path for path in sorted(DIZOO.rglob("*_config.py"))}
TRAINED = "cartpole_dqn"
TRAINED_SLOWLY = (
    "cartpole_dqn_per cartpole_c51 cartpole_qrdqn cartpole_iqn cartpole_fqf cartpole_rainbow "
    "cartpole_r2d2 cartpole_hidden_r2d2 cartpole_drqn cartpole_impala cartpole_sac pendulum_ddpg pendulum_td3 "
    "pendulum_sac two_step_qmix two_step_masac_discrete"
).split()
_SMALL = {
    "env": {"collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1},
    "policy": {"random_collect_size": 0},
}


def small(name: str) -> Any:
    """Return a shipped config with few envs, a small batch and no evaluation on the way."""
    file = read_config(CONFIGS[name])
    main = json.loads(json.dumps(file.main_config))
    main["env"] |= _SMALL["env"] | {"stop_value": 1e9}
    main["policy"] |= _SMALL["policy"]
    main["policy"]["learn"]["batch_size"] = 4
    main["policy"].setdefault("eval", {})["evaluator"] = {"eval_freq": 1000}
    return main, file.create_config


@pytest.mark.parametrize("name", [TRAINED, *(pytest.param(name, marks=pytest.mark.slow) for name in TRAINED_SLOWLY)])
def test_a_shipped_config_trains_by_central_inference(name: str) -> None:
    cfg = load_config(small(name), seed=0, exp_name="before")
    before = build_policy(fit(cfg), seed=0)

    policy = seed_runs.seed(small(name), SeedSettings(), max_train_iter=6)

    found = runs.result("seed")
    assert found["train_iter"] >= 6 and found["env_step"] > 0 and np.isfinite(found["eval_value"])
    first, last = state_of(before.collect_mode), state_of(policy.collect_mode)
    assert first.keys() == last.keys() and any(not torch.equal(value, last[name]) for name, value in first.items())


def fit(cfg: Any) -> dict[str, Any]:
    with closing(build_eval_env(cfg, seed=0)) as envs:
        return fit_policy_config(cfg.policy, envs)


def test_what_cannot_act_from_afar_is_refused_with_the_mode_that_runs_it() -> None:
    said = "policy.type .*(on-policy|makes its rows by its networks).*`ding -m serial"
    for name in (
        "cartpole_ppo",
        "cartpole_a2c",
        "cartpole_pg",
        "cartpole_ppg",
        "cartpole_ppo_offpolicy",
        "cartpole_ppg_offpolicy",
    ):
        file = read_config(CONFIGS[name])
        cfg = compile_config(file.main_config, file.create_config, save=False)

        with pytest.raises(ConfigError, match=said):
            read_seed({}, cfg)


UPDATES = 200


@pytest.mark.parametrize(
    "configs",
    [runs.dqn, *(pytest.param(each, marks=pytest.mark.slow) for each in (seed_runs.rainbow, runs.sac, seed_runs.r2d2))],
    ids=["dqn", "rainbow", "sac", "r2d2"],
)
def test_one_actor_and_one_server_in_rounds_equal_serial(configs: Any) -> None:
    alone = runs.serial(configs(), seed=3, max_train_iter=UPDATES, exp_name="alone")

    by_servers = seed_runs.seed(configs(), seed_runs.one(), seed=3, max_train_iter=UPDATES)

    assert_equal(alone, by_servers)
    found, expected = runs.result("seed"), runs.result("alone")
    assert found["train_iter"] == expected["train_iter"] >= UPDATES
    assert found["env_step"] == expected["env_step"] and found["eval_value_raw"] == expected["eval_value_raw"]


def test_a_policy_with_row_code_of_its_own_is_built_in_the_actor_and_equals_serial() -> None:
    def configs() -> Any:
        main, create = runs.dqn()
        return main, {**create, "policy": dict(type="tests.pipeline.seed.test_remote_actors:OwnRows")}

    alone = runs.serial(configs(), seed=3, max_train_iter=40, exp_name="alone")
    by_servers = seed_runs.seed(configs(), seed_runs.one(), seed=3, max_train_iter=40)

    assert_equal(alone, by_servers)
