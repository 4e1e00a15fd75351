"""Learn from an expert, with all that comes before: train the expert, have it play demonstrations, learn from them.

A stage whose result is there is left out. `stages.json` in the run's folder records, for each stage, a hash of what it
was made of; where that has changed the stage runs again, in a folder of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ding_like.agent.checkpoints import find_checkpoint, run_folder
from ding_like.agent.description import allow_saved_config
from ding_like.agent.loaded import load as load_agent
from ding_like.comm.learner_group import in_environment
from ding_like.config import FrozenConfig, deep_merge, to_plain
from ding_like.config.tree import get_path, literal
from ding_like.data.data_files import MINARI, read_data
from ding_like.data.demonstrations import Demonstrations
from ding_like.data.segment_file import columns_info, is_column_file
from ding_like.entry.demonstrations import config_hash, describe_returns, expert_of, file_hash, play_and_save
from ding_like.entry.modes import MODES, close_match, load, shipped_configs
from ding_like.entry.serial_entry import number_of_learners
from ding_like.entry.train import resume_pipeline
from ding_like.entry.training import (
    NO_LIMIT,
    InputConfig,
    Plan,
    RunArguments,
    check_demonstrations,
    check_limits,
    demonstrations_of,
    has_expert,
    load_config,
    make_plan,
    read_given,
    refuse_in_child,
    serial_mode_of,
)
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.components import check_reward_model
from ding_like.pipeline.envs import (
    EnvSetting,
    action_shape,
    build_policy,
    build_single_env,
    fit_policy_config,
    obs_shape,
)
from ding_like.pipeline.record import resume_store
from ding_like.policy import Policy
from ding_like.report.experiment import METRICS_FILE
from ding_like.report.scores import measure
from ding_like.report.summary import env_name
from ding_like.reward_model import get_reward_model_cls, reward_model_section
from ding_like.types import EnvManager, Json
from ding_like.utils.files import fresh_names, write_text
from ding_like.utils.log import shown_as_by_the_command

logger = logging.getLogger(__name__)

STAGES_FILE = "stages.json"
_STAGE = "stage"  # in the `info` of demonstrations: the hash of what they were made of
_LOOK: dict[str, Any] = {"save": False, "renew_dir": False, "quiet": True}  # at a config, before a run has it
_NUM_CHECKPOINTS = 6  # that play ranked demonstrations, at most
# Column by which a reward model ranks episodes -> what plays them, for the console.
_PLAYERS = {
    None: "{} plays {} episodes",
    "rank": "checkpoints beside {} play {} episodes each",
    "noise": "{} plays {} episodes with each share of random actions",
}


class _Record:
    """File that records of what the trainings of a run's stages were made, and their folders."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STAGES_FILE

    def of(self, stage: str) -> dict[str, Path]:
        """Return the folders of a stage's trainings by the hash of what they were made of, the newest last."""
        return {each["hash"]: Path(each["folder"]) for each in self._read().get(stage, [])}

    def add(self, stage: str, **training: Json) -> None:
        """Record that a training begins; it replaces one of the same hash."""
        found = self._read()
        others = [each for each in found.get(stage, []) if each["hash"] != training["hash"]]
        write_text(self._path, json.dumps({**found, stage: [*others, training]}, indent=2))

    def _read(self) -> dict[str, list[dict[str, Json]]]:
        try:
            found: dict[str, list[dict[str, Json]]] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigError(f"{self._path} is damaged: delete it, and all stages run again.") from error
        return found


@dataclass(frozen=True)
class _Given:
    """Arguments of a run in stages; `input_cfg` with `overrides` is the config of the policy that learns."""

    input_cfg: InputConfig
    overrides: Sequence[str]
    arguments: RunArguments
    env_setting: EnvSetting | None = None
    model: torch.nn.Module | None = None
    expert_model: torch.nn.Module | None = None
    load_path: str | None = None


