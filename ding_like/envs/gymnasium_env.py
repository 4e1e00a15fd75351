"""Environments of gymnasium's registry; env type 'gymnasium'."""

from __future__ import annotations

import copy
import ctypes.util
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from easydict import EasyDict
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ding_like.envs.factory import lane_configs
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.pictures import RecordGif
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Config, EnvAction, Section
from ding_like.utils.bounds import Bounds, Configurable
from ding_like.utils.log import one_time_info, one_time_warning
from ding_like.utils.registries import (
    ENV_REGISTRY,
    ENV_WRAPPER_REGISTRY,
    hint_of_missing,
    import_code,
    install_hint,
    pip_line,
    split_import_path,
)

_GRID_WORLDS = r"MiniGrid-.*|BabyAI-.*"

# Ids that exist only after a package was imported: pattern -> (package, extra that installs it).
_REGISTERED_BY = {
    r"ALE/.*|\w+NoFrameskip-v\d": ("ale_py", "atari"),
    _GRID_WORLDS: ("minigrid", "minigrid"),
    r"dm_control/.*": ("shimmy", "dmc"),
    r"(Fetch(Reach|Push|Slide|PickAndPlace)|Hand(Reach|Manipulate)|PointMaze_|AntMaze_|AdroitHand|FrankaKitchen).*": (
        "gymnasium_robotics",
        "robotics",
    ),
}
# Wrappers that take the observations of a grid world, a dict with text.
_TAKE_TEXT = ("grid_view", "flat_mission", "FilterObservation", "TransformObservation")


