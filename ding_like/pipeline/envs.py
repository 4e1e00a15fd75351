"""Build the env managers of a run, and the policy that fits their spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces

from ding_like.config import FrozenConfig, to_plain
from ding_like.data.batch import ACTION_MASK
from ding_like.data.records import metric_names
from ding_like.data.spaces import HybridSpace, hybrid_mask
from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.manager.game import VersusManager
from ding_like.envs.spaces import AnyEnv
from ding_like.errors import ConfigError
from ding_like.model.encoder import ONE_HOT
from ding_like.pipeline.checks import is_game
from ding_like.policy import Policy, create_policy, get_policy_cls
from ding_like.types import Array, Config, EnvManager, Section
from ding_like.utils.registries import POLICY_REGISTRY
from ding_like.utils.seeding import make_rng, set_pkg_seed

# (env factories, one config per collector env, one per evaluator env): what `get_vec_env_setting` returns. Any: an
# env's config is whatever its factory reads.
EnvSetting: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]


def check_env_setting(setting: object) -> None:
    """Raise ConfigError for what is no `EnvSetting`, an env say."""
    is_setting = isinstance(setting, (tuple, list)) and len(setting) == 3 and callable(setting[0])
    if setting is not None and not is_setting:
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


def versus(games: EnvManager, *, seed: int, name: str) -> VersusManager:
    """Return games as one player sees them; the opponent is still to be set."""
    return VersusManager(games, rng=make_rng(seed, name, "opponent"))


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


# A gymnasium space is generic in what it samples, which differs from env to env: hence Space[Any] throughout.
Space: TypeAlias = spaces.Space[Any]
# Size of an observation in a model's config: see `obs_shape`.
ObsShape: TypeAlias = "int | list[int] | dict[str, Any]"
# The same of an action: see `action_shape`.
ActionShape: TypeAlias = "int | list[int] | dict[str, int]"

_FLATTEN = "flatten it in an env wrapper, such as env.wrappers=[dict(type='TransformAction', ...)]"


def fit_policy_config(policy_cfg: Config, manager: EnvManager) -> Section:
    """Return the policy section with what the env's spaces say filled in.

    `model.obs_shape` says what `obs_shape` returns. Actions fill four keys:

    | action space             | model.action_shape | action_space | action_low, action_high               |
    |--------------------------|--------------------|--------------|---------------------------------------|
    | Discrete(n)              | n                  | "discrete"   | None                                  |
    | MultiDiscrete([n, m])    | [n, m]             | "discrete"   | None                                  |
    | MultiBinary(k)           | [2] * k            | "discrete"   | None                                  |
    | Box of floats, shape [A] | A                  | "continuous" | A numbers each; inf where there is no |
    |                          |                    |              | bound and the config gives none       |
    | HybridSpace, K choices   | see below          | "hybrid"     | P numbers, as above                   |
    | with P parameters        |                    |              |                                       |

    Of hybrid actions `model.action_shape` is {"action_type_shape": K, "action_args_shape": P}, and `model.action_mask`
    the K rows that say which parameters belong to which choice; the config may say that better than the env.
    Raises ConfigError if the config says something else than the env, or if the policy does not take a space.
    """
    cfg: dict[str, Any] = to_plain(policy_cfg)
    model = cfg.setdefault("model", {})
    space = manager.action_space
    _check_policy_takes(cfg, space)
    _fill(model, "model.obs_shape", obs_shape(manager.observation_space))
    _fill(model, "model.action_shape", action_shape(space))
    _check_mask(manager.observation_space, space)
    _fill(cfg, "action_space", _kind(space))
    if isinstance(space, HybridSpace):
        given = model.get("action_mask")  # [K, P]
        mask = space.parameter_mask if given is None else hybrid_mask(model["action_shape"], given)
        model["action_mask"] = mask.astype(int).tolist()
        _fill_bound(cfg, "action_low", space.parameter_low)
        _fill_bound(cfg, "action_high", space.parameter_high)
    elif isinstance(space, spaces.Box):
        _fill_bound(cfg, "action_low", space.low)
        _fill_bound(cfg, "action_high", space.high)
    return cfg


def build_policy(
    fitted: Config,
    *,
    seed: int | None = None,
    model: torch.nn.Module | None = None,
    modes: Sequence[str] | None = None,
) -> Policy:
    """Return the policy of a section that `fit_policy_config` has returned.

    With `seed` the global generators, which initialise weights, are seeded first. `model` stands in place of the
    policy's own. `modes` are those of the policy that are used, "learn", "collect", "eval" and "command" (None: all).
    """
    if seed is not None:
        set_pkg_seed(seed, use_cuda=bool(fitted.get("cuda")))
    return create_policy(fitted, model=model, enable_field=None if modes is None else list(modes))


def _kind(space: Space) -> str:
    """Return what `action_space` is called in a policy's config."""
    if isinstance(space, HybridSpace):
        return "hybrid"
    return "continuous" if isinstance(space, spaces.Box) else "discrete"