class Stages:
    """Stages of one run: an expert is trained and plays demonstrations, of which a policy learns."""

    def __init__(self, given: _Given, cfg: FrozenConfig, key: str, data: str) -> None:
        """Take the compiled config, and the file of demonstrations that its `key` names."""
        self._given, self._cfg, self._key, self._data = given, cfg, key, Path(data)
        self._folder = Path(cfg.exp_name)
        self._record = _Record(self._folder)
        self._trains_expert = cfg.expert.checkpoint in ("best", "last")
        self._number, self._total = 0, 3 if self._trains_expert else 2

    def run(self) -> Policy:
        """Run the stages that are missing, and return the policy. Raises ConfigError before any of them begins."""
        self._check()
        try:
            expert, digest = self._train_expert() if self._trains_expert else (None, "")
            self._collect(expert, digest)
            return self._learn()
        except (KeyboardInterrupt, SystemExit):
            logger.info("interrupted in stage %d of %d: the same command goes on with it", self._number, self._total)
            raise

    def _check(self) -> None:
        """Raise ConfigError for a policy that could not learn from the expert, once it would be trained."""
        given, cfg, expert = self._given, self._cfg, self._cfg.expert
        with _seen(cfg, given.env_setting) as env:
            fitted = fit_policy_config(cfg.policy, env)
            with torch.random.fork_rng(devices=[]):
                check_reward_model(cfg, build_policy(fitted, model=given.model, modes=["learn"]))
            own = obs_shape(env.observation_space), action_shape(env.action_space)
        if expert.config and given.env_setting is None:
            other = load_config(expert_input(expert.config), seed=expert.seed, **_LOOK)
            with _seen(other, None) as env:
                found = obs_shape(env.observation_space), action_shape(env.action_space)
            if found != own:
                raise ConfigError(
                    f"the expert plays in {env_name(other.env)}, with observations {found[0]} and actions {found[1]}, "
                    f"and the policy is to learn in {env_name(cfg.env)}, with {own[0]} and {own[1]}: give an "
                    "expert.config of the same env and wrappers."
                )

    def _tell(self, text: str) -> None:
        self._number += 1
        logger.info("stage %d of %d: %s", self._number, self._total, text)

    # ---- the stages

    def _train_expert(self) -> tuple[Path, str]:
        """Return (the folder of the trained expert, the hash of what it was made of)."""
        cfg, given = self._cfg.expert, self._given
        input_cfg, overrides = expert_input(cfg.config), []
        if cfg.stop_value is not None:
            overrides.append(f"env.stop_value={literal(cfg.stop_value)}")
        seed = cfg.seed
        asked: dict[str, Any] = {"seed": seed, "overrides": overrides, "builds_model": given.expert_model is None}
        own = load_config(input_cfg, **asked, **_LOOK)
        check_demonstrations(own)
        if self._needs_checkpoints:  # they are of its progress, so one is saved at each evaluation
            overrides.append(f"policy.learn.learner.hook.save_ckpt_after_iter={own.policy.eval.evaluator.eval_freq}")
        limit = NO_LIMIT if cfg.env_step is None else cfg.env_step
        arguments = RunArguments(serial_mode_of(own), seed, max_env_step=limit)
        digest = config_hash(own, arguments._asdict(), overrides)

        def plan(folder: str) -> Plan[None]:
            to_make: dict[str, Any] = {"overrides": overrides, "exp_name": folder, "renew_dir": False}
            return make_plan(input_cfg, arguments, **to_make, env_setting=given.env_setting, model=given.expert_model)

        what = f"the expert, {own.policy.type} on {env_name(own.env)}"
        folder, _ = self._trained("expert", what, self._folder / "expert", digest, plan, given.expert_model)
        self._warn_of_weak_expert(folder, own)
        return folder, digest

    def _warn_of_weak_expert(self, folder: Path, own: FrozenConfig) -> None:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        best, stop = result.get("best_eval"), own.env.stop_value
        if best is not None and best < stop < 1e9:
            logger.warning(
                "the expert's best evaluation is %s, below its stop_value %s: the policy learns from what there is. "
                "More: expert.env_step, expert.config.",
                measure(best),
                measure(stop),
            )

    def _collect(self, expert: Path | None, digest: str) -> None:
        """Have the expert play the demonstrations, unless they are there and are its own."""
        cfg, given = self._cfg.expert, self._given
        seed = cfg.seed
        checkpoint = Path(cfg.checkpoint) if expert is None else find_checkpoint(expert, cfg.checkpoint)
        if not checkpoint.is_file():
            raise CheckpointError(
                f"there is no checkpoint '{checkpoint}', which expert.checkpoint names: give a file, or train the "
                "expert of expert.config with expert.checkpoint=best."
            )
        stage = config_hash(digest, file_hash(checkpoint), self._rank_column, cfg.num_episodes, seed)
        is_there = self._data.is_file()
        if is_there and columns_info(self._data).get(_STAGE) == stage:
            found = describe_returns(read_data(self._data))
            self._tell(f"demonstrations: there already, {self._data}, {found}")
            return
        why = "; those in the file are of another expert, seed or number" if is_there else ""
        self._tell(f"demonstrations: {_PLAYERS[self._rank_column].format(checkpoint, cfg.num_episodes)}{why}")
        source = expert or (expert_input(cfg.config) if cfg.config else run_folder(checkpoint))
        if self._rank_column is not None:
            ranked = self._play_ranked(source, checkpoint, seed)
            replace(ranked, info={**ranked.info, _STAGE: stage}).save(self._data)
            return
        loaded = expert_of(source, checkpoint, model=given.expert_model)
        play_and_save(self._data, loaded, cfg.num_episodes, seed, given.env_setting, {_STAGE: stage})

    @property
    def _rank_column(self) -> str | None:
        """Column by which the reward model ranks episodes, None for one that ranks none."""
        if (section := reward_model_section(self._cfg)) is None:
            return None
        column: str | None = getattr(get_reward_model_cls(section), "rank_column", None)
        return column

    @property
    def _needs_checkpoints(self) -> bool:
        return self._rank_column == "rank"

    def _play_ranked(self, source: InputConfig, checkpoint: Path, seed: int) -> Demonstrations:
        """Return the episodes of several checkpoints of the expert, or of one with more or less noise.

        Checkpoints are ranked by their mean returns, which stand for a judge.
        """
        config: Any = tuple(allow_saved_config(source)) if isinstance(source, Path) else source
        episodes, envs = self._cfg.expert.num_episodes, load_config(config, seed=seed, **_LOOK).env.evaluator_env_num
        asked = {"n_episode": episodes, "seed": seed, "overrides": [f"env.evaluator_env_num={min(episodes, envs)}"]}
        if not self._needs_checkpoints:
            noisy: Demonstrations = load("ranked_data:collect_noisy")(config, checkpoint, self._data, **asked)
            return noisy
        saved = sorted(checkpoint.parent.glob("iteration_*.pth.tar"), key=lambda path: int(path.name[10:-8]))
        if len(saved) < 2:
            raise CheckpointError(
                f"{checkpoint.parent} has fewer than two checkpoints iteration_*.pth.tar, of which the reward model "
                "ranks the episodes: train the expert longer, expert.env_step."
            )
        places = [round(at * (len(saved) - 1) / (_NUM_CHECKPOINTS - 1)) for at in range(_NUM_CHECKPOINTS)]
        kept = [saved[place] for place in dict.fromkeys(places)]
        # Drawn actions show more of the env's states than the best ones do.
        ranked: Demonstrations = load("ranked_data:collect_ranked")(config, kept, self._data, explores=True, **asked)
        rank, reward = ranked.columns["rank"], ranked.columns["reward"]
        mean_return = np.bincount(rank, reward) / np.bincount(rank[ranked.columns["step"] == 0])
        return replace(ranked, columns={**ranked.columns, "rank": mean_return.argsort().argsort()[rank]})

    def _learn(self) -> Policy:
        """Return the policy that learned from the demonstrations."""
        given, cfg = self._given, self._cfg
        overrides = [*given.overrides, f"{self._key}={self._data}"]
        parts = {"arguments": given.arguments._asdict(), "load_path": given.load_path}
        digest = config_hash(cfg, parts, columns_info(self._data)[_STAGE])

        def plan(folder: str) -> Plan[None]:
            more: dict[str, Any] = {"exp_name": folder, "load_path": given.load_path, "renew_dir": False}
            return make_plan(
                given.input_cfg,
                given.arguments,
                **more,
                overrides=overrides,
                env_setting=given.env_setting,
                model=given.model,
            )

        what = f"the policy, {cfg.policy.type} on {env_name(cfg.env)}"
        folder, policy = self._trained("policy", what, self._folder, digest, plan, given.model)
        return load_agent(folder, which="last", model=given.model).policy if policy is None else policy

    def _trained(
        self,
        stage: str,
        what: str,
        base: Path,
        digest: str,
        plan: Callable[[str], Plan[None]],
        model: torch.nn.Module | None,
    ) -> tuple[Path, Policy | None]:
        """Return (the folder of a finished training, its policy if it has trained now)."""
        before = self._record.of(stage)
        folder, why = before.get(digest), ""
        if folder is not None and (folder / "result.json").is_file():
            self._tell(f"{what}: trained already, in {folder}/")
            return folder, None
        if folder is not None and resume_store(str(folder)).steps():
            self._tell(f"{what}: training goes on in {folder}/")
            resumed = resume_pipeline(str(folder), env_setting=self._given.env_setting, model=model)
            assert isinstance(resumed, Policy), "the run is of this process"
            return folder, resumed
        if before and folder is None:
            why = f"; {[*before.values()][-1]}/ is of another config, seed or limit"
        folder = Path(next(name for name in fresh_names(str(base)) if not _has_begun(Path(name))))
        planned = plan(str(folder))
        self._tell(f"{what}: training in {folder}/{why}")
        run = planned.arguments
        limits = {"max_env_step": run.max_env_step, "max_train_iter": run.max_train_iter}
        self._record.add(stage, hash=digest, folder=str(folder), seed=run.seed, **limits)
        return folder, load(MODES[run.mode].home)(planned).train().policy


