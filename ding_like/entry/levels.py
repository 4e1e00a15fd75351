"""Data sets of several levels of skill, as offline reinforcement learning is measured on, from one training run.

The levels are those of D4RL (Fu et al. 2020): `random` actions are even draws; `expert` is the best checkpoint,
`medium` the one whose evaluation is nearest to a third of the way from random to expert; both explore as they do in
training. `medium-replay` is what the run had collected when it was medium, from its replay buffer. `medium-expert` is
half of each.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.agent.checkpoints import counter, find_checkpoint
from ding_like.config import FrozenConfig
from ding_like.data.batch import TransitionBatch
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import STEP_COLUMNS, Demonstrations
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.entry.demonstrations import Expert, describe_returns, expert_of, file_hash
from ding_like.entry.eval_entry import loaded_policy
from ding_like.entry.modes import MODES, load
from ding_like.entry.training import InputConfig, Plan, RunArguments, load_config, make_plan, serial_mode_of
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.checks import is_game
from ding_like.pipeline.envs import build_collect_env, build_eval_env
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import resume_store, versions
from ding_like.policy import get_policy_cls
from ding_like.policy.di_engine_view import RandomActor
from ding_like.report.experiment import check_experiment, read_run
from ding_like.report.summary import env_name
from ding_like.types import Array, EnvManager, Json
from ding_like.utils.checkpoint import load_state
from ding_like.utils.files import write_text
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.measure import Interval
from ding_like.utils.registries import EXTRA_OF
from ding_like.utils.seeding import make_rng
from ding_like.worker.recorder import cut_after, play_demonstrations, play_steps
from ding_like.worker.replay_buffer.storage import rows_of_dump

logger = logging.getLogger(__name__)

LEVELS = ("random", "medium", "medium-replay", "medium-expert", "expert")
INFO_FILE = "levels.json"
_REFERENCE_EPISODES = 20  # of random and of expert, at least
_MEDIUM = 1 / 3  # of the way from the return of random to that of expert
_REPORT_S = 5.0


@shown_as_by_the_command()
def collect_levels(
    exp_or_config: InputConfig,
    levels: Sequence[str],
    *,
    num_steps: int,
    out: str | Path,
    seed: int | None = None,
    max_env_step: int | None = None,
    import_names: Sequence[str] = (),
) -> dict[str, Demonstrations]:
    """Write a data set of `num_steps` steps for each level to `out`/LEVEL.safetensors, and return them by level.

    `exp_or_config` is the folder of a run, or a config that is trained first, in `out`/run, for `max_env_step`. The
    last episode of a level is cut, and `truncated` there. `out`/levels.json has the SHA-256 of the files and what is in
    them: returns, checkpoints, and the mean returns of random and expert, for the normalised score
    100 (return - random) / (expert - random). Raises ConfigError for what the run does not allow, with what would.
    """
    if unknown := [each for each in levels if each not in LEVELS] or not levels:
        raise ConfigError(f"--levels has {unknown if levels else 'none'}; there are {', '.join(LEVELS)}.")
    if num_steps < 2:
        raise ConfigError(f"--steps is {num_steps}; give a number of steps from 2.")
    out = Path(out)
    if isinstance(exp_or_config, (str, Path)) and Path(exp_or_config).suffix != ".py":
        if max_env_step is not None:
            raise ConfigError("--env-step is of the training that -c CONFIG begins, and this run has been trained.")
        folder = Path(exp_or_config)
        check_experiment(folder)
    else:
        folder = _train(exp_or_config, out / "run", seed or 0, max_env_step)
    best = expert_of(folder, import_names=import_names)
    _check(best.cfg)
    source = _Source(folder, best, best.cfg.seed if seed is None else seed, num_steps, tuple(import_names))
    with training_process():
        return source.write(levels, out)


def _train(input_cfg: InputConfig, folder: Path, seed: int, max_env_step: int | None) -> Path:
    """Train a config with a checkpoint at each evaluation; return the folder of the run."""
    if folder.exists():
        raise ConfigError(f"{folder} is there already: `ding collect {folder} --levels ...` takes the run in it.")
    cfg = load_config(input_cfg, seed=seed, save=False, renew_dir=False, quiet=True)
    _check(cfg)
    overrides = [f"policy.learn.learner.hook.save_ckpt_after_iter={cfg.policy.eval.evaluator.eval_freq}"]
    arguments = RunArguments(serial_mode_of(cfg), seed)
    if max_env_step is not None:
        arguments = arguments._replace(max_env_step=max_env_step)
    plan: Plan[None] = make_plan(input_cfg, arguments, overrides=overrides, exp_name=str(folder), renew_dir=False)
    load(MODES[arguments.mode].home)(plan).train()
    return folder


def _check(cfg: FrozenConfig) -> None:
    """Raise ConfigError for a run whose steps are no data set of its env."""
    if is_game(cfg):
        raise ConfigError("data sets are of one player, and this run's env is a game of several.")
    wrappers = [each if isinstance(each, str) else each.get("type") for each in cfg.env.get("wrappers") or ()]
    if changing := [each for each in wrappers if each in ("obs_norm", "reward_norm")]:
        raise ConfigError(
            f"env.wrappers has {' and '.join(changing)}, and so each checkpoint sees other numbers: train without."
        )


class _Source:
    """Run that data sets are made of, `num_steps` for each level."""

    def __init__(self, folder: Path, best: Expert, seed: int, num_steps: int, import_names: Sequence[str]) -> None:
        self.folder, self.best, self.seed, self.num_steps = folder, best, seed, num_steps
        self._import_names = import_names
        self._known: dict[str, dict[str, Array]] = {}  # steps of checkpoints by level, played when first asked for

    def write(self, levels: Sequence[str], out: Path) -> dict[str, Demonstrations]:
        """Write the data sets of the levels, and `levels.json` beside them; return them."""
        made = {}
        random, expert = self.reference
        logger.info("reference   random %.4g, expert %.4g, mean returns of %d episodes", random, expert, self._episodes)
        for number, level in enumerate(dict.fromkeys(levels), 1):
            logger.info("level %d of %d: %s", number, len(levels), level)
            path = out / f"{level}.safetensors"
            columns, info = self._made(level)
            data = Demonstrations(columns, source=str(path))
            info = {**self._origin(), "level": level, **info, "returns": _summary(data.returns)}
            replace(data, info=info).save(path)
            made[level] = read_data(path)
            logger.info("wrote %s: %s", path, describe_returns(data))
        path, files = out / INFO_FILE, {}
        if path.is_file():  # of levels that another call has made
            files = json.loads(path.read_text(encoding="utf-8"))
        for level, data in made.items():
            files[level] = {"sha256": file_hash(data.source), "steps": len(data), **data.info}
        write_text(path, json.dumps(files, indent=2))
        return made

    def _made(self, level: str) -> tuple[dict[str, Array], dict[str, Json]]:
        """Return (the steps of a level, where they are from)."""
        if level == "random":
            return self._played(level, None), {}
        if level == "medium-replay":
            return self._replayed()
        if level == "medium-expert":
            medium, expert = (cut_after(self._steps_of(each), self.num_steps // 2) for each in ("medium", "expert"))
            expert["episode_id"] = expert["episode_id"] + medium["episode_id"][-1] + 1
            joined = {name: np.concatenate([medium[name], expert[name]]) for name in medium}
            return joined, {"checkpoints": [_named(each) for each in (self._medium, self.best)]}
        return self._steps_of(level), {"checkpoint": _named(self.best if level == "expert" else self._medium)}

    def _steps_of(self, level: str) -> dict[str, Array]:
        if level not in self._known:
            self._known[level] = self._played(level, self.best if level == "expert" else self._medium)
        return self._known[level]

    @cached_property
    def reference(self) -> tuple[float, float]:
        """Mean returns of random actions and of the best checkpoint, without exploration, in the evaluation's envs."""
        cfg = self.best.cfg
        with closing(build_eval_env(cfg, seed=self.seed)) as manager:
            policy, _ = loaded_policy(cfg, manager, "eval", self.seed, None, self.best.state)
            actors = RandomActor(manager.action_space), adapt_eval_mode(policy.eval_mode).actor
            number = max(self._episodes, manager.num_lanes)
            played = [play_demonstrations(manager, actor, number, self._rng("reference")) for actor in actors]
        random, expert = (float(Demonstrations(each).returns.mean()) for each in played)
        return random, expert

    @property
    def _episodes(self) -> int:
        return max(_REFERENCE_EPISODES, int(self.best.cfg.env.evaluator_env_num))

    def _rng(self, name: str) -> np.random.Generator:
        return make_rng(self.seed, "levels", name)

    @cached_property
    def _medium(self) -> Expert:
        """Checkpoint whose evaluation is nearest to a third of the way from random to expert."""
        evaluation = read_run(self.folder).evaluation
        found = list((self.folder / "ckpt").glob("iteration_*.pth.tar"))
        if len(found) < 2 or not len(evaluation):
            raise CheckpointError(
                f"{self.folder / 'ckpt'} has {len(found)} checkpoints iteration_*.pth.tar, of which `medium` is one: "
                "train with policy.learn.learner.hook.save_ckpt_after_iter as small as policy.eval.evaluator.eval_freq."
            )
        random, expert = self.reference
        target, best = random + _MEDIUM * (expert - random), (np.inf, 0.0, found[0])
        for path in sorted(found, key=lambda path: int(path.name[10:-8])):
            at = np.abs(evaluation.env_step - (counter(load_state(path), "last_step") or 0)).argmin()
            value = float(evaluation.mean[at])
            best = min(best, (abs(value - target), value, path), key=lambda each: each[0])
        logger.info("medium      %s, whose evaluation %.4g is nearest to %.4g", best[2].name, best[1], target)
        return expert_of(self.folder, find_checkpoint(self.folder, best[2]), import_names=self._import_names)

    def _played(self, level: str, expert: Expert | None) -> dict[str, Array]:
        """Return steps of a checkpoint, which explores as in training at its env step, or of random actions."""
        cfg = self.best.cfg
        with closing(build_collect_env(cfg, seed=self.seed)) as manager:
            actor, setting = self._actor(manager, expert)
            interval = Interval(_REPORT_S)

            def progress(steps: int) -> None:
                if interval.pass_s():
                    logger.info("%s: %s of %s steps", level, f"{steps:,}", f"{self.num_steps:,}")

            return play_steps(manager, actor, self.num_steps, self._rng(level), setting=setting, progress=progress)

    def _actor(self, manager: EnvManager, expert: Expert | None) -> tuple[Any, dict[str, Any]]:
        if expert is None:
            return RandomActor(manager.action_space), {}
        policy, _ = loaded_policy(expert.cfg, manager, "collect", self.seed, None, expert.state)
        step = counter(expert.state or {}, "last_step") or 0
        setting = policy.command_mode.get_setting_collect({"envstep": step})
        return adapt_collect_mode(policy.collect_mode).actor, dict(setting)

    def _replayed(self) -> tuple[dict[str, Array], dict[str, Json]]:
        """Return what the run had collected at its medium checkpoint, the last `num_steps` of it."""
        cfg, medium = self.best.cfg, self._medium
        if cfg.policy.get("nstep", 1) != 1 or getattr(get_policy_cls(cfg.policy), "rows_are_sequences", False):
            raise ConfigError(
                "medium-replay takes single steps from the replay buffer, and this policy's rows are of several: train "
                "a run with policy.nstep=1, or leave medium-replay out."
            )
        store = resume_store(str(self.folder))
        steps = store.whole_steps()
        buffer = load_state(store.folder / str(steps[0]) / "buffer.pt") if steps else {}
        if not isinstance(buffer.get("data"), dict):
            raise ConfigError(
                f"{self.folder} has no replay buffer of steps saved, of which medium-replay is made: train an "
                "off-policy run, which saves it when it ends, or leave medium-replay out."
            )
        rows = TransitionBatch.concat(list(rows_of_dump(buffer["data"])))
        if buffer["push_count"] > len(rows):
            raise ConfigError(
                f"the replay buffer of {self.folder} has the last {len(rows):,} of {buffer['push_count']:,} steps, "
                "and medium-replay is of the first ones: train a run with "
                f"policy.other.replay_buffer.replay_buffer_size={buffer['push_count']}."
            )
        until = min(counter(medium.state or {}, "last_step") or 0, len(rows))
        kept = rows[max(0, until - self.num_steps) : until]
        order = kept["episode_id"].argsort(kind="stable")
        names = [each for each in kept.columns if each in STEP_COLUMNS or each.partition("/")[0] in ("obs", "next_obs")]
        columns = {name: kept[name][order] for name in names}
        last = np.append(columns["episode_id"][1:] != columns["episode_id"][:-1], True)
        columns["truncated"] = columns["truncated"] | (last & ~columns["terminated"])
        columns["lane"] = np.zeros_like(columns["lane"])
        return columns, {"checkpoint": _named(medium), "collected_steps": until}

    def _origin(self) -> dict[str, Json]:
        random, expert = self.reference
        loaded = {name: str(getattr(sys.modules[name], "__version__", "")) for name in EXTRA_OF if name in sys.modules}
        return {
            "env_id": env_name(self.best.cfg.env),
            "policy": str(self.best.cfg.policy.type),
            "run": self.folder.resolve().name,
            "seed": self.seed,
            "reference": {"random": random, "expert": expert, "episodes": self._episodes},
            "versions": {**versions(), **{name: each for name, each in loaded.items() if each}},
        }


def _named(expert: Expert) -> dict[str, Json]:
    assert expert.path is not None, "of a run's folder"
    return {"file": expert.path.name, "sha256": file_hash(expert.path)}


def _summary(returns: Array) -> dict[str, Json]:
    return {
        "mean": float(returns.mean()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "episodes": len(returns),
    }
