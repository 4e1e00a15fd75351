"""Play a trained policy: evaluate a checkpoint, or collect training rows with it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ding_like.agent.video import filmable, make_video
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.records import EvalResult
from ding_like.data.rows import adapt_eval_mode
from ding_like.data.segment_file import save_columns
from ding_like.entry.training import InputConfig, load_config
from ding_like.envs import get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.envs import EnvSetting, build_collect_env, build_eval_env, build_policy, fit_policy_config
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import origin_of
from ding_like.pipeline.statistics import load_agent
from ding_like.report.scores import bootstrap_interval, by_agent, interval
from ding_like.types import EnvManager, State
from ding_like.utils.checkpoint import load_state
from ding_like.utils.files import atomic_write
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.seeding import make_rng
from ding_like.worker import SampleSerialCollector
from ding_like.worker.evaluator import play_episodes

if TYPE_CHECKING:
    import torch


logger = logging.getLogger(__name__)


@shown_as_by_the_command()
def eval(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    state_dict: State | None = None,
    load_path: str | None = None,
    replay_path: str | None = None,
    *,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
) -> float:
    """Play `env.n_evaluator_episode` episodes and return the mean return.

    The weights are those of `state_dict`, else of the checkpoint at `load_path`, else of `model`, else fresh ones.
    Writes nothing but what is asked for: the video of a typical episode, `agent.gif` in the folder `replay_path`, and
    the JSON file `out` with mean, 95 % interval and returns.
    """
    cfg = load_config(
        input_cfg, seed=seed, overrides=overrides, save=False, renew_dir=False, builds_model=model is None
    )
    with training_process():
        if state_dict is None and load_path is not None:
            state_dict = load_state(load_path)
        setting = env_setting or get_vec_env_setting(cfg.env, collect=False)
        with closing(build_eval_env(cfg, seed=seed, env_setting=setting)) as manager:
            policy, statistics = loaded_policy(cfg, manager, "eval", seed, model, state_dict)
            mode = adapt_eval_mode(policy.eval_mode)
            if replay_path is not None:
                film, make_env = Path(replay_path) / "agent.gif", filmable(setting[2][0], setting[0])
                make_video(mode, make_env, film, seed=seed, statistics=statistics)
            result = play_episodes(manager, mode, cfg.env.n_evaluator_episode, rng=make_rng(seed, "eval"))
    ends = bootstrap_interval(result.returns)
    episodes = f"{len(result.returns)} episode{'s' * (len(result.returns) > 1)}"
    logger.info("seed %d: mean return %.4g %s (95%% CI of %s)", seed, result.mean, interval(*ends), episodes)
    if agents := by_agent(result.metrics):
        logger.info("by agent: %s", agents)
    if out is not None:
        source = str(input_cfg) if isinstance(input_cfg, (str, Path)) else ""
        origin = asdict(origin_of(cfg, mode="eval", source=source, env_fn=env_setting and env_setting[0]))
        _write(Path(out), result, {**origin, "seed": seed, "checkpoint": load_path}, ends)
    return result.mean


def evaluation_file(checkpoint: str | Path, *, seed: int) -> Path:
    """Return where the command writes what a checkpoint is worth: beside it, a file for each seed."""
    path = Path(checkpoint)
    return path.with_name(f"{path.name.removesuffix('.pth.tar').removesuffix('.pt')}.eval_seed{seed}.json")


def _write(path: Path, result: EvalResult, origin: Mapping[str, Any], ends: list[float]) -> None:
    found = {
        "eval_value": result.mean,
        "interval95": list(ends),
        "episodes": len(result.returns),
        "eval_value_raw": list(result.returns),
        "lengths": list(result.lengths),
        "eval_metrics": dict(result.metrics),
        "finish_time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    try:
        with atomic_write(path) as file:
            file.write(json.dumps({**found, **origin}, indent=2).encode())
    except OSError as error:  # a folder of another user, a full disk: the log has the result
        logger.warning("%s is not written: %s", path, error)
    else:
        logger.info("wrote %s", path)


def loaded_policy(
    cfg: FrozenConfig,
    manager: EnvManager,
    mode: Literal["eval", "collect"],
    seed: int,
    model: torch.nn.Module | None,
    state_dict: State | None,
) -> tuple[Any, Sequence[Any]]:
    """Return (the policy with the weights of a checkpoint in one mode, the states of the wrappers saved with them)."""
    modes = [mode, "command"] if mode == "collect" else [mode]  # how much a collector explores
    policy: Any = build_policy(fit_policy_config(cfg.policy, manager), seed=seed, model=model, modes=modes)
    statistics = [] if state_dict is None else load_agent(getattr(policy, f"{mode}_mode"), state_dict)
    if any(statistics):
        manager.adopt_wrapper_states(statistics)
    return policy, statistics


@shown_as_by_the_command()
def collect_demo_data(
    input_cfg: InputConfig,
    seed: int,
    collect_count: int,
    expert_data_path: str | Path,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    state_dict: State | None = None,
    state_dict_path: str | Path | None = None,
) -> None:
    """Write `collect_count` training rows of a policy's collect mode to the file `expert_data_path`.

    The weights are those of `state_dict`, else of the checkpoint at `state_dict_path`, else of `model`. The file holds
    columns (safetensors), which `load_data` of a buffer and `load_columns` of `ding_like.data.segment_file` read.
    Raises ConfigError for fewer than one row, without weights, and for a policy whose rows are no columns.
    """
    if collect_count < 1:
        raise ConfigError(f"collect_count is {collect_count}, expected 1 or more.")
    if state_dict is None and state_dict_path is not None:
        state_dict = load_state(state_dict_path)
    if state_dict is None and model is None:
        raise ConfigError("collect_demo_data got no weights; give state_dict_path=EXP/ckpt/ckpt_best.pth.tar.")
    cfg = load_config(input_cfg, seed=seed, save=False, renew_dir=False, builds_model=model is None)
    with training_process():
        with closing(build_collect_env(cfg, seed=seed, env_setting=env_setting)) as manager:
            policy, _ = loaded_policy(cfg, manager, "collect", seed, model, state_dict)
            rng, exp_name = make_rng(seed, "collector"), cfg.exp_name
            section = {**SampleSerialCollector.config, "type": "sample"}
            collector = SampleSerialCollector(section, manager, policy.collect_mode, exp_name=exp_name, rng=rng)
            rows = collector.collect(n_sample=collect_count)
    if not isinstance(rows, TransitionBatch):
        raise ConfigError(f"policy '{cfg.policy.type}' makes rows of objects, which have no place in columns.")
    save_columns(expert_data_path, rows.columns)
    logger.info("wrote %d rows of '%s' to %s", len(rows), cfg.policy.type, expert_data_path)