@contextmanager
def _seen(cfg: FrozenConfig, env_setting: EnvSetting | None) -> Iterator[EnvManager]:
    """Yield a manager of one of a config's envs, to look at its spaces."""
    env_fn, env_cfgs, _ = env_setting or get_vec_env_setting(cfg.env, eval_=False)
    with closing(build_single_env(EnvFactory(env_cfgs[0], env_fn))) as manager:
        yield manager


def _has_begun(folder: Path) -> bool:
    """Return whether a run has left something in a folder that another one must not mix with its own."""
    metrics = folder / METRICS_FILE
    return (metrics.is_file() and metrics.stat().st_size > 0) or any((folder / "ckpt").glob("*"))


def expert_input(config: Json) -> InputConfig:
    """Return the config that `expert.config` names: a file, a shipped one, or (main_config, create_config)."""
    if not isinstance(config, str):
        if len(config) not in (2, 3) or not all(isinstance(each, dict) for each in config):
            raise ConfigError(
                f"expert.config is {config!r}, expected a file, the name of a shipped config such as 'cartpole_dqn', "
                "or (main_config, create_config)."
            )
        return to_plain(config[0]), to_plain(config[1])
    if Path(config).is_file() or config.endswith(".py"):
        return config
    shipped = shipped_configs()
    if config not in shipped:
        close = close_match(config, sorted(shipped)) or " Such are cartpole_dqn and lunarlander_ppo."
        raise ConfigError(
            f"expert.config is '{config}', which is neither a file nor the name of a shipped config.{close}"
        )
    return str(shipped[config])