def obs_shape(space: Space) -> ObsShape:
    """Return the size of an observation in a model's config.

    | observation space       | model.obs_shape                                                          |
    |-------------------------|--------------------------------------------------------------------------|
    | Box of shape [O]        | O                                                                        |
    | Box of other shapes     | the shape; three axes are an image; [] only within a Dict                |
    | MultiBinary(k)          | k                                                                        |
    | Discrete(n)             | {"one_hot": [n]}                                                         |
    | MultiDiscrete([n, m])   | {"one_hot": [n, m]}                                                      |
    | Dict of these           | {key: shape}; without `action_mask`, beside which one entry stands alone |

    Raises ConfigError for other spaces.
    """
    if not isinstance(space, spaces.Dict):
        return _array_shape(space, may_be_number=False)
    for key in space.spaces:
        # The config is made of dicts whose keys are attributes.
        if hasattr(dict, key) or key == ONE_HOT:
            raise ConfigError(
                f"the observation space has an entry '{key}', a name that a config keeps for itself: rename it in an "
                "env wrapper (gymnasium.wrappers.TransformObservation)."
            )
    parts = {key: inner for key, inner in space.spaces.items() if key != ACTION_MASK}
    if not parts:
        raise ConfigError(f"the observation space {space} holds nothing but an action mask: add an observation.")
    if len(parts) == 1 and ACTION_MASK in space.spaces:
        return _array_shape(next(iter(parts.values())), may_be_number=False)
    return {key: _array_shape(inner, may_be_number=True) for key, inner in parts.items()}


def _array_shape(space: Space, *, may_be_number: bool) -> ObsShape:
    if isinstance(space, spaces.Discrete):
        return {ONE_HOT: [int(space.n)]}
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        return {ONE_HOT: [int(n) for n in space.nvec]}
    if isinstance(space, (spaces.Box, spaces.MultiBinary)) and (space.shape or may_be_number):
        shape = [int(size) for size in space.shape]
        return shape[0] if len(shape) == 1 else shape
    raise ConfigError(
        f"no policy here takes the observation space {space}: wrap the env so that it gives vectors, images, whole "
        "numbers or a dict of these: env.wrappers=[dict(type='FlattenObservation')]."
    )


