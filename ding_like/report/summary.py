"""First lines of a run: its versions, config and limits; and its last lines: the verdict and its files."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from ding_like import __version__
from ding_like.envs.di_engine_style import BaseEnv
from ding_like.envs.factory import env_class
from ding_like.report.doctor.config import reason_of_no_update
from ding_like.report.experiment import read_result, read_settings
from ding_like.report.run_console import Limits
from ding_like.report.scores import bootstrap_interval, by_agent, interval, measure, short
from ding_like.types import Config, EnvManager

_MAX_LISTED = 3  # overrides that are named; of more only the number is shown
# What a run may have written that a person wants to open, in this order.
_FILES = ("curve.png", "agent.gif", "ckpt/ckpt_best.pth.tar", "metrics.jsonl", "total_config.py")


def opening_lines(
    cfg: Any,
    *,
    collector_env: EnvManager | None,  # None: other processes have them, which `learners` names
    evaluator_env: EnvManager,
    policy: Any,  # a Policy, or anything with an eval mode
    limits: Limits,
    overrides: Sequence[str] = (),
    learners: Sequence[str] = (),  # lines about several learners, or other workers
    env_fn: Callable[..., Any] | None = None,  # of an `env_setting`, in place of the config's env
) -> list[str]:
    """Return the lines to check in a run's first second: versions, config, env, policy, what ends it."""
    env = env_name(cfg.env) if env_fn is None else f"{function_name(env_fn)} of env_setting"
    shown = evaluator_env if collector_env is None else collector_env
    spaces = f"obs {describe_space(shown.observation_space)}  act {describe_space(shown.action_space)}"
    collect = "" if collector_env is None else f"{collector_env.num_lanes} to collect, "
    lanes = f"{collect}{evaluator_env.num_lanes} to evaluate ({cfg.env.manager.type})"
    size = short(sum(_sizes(policy.eval_mode.state_dict())))
    device = "cuda" if cfg.policy.cuda else "cpu"
    return [
        version_line(),
        f"experiment  {cfg.exp_name}/  {_count_changes(Path(cfg.exp_name))}",
        *_override_lines(overrides),
        f"env         {env}  {spaces}  {lanes}",
        f"policy      {cfg.policy.type} on {device}  {size} parameters  seed {cfg.seed}",
        *learners,
        f"until       {limits.describe()}",
        *_lines_of_no_update(cfg.policy, limits),
    ]


def _lines_of_no_update(policy: Config, limits: Limits) -> list[str]:
    """Return a warning if the budget is used up before there are enough rows for an update."""
    budget = limits.max_env_step
    found = reason_of_no_update(policy, budget)
    if found is None:
        return []
    why, enough = found
    return [f"no update   {budget:,} env steps {why}: nothing is learned. Give more than {enough:,}, or lower it."]


def env_name(env: Config) -> str:
    """Return the name of the env that a config's section trains: its `env_id` where that is what its `type` makes."""
    kind, env_id = str(env.get("type") or "gymnasium"), env.get("env_id")
    if not env_id:
        return kind
    use = _use_of_env_id(env)
    if use is None:
        return f"{kind} (given env_id '{env_id}')"
    return str(env_id) if use else f"{kind} (env_id '{env_id}' is not used)"


def _use_of_env_id(env: Config) -> bool | None:
    """Return whether the `env_id` of a section decides which env is made, None if that depends on its class."""
    make = env_class(env)
    if "env_id" in getattr(make, "config", ()):
        return True
    takes_section = ":" not in str(env.get("type")) or (isinstance(make, type) and issubclass(make, BaseEnv))
    return None if takes_section else False


def function_name(env_fn: Callable[..., Any]) -> str:
    """Return how a function or a class that makes envs is called where it was written, () behind it."""
    inner = getattr(env_fn, "func", env_fn)  # of a functools.partial
    return f"{getattr(inner, '__qualname__', type(inner).__name__)}()"


def version_line() -> str:
    """Return the versions that a run's results may depend on."""
    threads = torch.get_num_threads()
    return (
        f"ding_like {__version__} | torch {torch.__version__}, {threads} thread{'s' * (threads > 1)} | "
        f"gymnasium {gymnasium.__version__} | python {platform.python_version()}"
    )


def describe_space(space: gymnasium.Space[Any]) -> str:
    """Return a short name of a space: Box(4,) float32, Discrete(2), Dict(image, state)."""
    if isinstance(space, gymnasium.spaces.Dict):
        return f"Dict({', '.join(space.spaces)})"
    if isinstance(space, gymnasium.spaces.Discrete):
        return f"Discrete({space.n})"
    return f"{type(space).__name__}{space.shape} {space.dtype}"


def _sizes(state: Config) -> Iterator[int]:
    """Yield the number of elements of every array in nested states."""
    for value in state.values():
        if isinstance(value, Mapping):
            yield from _sizes(value)
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            yield int(np.prod(value.shape))


def _count_changes(folder: Path) -> str:
    """Return how many settings are not the defaults, by the table that the run saved; its first row names columns."""
    path = folder / "config_diff.txt"
    if not path.is_file():
        return ""
    return f"{len(path.read_text(encoding='utf-8').splitlines()) - 1} settings are not the defaults (config_diff.txt)"


def _override_lines(overrides: Sequence[str]) -> list[str]:
    if not overrides:
        return []
    more = f"  and {len(overrides) - _MAX_LISTED} more" if len(overrides) > _MAX_LISTED else ""
    return [f"overrides   {'  '.join(overrides[:_MAX_LISTED])}{more}"]


def closing_lines(folder: str | Path, *, mode: str = "serial") -> list[str]:
    """Return the verdict on a finished run, the files it wrote, and what to type next; `mode` is what it ran in."""
    exp = shlex.quote(str(folder))
    found = [name for name in _FILES if (Path(folder) / name).is_file()]
    result = read_result(Path(folder))
    stop = Limits(stop_value=read_settings(Path(folder)).get("env", {}).get("stop_value")).stop
    share = result["eval_duration_s"] / max(result["duration_s"], 1e-9)
    agents = by_agent(result.get("eval_metrics", {}))
    return [
        _verdict(result, stop),
        *([f"        by agent: {agents}"] if agents else []),
        f"took    {result['env_step']:,} env steps, {result['train_iter']:,} updates, "
        f"{result['duration_s']:.1f} s ({share:.0%} of it evaluation)",
        f"wrote   {folder}/",
        f"        {'  '.join(found)}",
        f"next    ding enjoy {exp}   ding plot {exp}",
        f"        ding -m {mode} -c {shlex.quote(f'{folder}/total_config.py')} -s 1 -s 2",
    ]


def _verdict(result: Config, stop: float | None) -> str:
    """Return the value of the last model, by fresh episodes."""
    returns = result["eval_value_raw"]
    ends = bootstrap_interval(returns)
    if not result["stop"]:
        word = "done    "
    elif stop is None or result["eval_value"] >= stop:
        word = "solved  "
    else:
        word = "stopped "
    goal = "" if stop is None else f", stop value {measure(stop)}"
    return (
        f"{word}the last model returns {measure(result['eval_value'])} {interval(*ends)} "
        f"(95% CI of {len(returns)} fresh episodes{goal})"
    )