# ---- the modes


def run_stages(
    mode: str,
    input_cfg: InputConfig,
    expert_cfg: InputConfig | None = None,
    *,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    expert_model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    collect_data: bool = True,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    learners: int | None = None,
) -> Policy:
    """Run the stages of a mode that are missing, and return the policy.

    `expert_cfg` stands in place of the config's `expert.config`. The limits are of the policy that learns. Without
    `collect_data` the demonstrations must be there. A file of demonstrations that no run of this mode wrote is used as
    it is. The other arguments are those of `serial_pipeline`. Interrupted, the same call goes on where it stopped.
    """
    refuse_in_child()
    check_limits(max_env_step=max_env_step, max_train_iter=max_train_iter)
    if in_environment():
        raise ConfigError(
            f"torchrun started the learners of one run, and mode {mode} trains an expert first: give --learners N, or "
            "run `ding -m serial` by torchrun once the demonstrations are there."
        )
    if isinstance(expert_cfg, (str, Path)):
        overrides = [*overrides, f"expert.config={expert_cfg}"]
    elif expert_cfg is not None:
        main, create, _, _ = read_given(input_cfg, has_system=False)
        input_cfg = deep_merge(main, {"expert": {"config": tuple(expert_cfg)}}), create
    asked: dict[str, Any] = {"seed": seed, "overrides": overrides, "exp_name": exp_name, "builds_model": model is None}
    cfg = load_config(input_cfg, **asked, **_LOOK)
    _check_mode(cfg, mode)
    arguments = RunArguments(serial_mode_of(cfg), seed, max_train_iter, max_env_step)
    arguments = arguments._replace(num_learners=number_of_learners(learners))
    key, files = demonstrations_of(cfg) or ("", [])
    if collect_data and has_expert(cfg) and len(files) == 1 and not _is_of_user(Path(files[0])):
        given = _Given(input_cfg, overrides, arguments, env_setting, model, expert_model, load_path)
        return Stages(given, cfg, key, files[0]).run()
    of_run: dict[str, Any] = {"overrides": overrides, "exp_name": exp_name, "load_path": load_path}
    plan: Plan[None] = make_plan(input_cfg, arguments, **of_run, env_setting=env_setting, model=model)
    policy: Policy = load(MODES[arguments.mode].home)(plan).train().policy
    return policy


