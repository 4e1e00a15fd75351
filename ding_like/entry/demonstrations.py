"""Collect demonstrations with a trained policy."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.agent.checkpoints import find_checkpoint, run_folder
from ding_like.agent.description import allow_saved_config
from ding_like.config import FrozenConfig, compile_config, to_plain
from ding_like.config.schema import DATA_FILE
from ding_like.data.data_files import HDF5_NAMES, MINARI, write_data
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.rows import adapt_eval_mode
from ding_like.entry.eval_entry import loaded_policy
from ding_like.entry.training import InputConfig, load_config
from ding_like.envs import get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import is_game
from ding_like.pipeline.envs import EnvSetting, build_collect_env
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import versions
from ding_like.report.experiment import check_experiment
from ding_like.report.summary import env_name
from ding_like.types import State
from ding_like.utils.checkpoint import load_state
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.seeding import make_rng
from ding_like.worker.recorder import play_demonstrations

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

NUM_EPISODES = 10


class Expert(NamedTuple):
    """Trained policy: its config, and the weights of a checkpoint."""

    cfg: FrozenConfig
    state: State | None  # None: the weights of the model that is given
    path: Path | None = None  # of the checkpoint
    model: torch.nn.Module | None = None


@shown_as_by_the_command()
def collect_demonstrations(
    exp_or_config: InputConfig,
    *,
    num_episodes: int = NUM_EPISODES,
    out: str | Path | None = None,
    checkpoint: str | Path = "best",
    seed: int | None = None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    import_names: Sequence[str] = (),
    info: Mapping[str, Any] | None = None,
) -> Demonstrations:
    """Play whole episodes with a trained policy, without exploration, write their steps to a file, and return them.

    `exp_or_config` is the folder of a run, whose `checkpoint` is "best", "last" or a file; or a config file or
    (main_config, create_config), with a checkpoint's file. The envs are those that a run of the config collects in, and
    each plays its share of the episodes. `out` is by default `expert_data.safetensors` in the run's folder, and may be
    a file .hdf5 in D4RL's form, or `minari:ID`. `seed` is of the episodes, by default the run's. `env_setting` and
    `model` must be given again if the run was started with them. `info` joins what the file records of its origin.
    Raises ConfigError for a folder without a run, CheckpointError without a checkpoint.
    """
    if num_episodes < 1:
        raise ConfigError(f"num_episodes is {num_episodes}; give a number of episodes from 1.")
    path = _data_file(out, exp_or_config)
    expert = expert_of(exp_or_config, checkpoint, model=model, import_names=import_names)
    return play_and_save(path, expert, num_episodes, seed, env_setting, info or {})


@shown_as_by_the_command()
def collect_episodic_demo_data(
    input_cfg: InputConfig,
    seed: int,
    collect_count: int,
    expert_data_path: str | Path,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    state_dict: State | None = None,
    state_dict_path: str | Path | None = None,
) -> None:
    """Write `collect_count` whole episodes of a policy to the file `expert_data_path`, as `collect_demonstrations`.

    The weights are those of `state_dict`, else of the checkpoint at `state_dict_path`, else of `model`.
    """
    if collect_count < 1:
        raise ConfigError(f"collect_count is {collect_count}, expected a number of episodes from 1.")
    if state_dict is None and state_dict_path is None and model is None:
        raise ConfigError("collect_episodic_demo_data got no weights; give state_dict_path=EXP/ckpt/ckpt_best.pth.tar.")
    path = None if state_dict is not None or state_dict_path is None else Path(state_dict_path)
    cfg = load_config(input_cfg, seed=seed, save=False, renew_dir=False, builds_model=model is None)
    expert = Expert(cfg, state_dict if path is None else load_state(path), path, model)
    play_and_save(Path(expert_data_path), expert, collect_count, seed, env_setting, {})


def expert_of(
    exp_or_config: InputConfig,
    checkpoint: str | Path = "best",
    *,
    model: torch.nn.Module | None = None,
    import_names: Sequence[str] = (),
) -> Expert:
    """Return the trained policy of a run's folder, or of a config and a checkpoint's file."""
    given = exp_or_config
    if isinstance(given, (str, Path)) and Path(given).suffix != ".py":
        if Path(given).is_file():  # a checkpoint inside a run's folder
            given, checkpoint = run_folder(given), given
        folder = Path(given)
        check_experiment(folder)
        path = find_checkpoint(folder, checkpoint)
        main, create = allow_saved_config(folder, import_names)
        # What the expert itself learned from need not be there any more.
        main = {name: section for name, section in main.items() if name not in ("reward_model", "expert")}
        create = {name: section for name, section in create.items() if name != "reward_model"}
        source = str(folder / "total_config.py")
        cfg = compile_config(main, create, source=source, renew_dir=False, save=False, quiet=True)
        return Expert(cfg, load_state(path), path, model)
    cfg = load_config(given, seed=None, save=False, renew_dir=False, builds_model=model is None)
    if checkpoint in ("best", "last"):
        raise ConfigError(
            "a config names no weights: give the folder of its run, or checkpoint=EXP/ckpt/ckpt_best.pth.tar too."
        )
    return Expert(cfg, load_state(checkpoint), Path(checkpoint), model)


def _data_file(out: str | Path | None, exp_or_config: InputConfig) -> Path:
    if out is None:
        if not isinstance(exp_or_config, (str, Path)) or Path(exp_or_config).suffix == ".py":
            raise ConfigError("there is no run's folder to write to: give out='FILE.safetensors'.")
        return run_folder(exp_or_config) / DATA_FILE
    path = Path(out) / DATA_FILE if Path(out).is_dir() else Path(out)
    if path.suffix not in (".safetensors", *HDF5_NAMES) and not str(out).startswith(MINARI):
        raise ConfigError(
            f"demonstrations are a .safetensors file, or .hdf5 or minari:ID, not '{out}': give "
            f"{path.with_suffix('')}.safetensors"
        )
    return path


def play_and_save(
    path: Path,
    expert: Expert,
    num_episodes: int,
    seed: int | None,
    env_setting: EnvSetting | None,
    info: Mapping[str, Any],
) -> Demonstrations:
    """Play the episodes, write them with their origin to a file, and return them."""
    cfg, seed = expert.cfg, expert.cfg.seed if seed is None else seed
    if is_game(cfg):
        raise ConfigError("demonstrations are of one player, and this run's env is a game of several.")
    env_fn, env_cfgs, _ = env_setting or get_vec_env_setting(cfg.env, eval_=False)
    setting: EnvSetting = env_fn, list(env_cfgs)[:num_episodes], []  # each env plays one episode at least
    with training_process(), closing(build_collect_env(cfg, seed=seed, env_setting=setting)) as manager:
        policy, statistics = loaded_policy(cfg, manager, "eval", seed, expert.model, expert.state)
        actor = adapt_eval_mode(policy.eval_mode).actor
        columns = play_demonstrations(manager, actor, num_episodes, make_rng(seed, "demonstrations"))
    names = [str(each["type"]) for each in statistics[0]] if statistics else []
    if names:
        logger.warning(
            "the steps are normalised by what %s of the expert's run learned; a policy that learns from them "
            "normalises by what its own run learns. Train both without it.",
            " and ".join(names),
        )
    made = Demonstrations(columns, source=str(path))
    made = replace(made, info={**_origin(expert, seed, names, made), **info})
    write_data(made, path)
    logger.info("wrote %s: %s", path, describe_returns(made))
    return made


def _origin(expert: Expert, seed: int, statistics: Sequence[str], made: Demonstrations) -> dict[str, Any]:
    cfg = expert.cfg
    return {
        "env_id": env_name(cfg.env),
        "wrappers": to_plain(cfg.env.get("wrappers") or []),
        "wrapper_statistics": list(statistics),  # of these, as the checkpoint holds them, were in force
        "policy": str(cfg.policy.type),
        "returns": [float(each) for each in made.returns],
        "checkpoint": None if expert.path is None else str(expert.path),
        "checkpoint_sha256": None if expert.path is None else file_hash(expert.path),
        "config_sha256": config_hash(cfg),
        "seed": seed,
        "versions": versions(),
    }


def file_hash(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def config_hash(*parts: Any) -> str:  # Any: configs, and plain values
    """Return the SHA-256 of what compiled configs and plain values hold, without the folder of the run."""
    plain = [to_plain(each) if isinstance(each, Mapping) else each for each in parts]
    for each in plain:
        if isinstance(each, dict):
            each.pop("exp_name", None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=repr).encode()).hexdigest()


def describe_returns(found: Demonstrations) -> str:
    """Return how many episodes and steps there are, and their returns."""
    returns = found.returns
    episodes = f"{len(returns)} episode{'s' * (len(returns) > 1)}"
    spread = f" ({returns.min():.4g} to {returns.max():.4g})" if len(returns) > 1 else ""
    return f"{episodes} of {len(found):,} steps, mean return {returns.mean():.4g}{spread}"
