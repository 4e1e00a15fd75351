"""Build the parts of a run from a compiled config: env managers, policies and what is made of these are made here only.

A role is built from a few calls, and a pipeline says which roles there are:

    env = build_collect_env(cfg, seed=seed)
    fitted = fit_policy_config(cfg.policy, env)
    policy = build_policy(fitted, seed=seed, cuda=cfg.policy.cuda, modes=["collect", "command"])
    collector = build_collector(cfg, env, policy, seed=seed)
"""

from ding_like.pipeline.build.envs import (
    EnvSetting,
    build_collect_env,
    build_eval_env,
    build_single_env,
    check_env_setting,
    one_player_sees,
)
from ding_like.pipeline.build.opponents import Opponents
from ding_like.pipeline.build.parts import build_buffer, build_collector, build_evaluator, build_learner
from ding_like.pipeline.build.policies import build_policy
from ding_like.pipeline.build.process import prepare_worker, training_process
from ding_like.pipeline.build.row_schema import rows_schema
from ding_like.pipeline.build.serial import Components, build_serial
from ding_like.pipeline.build.spaces import fit_policy_config

__all__ = [
    "Components",
    "EnvSetting",
    "Opponents",
    "build_buffer",
    "build_collect_env",
    "build_collector",
    "build_eval_env",
    "build_evaluator",
    "build_learner",
    "build_policy",
    "build_serial",
    "build_single_env",
    "check_env_setting",
    "fit_policy_config",
    "one_player_sees",
    "prepare_worker",
    "rows_schema",
    "training_process",
]
