"""Base class of gymnasium envs whose section of a config has DI-engine's keys."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from easydict import EasyDict

from ding_like.envs.factory import lane_configs
from ding_like.envs.gymnasium_env import GymnasiumEnv, make_id
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.record_gif import RecordGif
from ding_like.types import EnvAction, Section
from ding_like.utils.imports import pip_line
from ding_like.utils.log import one_time_info, one_time_warning

Config = Mapping[str, Any]  # of an env: texts, numbers, lists and sections

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
        return {
            **plain,
            "env_id": same,
            "kwargs": cls.own_kwargs(whole),
            "max_episode_steps": limit,
            "wrappers": wrappers,
        }

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
    return (
        len(value) == 2
        and bool(bounds)
        and all(type(bound) in (int, float) for bound in bounds)
        and (bounds == sorted(bounds))
    )


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
