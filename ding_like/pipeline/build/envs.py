"""Build the env managers of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ding_like.config import FrozenConfig
from ding_like.data.env_metrics import metric_names
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.factory import AnyEnv
from ding_like.envs.manager.versus import VersusManager
from ding_like.errors import ConfigError
from ding_like.pipeline.self_play import is_game, versus
from ding_like.types import EnvManager

# (env factories, one config per collector env, one per evaluator env): what `get_vec_env_setting` returns. Any: an
# env's config is whatever its factory reads.
EnvSetting: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]


def check_env_setting(setting: Any) -> None:
    """Raise ConfigError for what is no `EnvSetting`, an env say."""
    is_three = isinstance(setting, (tuple, list)) and len(setting) == 3
    if setting is not None and not (is_three and callable(setting[0])):
        raise ConfigError(
            f"env_setting is {type(setting).__name__} {setting!r}"[:200] + ", expected (env_fn, collector env configs, "
            "evaluator env configs): env_fn makes an env of each config, as in env_setting=(lambda cfg: MyEnv(), "
            "[{}] * 8, [{}] * 4)."
        )


def build_collect_env(
    cfg: FrozenConfig,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    dynamic_seed: bool = True,
    before_launch: Callable[[EnvManager], None] | None = None,
) -> EnvManager:
    """Return the launched envs of collecting; lane i starts from `seed + i`.

    `env_setting` stands in place of the config's envs. With `dynamic_seed=False` every episode of a lane starts from
    the same seed. `before_launch` gets the manager while no env has been reset.
    """
    manager = seeded_collect_env(cfg, seed=seed, env_setting=env_setting, dynamic_seed=dynamic_seed)
    return _launched(manager, before_launch)


def seeded_collect_env(
    cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None, dynamic_seed: bool = True
) -> EnvManager:
    """Return the envs of collecting as `build_collect_env` does, but not launched: no env has been reset."""
    env_fn, env_cfgs, _ = env_setting or get_vec_env_setting(cfg.env, eval_=False)
    return _seeded(cfg.env, [EnvFactory(each, env_fn) for each in env_cfgs], seed, dynamic_seed=dynamic_seed)


def build_eval_env(cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None) -> EnvManager:
    """Return the launched envs of evaluations, which bring seeds of their own."""
    env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    return _launched(_seeded(cfg.env, [EnvFactory(each, env_fn) for each in env_cfgs], seed))


def build_single_env(make_env: Callable[[], AnyEnv]) -> EnvManager:
    """Return a manager of one env in this process, not launched: to look at its spaces, or to film it."""
    return create_env_manager({"type": "base"}, [make_env])


def one_player_sees(cfg: FrozenConfig, env: EnvManager, *, seed: int, name: str) -> VersusManager | None:
    """Return games as one player sees them, None where the env is not a game; the opponent is still to be set.

    `name` is the name of the part that plays: its generator depends on it.
    """
    return versus(env, seed=seed, name=name) if is_game(cfg) else None


def _seeded(
    cfg: Any, env_fns: Sequence[Callable[[], AnyEnv]], seed: int, *, dynamic_seed: bool = True
) -> EnvManager:  # cfg is the config's env section
    names = metric_names(cfg.get("metrics") or ())
    manager = create_env_manager(cfg.manager, env_fns)
    manager.metrics = names
    manager.seed(seed, dynamic_seed=dynamic_seed)
    return manager


def _launched(manager: EnvManager, before_launch: Callable[[EnvManager], None] | None = None) -> EnvManager:
    try:
        if before_launch is not None:
            before_launch(manager)
        manager.launch()
    except BaseException:
        manager.close()
        raise
    return manager