def _check_mask(observation_space: Space, action_space: Space) -> None:
    """Refuse an action mask that does not fit the actions."""
    if not isinstance(observation_space, spaces.Dict) or ACTION_MASK not in observation_space.spaces:
        return
    rename = "fix it, or take it out: env.wrappers=[dict(type='FilterObservation', filter_keys=[...])] without it"
    if isinstance(action_space, spaces.Box):
        why = "its choices cannot be masked" if isinstance(action_space, HybridSpace) else "it has no discrete actions"
        raise ConfigError(
            f"the observation has an entry '{ACTION_MASK}', but of the action space {action_space}: {why}; {rename}."
        )
    mask, actions = observation_space.spaces[ACTION_MASK], action_shape(action_space)
    assert not isinstance(actions, dict), "hybrid actions are boxes, which were refused above"
    wanted = (sum(actions) if isinstance(actions, list) else actions,)
    # Of a team, whose agents have equally many actions, also [N, A].
    by_agent = (len(actions), actions[0]) if isinstance(actions, list) and len(set(actions)) == 1 else wanted
    if mask.shape not in (wanted, by_agent) or isinstance(mask, spaces.MultiDiscrete):
        raise ConfigError(
            f"the observation's '{ACTION_MASK}' is {mask}, expected MultiBinary({wanted[0]}) or a Box of as many: a "
            f"place for every choice of {action_space}; {rename}."
        )


def action_shape(space: Space) -> ActionShape:
    """Return the number of discrete actions, a list of them, or the length of a continuous action.

    Of hybrid actions it is a dict of the number of choices and that of parameters. Raises ConfigError for other spaces
    and for actions of more than one axis.
    """
    if isinstance(space, HybridSpace):
        return {"action_type_shape": space.num_choices, "action_args_shape": space.num_parameters}
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if len(space.shape or ()) != 1:
        raise ConfigError(f"the action space {space} is not one vector: {_FLATTEN}.")
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec]
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(space.shape[0])
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return int(space.shape[0])
    raise ConfigError(f"no policy here takes the action space {space} of {space.dtype}: {_FLATTEN}.")


def _check_policy_takes(cfg: dict[str, Any], space: Space) -> None:
    """Refuse an action space that the policy's class does not declare; one that declares nothing takes all."""
    cls = get_policy_cls(cfg)
    takes = getattr(cls, "action_spaces", None)
    kind = type(space).__name__
    if takes is None or kind in takes:
        return
    others = [
        name for name in POLICY_REGISTRY.names() if kind in getattr(POLICY_REGISTRY.get(name), "action_spaces", ())
    ]
    choose = f"choose a policy that does (create_config.policy.type: {', '.join(others)}), or " if others else ""
    raise ConfigError(
        f"policy '{cfg['type']}' takes {' or '.join(_called(each) for each in takes)} actions "
        f"({cls.__name__}.action_spaces), the env's action "
        f"space is {space}: {choose}change the space in an env wrapper."
    )


def _called(kind: str) -> str:
    """Return what users call a kind of action space."""
    if kind == "HybridSpace":
        return "hybrid (a choice with parameters: Tuple(Discrete, Box), Dict(action_type=Discrete, action_args=Box))"
    return kind


def _fill(section: dict[str, Any], path: str, value: str | ObsShape | ActionShape) -> None:
    key = path.rpartition(".")[2]
    given = section.get(key)
    if given is not None and _comparable(given) != _comparable(value):
        raise ConfigError(f"policy.{path} is {given}, the env has {value}: leave it out, or correct it.")
    section[key] = value


def _comparable(value: Any) -> Any:
    """Return a shape such that 3, [3] and (3,) are equal; Any: what a config may hold."""
    if isinstance(value, dict):
        return {key: _comparable(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _fill_bound(cfg: dict[str, Any], key: str, bound: Array) -> None:
    """Fill one side's bounds; the config may give them where the env has none."""
    given = cfg.get(key)
    if given is None:
        cfg[key] = bound.tolist()
        return
    try:
        said = np.broadcast_to(np.asarray(given, np.float64), bound.shape)
    except ValueError as error:
        raise ConfigError(f"policy.{key} is {given}; expected one number, or {len(bound)} of them.") from error
    if (np.isfinite(bound) & ~np.isclose(said, bound)).any():
        raise ConfigError(f"policy.{key} is {given}, the env has {bound.tolist()}: leave it out, or correct it.")
    cfg[key] = said.tolist()