@ENV_REGISTRY.register("gymnasium")
class GymnasiumEnv(Configurable, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Env of `cfg.env_id`, made with `cfg.kwargs`; ids of the form 'module:Id-v0' import the module first.

    Raises ConfigError for an id that is not registered or no longer runs, with the closest ones, and EnvError
    where the package behind it is missing.
    """

    config = {
        # Id of a gymnasium env, such as CartPole-v1.
        "env_id": None,
        # Keyword arguments of the environment's constructor.
        "kwargs": {},
        # Env steps after which an episode is truncated; None: the limit that the id was registered with; -1: none.
        "max_episode_steps": None,
        # Render mode of gymnasium, such as "rgb_array"; None: no pictures.
        "render_mode": None,
        # Wrappers, innermost first: dicts with `type` and keyword arguments.
        "wrappers": [],
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "max_episode_steps": Bounds(1, also=(-1,))  # -1: no limit, in gymnasium
    }
    config_free: ClassVar[tuple[str, ...]] = ("kwargs",)
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {
        "env_id": (str, type(None)),
        "max_episode_steps": (int, type(None)),
        "render_mode": (str, type(None)),
    }

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        if not cfg.get("env_id"):
            yield "env_id", "is not set; expected a gymnasium id such as 'CartPole-v1'"

    def __init__(self, cfg: Config | None = None) -> None:
        self._section = {**self.config, **(cfg or {})}
        super().__init__(self.build(self._section))
        self._step_inside()

    def _step_inside(self) -> None:
        if type(self).step is gymnasium.Wrapper.step:
            # This class adds nothing to a step, so a step does not go through it.
            self.step = self.env.step  # type: ignore[method-assign]

    @classmethod
    def build(cls, cfg: Config) -> AnyEnv:
        """Return the env of a whole config, without its `wrappers`, which `make_env` puts around this class."""
        return make_id(cfg)

    @classmethod
    def plain_config(cls, cfg: Config) -> Section | None:
        """Return a whole config of this class itself that describes the same env; None for a sub-class that adds code.

        Managers that make envs of an id themselves read it. A sub-class with keys of its own translates them there.
        """
        inherited = gymnasium.Wrapper.step, gymnasium.Wrapper.reset, GymnasiumEnv.__init__
        return {**cls.config, **cfg} if (cls.step, cls.reset, cls.__init__) == inherited else None

    @classmethod
    def fitted_config(cls, cfg: Config) -> Config:
        """Return a section with the wrapper `grid_view` for a MiniGrid id, unless a wrapper of its own takes the text.

        Sub-classes choose their wrappers themselves: of them the section stays as it is.
        """
        wrappers = cfg.get("wrappers", ())
        if cls is not GymnasiumEnv or not re.fullmatch(_GRID_WORLDS, str(cfg.get("env_id"))):
            return cfg
        if any(_takes_text(str(each.get("type") if isinstance(each, Mapping) else each)) for each in wrappers):
            return cfg
        one_time_info(
            f"env.env_id '{cfg['env_id']}' observes a dict with text: the run takes its image, the view (wrapper "
            "'grid_view'); env.wrappers=[flat_mission] keeps the mission too"
        )
        return {**cfg, "wrappers": [{"type": "grid_view"}, *wrappers]}

    @classmethod
    def vector_entry(cls, cfg: Config) -> Section | None:
        """Return the arguments of `gymnasium.make_vec` for this config if its id has a vectorised entry point.

        None where it has none, and where the config or a sub-class asks for more than such an env offers.
        """
        own = cls.plain_config(cfg)
        if own is None or own["wrappers"] or own["render_mode"] or not env_spec(own["env_id"]).vector_entry_point:
            return None
        limit = {} if own["max_episode_steps"] is None else {"max_episode_steps": own["max_episode_steps"]}
        return {"id": own["env_id"], "vectorization_mode": "vector_entry_point", **own["kwargs"], **limit}


def _takes_text(name: str) -> bool:
    """Return whether a wrapper may take a dict with text: some that are known, and all of a user's own."""
    is_ours = name in ENV_WRAPPER_REGISTRY and ENV_WRAPPER_REGISTRY.get(name).__module__.startswith("ding_like.")
    return name in _TAKE_TEXT or ":" in name or (name in ENV_WRAPPER_REGISTRY and not is_ours)


def make_id(cfg: Config) -> AnyEnv:
    """Make the env of `cfg.env_id` from `kwargs`, `max_episode_steps` and `render_mode`, all of which `cfg` has.

    Raises ConfigError and EnvError as `GymnasiumEnv` does.
    """
    spec = copy.deepcopy(env_spec(cfg["env_id"]))
    # A manager resets before it steps: the wrapper that checks this costs 3 % of a CartPole step.
    spec.order_enforce = False
    kwargs = dict(cfg["kwargs"])
    if cfg["render_mode"] is not None:
        kwargs["render_mode"] = cfg["render_mode"]
    try:
        with warnings.catch_warnings():
            # Its warning of a render_mode that an env does not list: the env raises, or accepts the mode all the same.
            warnings.filterwarnings("ignore", message=".*render_mode=")
            return gymnasium.make(spec, max_episode_steps=cfg["max_episode_steps"], disable_env_checker=True, **kwargs)
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        # The line that installs it is in gymnasium's message of its own packages only.
        hint = install_hint(error)
        missing = f"{error.__cause__ or error}{hint}" if hint else str(error)
        raise EnvError(f"env '{cfg['env_id']}' needs a package that is not installed: {missing}") from error
    except TypeError as error:
        message = str(error).partition(" was raised from the environment creator")[0]
        raise ConfigError(
            f"env '{cfg['env_id']}' cannot be made with env.kwargs {kwargs}: {message}{_taken(spec, kwargs)}"
        ) from error
    except gymnasium.error.DeprecatedEnv as error:
        raise ConfigError(_bad_id(cfg["env_id"], error)) from error


def _taken(spec: EnvSpec, given: Iterable[str]) -> str:
    """Return which arguments an env takes; "" if it takes those given, or if its signature does not list them."""
    assert spec.entry_point is not None, "it was called"
    maker = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    parameters = inspect.signature(maker).parameters.values()
    if any(each.kind in (each.VAR_KEYWORD, each.POSITIONAL_ONLY) for each in parameters):
        return ""
    named = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]
    if set(given) <= set(named):
        return ""
    return f". It takes: {', '.join(named) or 'no arguments'}; give env.kwargs none but these."


