"""Train from a config with central inference: actors step envs, inference servers choose, this process learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ding_like.config import read_config
from ding_like.entry.learners import RunArguments
from ding_like.entry.seed_plan import SeedPlan, described, plan_run
from ding_like.entry.serial_entry import NO_LIMIT, load_overrides
from ding_like.entry.system_plan import SystemConfig, plan_line
from ding_like.policy import Policy
from ding_like.utils.log import shown_as_by_the_command


@shown_as_by_the_command()
def seed_pipeline(
    input_cfg: SystemConfig,
    seed: int = 0,
    *,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
) -> Policy:
    """Train with central inference until a limit or `env.stop_value` is reached, and return the policy.

    A serial config of an off-policy policy (or IMPALA) runs as it is; `system_config['seed']` says how many actors and
    inference servers there are, and what they do (docs/seed.md). `overrides` are `section.key=value` strings, also
    `system.seed.key=value`; `load_path` is a checkpoint to start from. Source: the SEED architecture (Espeholt et al.
    2020). Raises ConfigError with every fault of the config at once, RunnerLostError, with a point saved, where actors
    or servers are lost for good, and what one failed with before it worked.
    """
    plan = plan_run(
        input_cfg,
        RunArguments("seed", seed, max_train_iter, max_env_step, dynamic_seed),
        overrides=[*overrides, *load_overrides(load_path)],
        exp_name=exp_name,
    )
    return _train(plan)


def resume_seed(exp_name: str, arguments: RunArguments) -> Policy:
    """Go on with an interrupted run from its newest valid saved point, and return the policy.

    `arguments` are those that were saved with the point; see `resume_pipeline`.
    """
    config_file = Path(exp_name) / "total_config.py"
    file = read_config(config_file)
    given = (file.main_config, file.create_config, arguments.system or {})
    plan = plan_run(given, arguments, exp_name=exp_name, source=str(config_file), resumes=True)
    return _train(plan, resumes=True)


def dry_run(
    input_cfg: SystemConfig, seed: int = 0, *, overrides: Sequence[str] = (), exp_name: str | None = None
) -> list[str]:
    """Return lines that say who would do what; nothing is started. Raises as `seed_pipeline` for what cannot be."""
    arguments = RunArguments("seed", seed, NO_LIMIT, NO_LIMIT, dynamic_seed=True)
    plan = plan_run(input_cfg, arguments, overrides=overrides, exp_name=exp_name)
    return [plan_line(plan), *described(plan)]


def _train(plan: SeedPlan, *, resumes: bool = False) -> Policy:
    trainer = plan.settings.class_of("trainer").of_plan(plan, resumes=resumes)
    policy: Policy = trainer.start().policy
    return policy