def _is_of_user(data: Path) -> bool:
    """Return whether a file of demonstrations is there and was not written by a stage."""
    if str(data).startswith(MINARI):
        return True
    return data.exists() and not (is_column_file(data) and _STAGE in columns_info(data))


_OF_POLICIES = ("serial_sqil", "serial_dqfd", "serial_r2d3")  # modes whose policy itself learns from demonstrations


def _check_mode(cfg: FrozenConfig, mode: str) -> None:
    """Raise ConfigError for a config that is not of the mode."""
    policy, model = cfg.policy.type, get_path(cfg, "reward_model.type")
    if mode in _OF_POLICIES:
        if get_path(cfg, "policy.collect.data_path") is None:
            raise ConfigError(
                f"mode {mode} is of policies that learn from demonstrations, and '{policy}' does not: choose one that "
                "does, or a reward model, as `ding -q policy` and `ding -q reward_model` list them."
            )
    elif not model:
        raise ConfigError(
            f"mode {mode} is of reward models, and the config names none: give reward_model.type=NAME, one of those "
            "that `ding -q reward_model` lists."
        )
    elif mode in ("serial_gail", "serial_trex", "serial_trex_onpolicy") and demonstrations_of(cfg) is None:
        raise ConfigError(
            f"mode {mode} is of reward models that learn from an expert, and '{model}' needs none: run it with "
            "`ding -m serial_reward_model`."
        )
    if mode.endswith("_onpolicy") and not cfg.policy.on_policy:
        raise ConfigError(f"policy '{policy}' is off-policy: run it with `ding -m {mode.removesuffix('_onpolicy')}`.")


_Pipeline = Callable[..., Policy]


def _of_expert(mode: str, name: str) -> _Pipeline:
    """Return the pipeline of a mode, with the arguments that DI-engine's has."""

    @shown_as_by_the_command()
    def pipeline(
        input_cfg: InputConfig,
        expert_cfg: InputConfig | None = None,
        seed: int = 0,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
        expert_model: torch.nn.Module | None = None,
        max_train_iter: int = NO_LIMIT,
        max_env_step: int = NO_LIMIT,
        collect_data: bool = True,
        **given: Any,  # keyword arguments of `run_stages`
    ) -> Policy:
        """Train an expert, have it play demonstrations, and learn from them; see `run_stages`."""
        return run_stages(
            mode,
            input_cfg,
            expert_cfg,
            seed=seed,
            env_setting=env_setting,
            model=model,
            expert_model=expert_model,
            max_train_iter=max_train_iter,
            max_env_step=max_env_step,
            collect_data=collect_data,
            **given,
        )

    pipeline.__name__ = pipeline.__qualname__ = name
    return pipeline


def _of_reward_model(mode: str, name: str) -> _Pipeline:
    """Return the pipeline of a mode, with the arguments that DI-engine's has."""

    @shown_as_by_the_command()
    def pipeline(
        input_cfg: InputConfig,
        seed: int = 0,
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
        max_train_iter: int = NO_LIMIT,
        max_env_step: int = NO_LIMIT,
        **given: Any,  # keyword arguments of `run_stages`
    ) -> Policy:
        """Learn from the rewards of a reward model, after the stages that it needs; see `run_stages`."""
        own: dict[str, Any] = dict(
            env_setting=env_setting, model=model, max_train_iter=max_train_iter, max_env_step=max_env_step
        )
        return run_stages(mode, input_cfg, seed=seed, **own, **given)

    pipeline.__name__ = pipeline.__qualname__ = name
    return pipeline


serial_pipeline_gail = _of_expert("serial_gail", "serial_pipeline_gail")
serial_pipeline_sqil = _of_expert("serial_sqil", "serial_pipeline_sqil")
serial_pipeline_dqfd = _of_expert("serial_dqfd", "serial_pipeline_dqfd")
serial_pipeline_r2d3 = _of_expert("serial_r2d3", "serial_pipeline_r2d3")
serial_pipeline_ngu = _of_reward_model("serial_ngu", "serial_pipeline_ngu")
serial_pipeline_reward_model = _of_reward_model("serial_reward_model", "serial_pipeline_reward_model")
serial_pipeline_preference_based_irl = _of_reward_model("serial_trex", "serial_pipeline_preference_based_irl")
serial_pipeline_preference_based_irl_onpolicy = _of_reward_model(
    "serial_trex_onpolicy", "serial_pipeline_preference_based_irl_onpolicy"
)
