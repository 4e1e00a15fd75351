"""Classes that a config names: where each is named, where its settings are, and which registry has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ding_like.config.tree import Tree, get_path, items, to_plain
from ding_like.types import Config
from ding_like.utils import registries
from ding_like.utils.bounds import ABOVE_0, ANY_NUMBER, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import Registry


class Part(NamedTuple):
    """One section of create_config."""

    name: str  # its key in create_config
    path: str  # where its settings lie in main_config
    registry: Registry[Any]
    default_type: str | None = None  # None: create_config must name one, unless the part is optional
    is_optional: bool = False
    is_open: bool = False  # a class that declares nothing may read anything
    template: Config = {}  # what the section has, whatever the class
    bounds: Mapping[str, Bounds] = {}  # of the numbers among that
    # main_config and the defaults so far -> the type, where neither create_config nor those defaults name one.
    choose_default: Callable[[Config, Tree], str] | None = None


# Keys that DI-engine's configs give to its default buffer, whose class they leave out.
_OF_ADVANCED = ("max_use", "max_staleness", "alpha", "beta", "anneal_step", "thruput_controller", "monitor")


def _buffer_type(main: Config, defaults: Tree) -> str:
    """Return "advanced", DI-engine's default, where its priorities or a key of its own are asked for, else "naive"."""
    priority = get_path(main, "policy.priority", get_path(defaults, "policy.priority"))
    own = get_path(main, "policy.other.replay_buffer", {})
    needs = priority is True or (isinstance(own, Mapping) and any(key in own for key in _OF_ADVANCED))
    return "advanced" if needs else "naive"


# What a config has beside the sections of its classes.
TOP_TEMPLATE: Config = {
    # Folder of the run.
    "exp_name": "default_experiment",
    # Seed of all random numbers of the run; `-s` replaces it.
    "seed": 0,
    # Points from which `ding --resume` continues; one more is saved when the run ends or is interrupted.
    "resume": {
        # Seconds between two saved points.
        "save_every_s": 60.0,
        # Env steps between two saved points; 0: by time only.
        "save_every_env_steps": 0,
        # Number of saved points that are kept.
        "keep": 2,
        # Gigabytes; a larger replay buffer is saved only when the run ends or is interrupted.
        "max_buffer_gb": 1.0,
    },
    # Where metrics go beside the run's folder, with their settings: {"wandb": {"project": "mine"}}.
    "trackers": {},
    # Of a run with several learners (--learners).
    "learners": {
        # Seconds without an answer after which a learner counts as lost, and the run ends.
        "timeout_s": 60.0,
    },
}

TOP_BOUNDS: Mapping[str, Bounds] = {
    "seed": FROM_0,
    "resume.save_every_s": FROM_0,
    "resume.save_every_env_steps": FROM_0,
    "resume.keep": FROM_1,
    "resume.max_buffer_gb": FROM_0,
    "learners.timeout_s": ABOVE_0,
}

ENV_TEMPLATE: Config = {
    "manager": {},
    "import_names": [],
    # Mean return of an evaluation that ends the run.
    "stop_value": 1e10,
    # Episodes of an evaluation.
    "n_evaluator_episode": 4,
    # Number of envs that collect side by side.
    "collector_env_num": 8,
    # Number of envs that evaluate side by side.
    "evaluator_env_num": 4,
    # Names of numbers in `info` at an episode's end, which are reported beside the return; "is_success" always is.
    "metrics": [],
}

# Each env takes memory, and each episode is played to its end before training continues: more is a mistake.
_UP_TO_A_MILLION = Bounds(1, 1_000_000)

ENV_BOUNDS: Mapping[str, Bounds] = {
    "stop_value": ANY_NUMBER,
    "n_evaluator_episode": _UP_TO_A_MILLION,
    "collector_env_num": _UP_TO_A_MILLION,
    "evaluator_env_num": _UP_TO_A_MILLION,
}

# Parents before children: a policy's defaults may hold settings of its learner, collector, evaluator and buffer.
PARTS = (
    Part("env", "env", registries.ENV_REGISTRY, is_open=True, template=ENV_TEMPLATE, bounds=ENV_BOUNDS),
    Part("env_manager", "env.manager", registries.ENV_MANAGER_REGISTRY, "base"),
    Part("policy", "policy", registries.POLICY_REGISTRY),
    Part("learner", "policy.learn.learner", registries.LEARNER_REGISTRY, "base"),
    Part("collector", "policy.collect.collector", registries.SERIAL_COLLECTOR_REGISTRY, "sample"),
    Part("evaluator", "policy.eval.evaluator", registries.SERIAL_EVALUATOR_REGISTRY, "interaction"),
    Part(
        "replay_buffer",
        "policy.other.replay_buffer",
        registries.BUFFER_REGISTRY,
        "naive",
        choose_default=_buffer_type,
    ),
    Part("league", "policy.other.league", registries.LEAGUE_REGISTRY, is_optional=True),
    Part("reward_model", "reward_model", registries.REWARD_MODEL_REGISTRY, is_optional=True),
)

# Sections of create_config that only other pipelines read.
OTHER_SECTIONS = ("commander", "comm_learner", "comm_collector")


def create_config_of(cfg: Config) -> Tree:
    """Return the create_config that names the classes of a compiled config."""
    create: Tree = {}
    for part in PARTS:
        section = get_path(cfg, part.path)
        if isinstance(section, Mapping) and "type" in section:
            create[part.name] = {key: to_plain(section[key]) for key in ("type", "import_names") if section.get(key)}
    return create


def class_defaults(cls: type[object]) -> Tree:
    """Return the defaults of a class: its `default_config()`, else its `config`, else nothing."""
    make = getattr(cls, "default_config", None)
    found = make() if callable(make) else getattr(cls, "config", None)
    if not isinstance(found, Mapping):
        return {}
    # cfg_type names the class, and a compiled config does that with `type`.
    return {key: to_plain(value) for key, value in items(found) if key != "cfg_type"}