def env_spec(env_id: str) -> EnvSpec:
    """Find an id in gymnasium's registry, importing what registers it."""
    if not env_id:
        raise ConfigError("env.env_id is not set; expected a gymnasium id such as 'CartPole-v1'.")
    for pattern, (package, extra) in _REGISTERED_BY.items():
        if re.fullmatch(pattern, env_id):
            _register(package, extra, env_id)
    module, name = split_import_path(env_id) or ("", env_id)
    try:
        if module:
            import_code(module)
        return gymnasium.spec(name)
    except ImportError as error:
        raise ConfigError(
            f"env.env_id is '{env_id}', but module '{module}' cannot be imported: {error}{hint_of_missing(module)}"
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(_bad_id(env_id, error)) from error


def newest_id(name: str) -> str:
    """Return the id of the newest version of one of gymnasium's own envs, such as 'Taxi-v4' for 'Taxi'."""
    known = gymnasium.registry.values()
    versions = [spec.version for spec in known if spec.name == name and not spec.namespace and spec.version is not None]
    return f"{name}-v{max(versions)}"


def _register(package: str, extra: str, env_id: str) -> None:
    try:
        with warnings.catch_warnings():
            # dm_control looks for a display and finds another way to draw where there is none.
            warnings.filterwarnings("ignore", message=".*DISPLAY")
            if package == "gymnasium_robotics":
                draw_without_display()  # where drawing fails, a second try aborts the process
            gymnasium.register_envs(importlib.import_module(package))
            if package == "gymnasium_robotics":
                _let_robotics_run()
    except ImportError as error:
        # A package may lack one of its own, such as mujoco: the error names it.
        missing = error.name or package
        raise EnvError(f"env '{env_id}' needs the package {missing}; install it with: {pip_line(extra)}") from error


def _let_robotics_run() -> None:
    """Show gymnasium-robotics a mujoco whose enums are plain numbers, where they equal no numpy number.

    gymnasium-robotics 1.4.2 looks for entries of a model's arrays (int32) among them. With mujoco 3.17 none is found,
    and an assertion ends the making of every env with a joint.
    """
    mujoco = importlib.import_module("mujoco")
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    if hinge != np.int32(int(hinge)):
        shown = dict(vars(mujoco))
        for name in ("mjtEq", "mjtJoint", "mjtObj"):
            numbers = {member: int(value) for member, value in shown[name].__members__.items()}
            shown[name] = types.SimpleNamespace(**numbers)
        # The one name under which its functions find mujoco.
        users = importlib.import_module("gymnasium_robotics.utils.mujoco_utils")
        vars(users)["mujoco"] = types.SimpleNamespace(**shown)


def _bad_id(env_id: str, error: Exception) -> str:
    name = env_id.rpartition(":")[2]
    stem = name.rpartition("-v")[0] or name
    same = [known for known in gymnasium.registry if known.rpartition("-v")[0] == stem and known != name]
    close = list(dict.fromkeys([*same, *difflib.get_close_matches(name, list(gymnasium.registry), n=3)]))
    hint = f"; did you mean {' or '.join(repr(c) for c in close if c != name)}?" if close else "."
    # gymnasium's own guess, which may name another id than ours, is left out.
    message = str(error).partition(" Did you mean")[0].rstrip(".")
    text = f"env.env_id is '{env_id}', which gymnasium {gymnasium.__version__} cannot make: {message}{hint}"
    if isinstance(error, gymnasium.error.DeprecatedEnv) or same or ":" in env_id:
        return text
    return (
        f"{text}\n  an id of your own: env_id='my_module:{name}' imports the module that registers it, and so does "
        "create_config.env.import_names=['my_module']"
    )


def draw_without_display() -> None:
    """Set MUJOCO_GL=egl where there is no display but EGL, unless it is set: MuJoCo would look for a window.

    dm_control reads it when it is imported, gymnasium when it first draws; processes started later inherit it.
    """
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform != "linux" or has_display or "MUJOCO_GL" in os.environ:
        return
    if ctypes.util.find_library("EGL") is not None:
        os.environ["MUJOCO_GL"] = "egl"


_DRAW_NOTHING = ("envpool", "ale_vector")  # managers whose envs are a library's own


class SameEnv(NamedTuple):
    """Id that replaces one that gymnasium no longer has, and what makes it the same env."""

    env_id: str
    max_episode_steps: int | None = None  # None: as the id has it


class DiEngineGymEnv(GymnasiumEnv):
    """Env of gymnasium, made from a section with DI-engine's keys, each of which adds one of our wrappers.

    A sub-class gives a default for each key that its envs have, in `config`: of those here, and of `use_act_scale` and
    `frame_stack`. It lists in `ids` which ids replace others, and may extend `key_wrappers` and `own_kwargs`.
    Managers that make envs of an id themselves do so for a sub-class too, where no wrapper is asked for.
    """

    config = {
        **GymnasiumEnv.config,
        "act_scale": False,  # actions from -1 to 1, stretched to the env's range
        "rew_clip": False,  # True: clip the rewards that are learned from to `clip_range`, or give a range [low, high]
        "norm_obs": {"use_norm": False},
        "norm_reward": {"use_norm": False, "reward_discount": 0.99},
        "replay_path": None,  # folder for GIFs of evaluation episodes
        "is_train": None,  # collector envs: True, evaluator envs: False; None: an env that is made by itself
    }
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {
        **GymnasiumEnv.config_types,
        "rew_clip": (bool, list, tuple),
        "replay_path": (str, type(None)),
        "is_train": (bool, type(None)),
    }
    without_effect: ClassVar[dict[str, str]] = {
        "is_train": "collector envs are made for training and evaluator envs for evaluations"
    }

    # An id of DI-engine's configs -> what is made.
    ids: ClassVar[Mapping[str, str | SameEnv]] = {}
    # What `rew_clip=True` clips to; None where there is no bound.
    clip_range: ClassVar[tuple[float | None, float | None]] = (-1.0, 1.0)
    # DI-engine's defaults of the section, where they differ: `create_config.defaults='di_engine'` uses them.
    di_engine_defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def key_wrappers(cls, cfg: Config) -> list[Section]:
        """Return the wrappers that the keys of a whole section ask for, the innermost first."""
        wrappers: list[dict[str, Any]] = []
        if cfg.get("act_scale") or cfg.get("use_act_scale"):
            wrappers.append({"type": "act_scale"})
        if cfg["rew_clip"] and cfg["is_train"] is not False:
            low, high = cls.clip_range if cfg["rew_clip"] is True else cfg["rew_clip"]
            wrappers.append({"type": "clip_reward", "min_reward": low, "max_reward": high})
        if cfg["norm_obs"].get("use_norm"):
            wrappers.append({"type": "obs_norm"})
        if cfg["norm_reward"].get("use_norm"):
            wrappers.append({"type": "reward_norm", "gamma": cfg["norm_reward"].get("reward_discount", 0.99)})
        if cfg.get("frame_stack"):
            wrappers.append({"type": "frame_stack", "stack_size": cfg["frame_stack"]})
        return wrappers

    @classmethod
    def own_kwargs(cls, cfg: Config) -> Section:
        """Return the arguments of the env's constructor: those of `kwargs`, which override other keys."""
        return dict(cfg["kwargs"])

    @classmethod
    def translated(cls, cfg: Config) -> Section:
        """Return a section of type 'gymnasium' for the same env; its wrappers end with those of `cfg.wrappers`.

        An id that is replaced by another is logged once.
        """
        whole = {**cls.config, **cfg}
        same = cls.ids.get(whole["env_id"], whole["env_id"])
        limit = whole["max_episode_steps"]
        if isinstance(same, SameEnv):
            limit = same.max_episode_steps if limit is None else limit
            same = same.env_id
        if same != whole["env_id"]:
            steps = "" if limit is None else f", with episodes of at most {limit} steps"
            one_time_info(f"env.env_id '{whole['env_id']}' is made as '{same}'{steps}")
        plain = {key: whole[key] for key in GymnasiumEnv.config}
        wrappers = [*cls.key_wrappers(whole), *whole["wrappers"]]
        own = {"env_id": same, "kwargs": cls.own_kwargs(whole), "max_episode_steps": limit, "wrappers": wrappers}
        return {**plain, **own}

    @classmethod
    def build(cls, cfg: Config) -> AnyEnv:
        """Return the env of a whole section, wrapped as its keys ask for, and recorded where `replay_path` is set."""
        if cfg["replay_path"] is None:
            return cls._without_film({**cfg, "wrappers": []})
        env = cls._without_film({**cfg, "wrappers": [], "render_mode": "rgb_array"})
        reason = _why_not_filmed(env)
        if reason is None:
            # Of a run's evaluations some: a film takes longer than its episode.
            return RecordGif(env, cfg["replay_path"], episodes="cubic" if cfg["is_train"] is False else "all")
        env.close()
        one_time_warning(f"env.replay_path is '{cfg['replay_path']}', but {cfg['env_id']} is not recorded: {reason}")
        return cls._without_film({**cfg, "wrappers": []})

    @classmethod
    def _without_film(cls, cfg: Config) -> AnyEnv:
        plain = cls.translated(cfg)
        return wrap(make_id(plain), plain["wrappers"])

    @classmethod
    def plain_config(cls, cfg: Config) -> Section | None:
        """Return the section of type 'gymnasium' for the same env; None for films and a sub-class that adds code."""
        whole = super().plain_config(cfg)
        return None if whole is None or whole["replay_path"] is not None else cls.translated(whole)

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        clip = cfg["rew_clip"]
        if not isinstance(clip, bool) and not _is_range(clip):
            yield "rew_clip", f"is {clip!r}; expected True, False or a range [low, high]"
        manager = cfg.get("manager", {}).get("type")
        if cfg["replay_path"] is not None and manager in _DRAW_NOTHING:
            yield "replay_path", f"is set, but env manager '{manager}' draws nothing; use 'subprocess', or leave it out"

    @classmethod
    def create_collector_env_cfg(cls, cfg: Config) -> list[EasyDict]:
        """Return one section for each of `collector_env_num` envs, which train and are not recorded."""
        return [EasyDict(each, is_train=True, replay_path=None) for each in lane_configs(cfg, "collector")]

    @classmethod
    def create_evaluator_env_cfg(cls, cfg: Config) -> list[EasyDict]:
        """Return one section for each of `evaluator_env_num` envs, the first of which is recorded if any is."""
        sections = [EasyDict(each, is_train=False) for each in lane_configs(cfg, "evaluator")]
        for section in sections[1:]:
            section.replay_path = None
        return sections

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Write every episode from the next reset on as a GIF into a folder, by default ./video.

        The env is made anew, with `render_mode="rgb_array"`.
        """
        section = {**self._section, "replay_path": replay_path or "./video", "is_train": None}
        recorded = self.build(section)
        self.env.close()
        self._section, self.env = section, recorded
        self._step_inside()

    def random_action(self) -> EnvAction:
        """Return a sample of the action space."""
        return self.action_space.sample()


def _is_range(value: Sequence[Any]) -> bool:
    bounds = [bound for bound in value if bound is not None]
    are_numbers = all(type(bound) in (int, float) for bound in bounds)
    return len(value) == 2 and bool(bounds) and are_numbers and bounds == sorted(bounds)


def _why_not_filmed(env: AnyEnv) -> str | None:
    """Return why an env cannot be recorded as a GIF, None if it can; the env is reset."""
    if importlib.util.find_spec("PIL") is None:
        return f"that needs pillow; install it with: {pip_line('viz')}"
    env.reset(seed=0)
    try:
        picture: Any = env.render()
    except Exception as error:  # whatever the env's drawing raises: pygame, OpenGL, a driver
        return f"{type(error).__name__}: {error}"
    return None if np.ndim(picture) == 3 else f"render() gave {type(picture).__name__}, expected RGB [H, W, 3]"
