"""Train in two lines: `run = ding_like.train("dqn", "CartPole-v1", env_step=20_000)`."""

from __future__ import annotations

import base64
import dataclasses
import difflib
import html
import inspect
import itertools
import json
import logging
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import gymnasium

from ding_like.agent.loaded import Agent
from ding_like.agent.loaded import load as load_agent
from ding_like.config import compile_config, deep_merge, read_config, to_plain
from ding_like.config.tree import literal
from ding_like.entry.commands import env_factory
from ding_like.entry.modes import MODES, load, shipped_configs
from ding_like.entry.results import plot
from ding_like.entry.serial_entry import SerialMode, is_first
from ding_like.entry.training import (
    Plan,
    RunArguments,
    check_limits,
    checked_limit,
    make_plan,
    refuse_in_child,
    refuse_to_resume,
    serial_mode_of,
)
from ding_like.envs import EnvFactory
from ding_like.envs.spaces import ActionLayout
from ding_like.errors import ConfigError, DingError, RegistryError
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.parallel.core.state import STATE_FILE
from ding_like.pipeline.record import RunResult, resume_store
from ding_like.policy import Policy, get_policy_cls
from ding_like.report.experiment import check_experiment
from ding_like.types import Config
from ding_like.utils.files import RunFolder
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.registries import ENV_REGISTRY, POLICY_REGISTRY

if TYPE_CHECKING:
    import torch


logger = logging.getLogger(__name__)

# What an env may be given as: a gymnasium id, "module:Class", a class, or a function without arguments.
GivenEnv = str | type | Callable[[], Any]

_NUM_ENVS, _NUM_EPISODES = 8, 10
_RANDOM_ROWS = 1000
_NUMBERS = itertools.count(1)  # of envs that have no import path
_ENV_STEPS = 100_000
# What other libraries and our own pipelines call the limit.
_MEANT = dict.fromkeys(["total_timesteps", "timesteps", "max_env_step", "steps"], "env_step")


class TrainConfig(NamedTuple):
    """Two halves of a config, and where they are from."""

    main: dict[str, Any]
    create: dict[str, Any]
    source: str


@shown_as_by_the_command()
def train(
    policy_name: str | None = None,
    environment: GivenEnv | None = None,
    /,
    *,
    env_step: float | None = None,
    train_iter: float | None = None,
    policy: Config | None = None,
    env: Config | None = None,
    overrides: Config | Sequence[str] = (),
    config: str | Path | None = None,
    seed: int = 0,
    stop_value: float | None = None,
    exp_name: str | None = None,
    import_names: str | Sequence[str] = (),
    **unknown: NoReturn,
) -> Run:
    """Train a policy in an env, as `ding -m serial` or `serial_onpolicy` does of the same config, and return the run.

    `environment` is a gymnasium id, "module:Class", a class, or a function without arguments. Where a config of this
    policy and env comes with the package it is the base, else defaults; `config` is a file in place of both. `policy`
    and `env` are sections of settings, `overrides` a dict by path ({"policy.learn.batch_size": 128}) or texts as on
    the command line. Without a limit a run ends after 100,000 env steps, or when an evaluation reaches `stop_value`.
    `import_names` are modules that register what is your own.

    A run that is interrupted by Ctrl-C saves a point and raises KeyboardInterrupt; `Run(FOLDER).resume()` goes on.
    Raises ConfigError with every fault of the config at once.
    """
    refuse_in_child()
    if unknown:
        _refuse(unknown)
    names = [import_names] if isinstance(import_names, str) else list(import_names)
    built = _config(policy_name, environment, config, names, env)
    built = settings_of(built, policy, env)
    if stop_value is not None:
        built = settings_of(built, None, {"stop_value": stop_value})
    if exp_name is None and config is None:
        assert policy_name is not None and environment is not None, "_config saw to it"
        exp_name = name_of_run(policy_name, environment, seed)
    if env_step is None and train_iter is None:
        env_step = _ENV_STEPS
    arguments = RunArguments("serial", seed)._replace(**_checked_limits(env_step, train_iter))
    asked, given = overrides_of(overrides), (built.main, built.create)
    plan: Plan[None] = make_plan(given, arguments, overrides=asked, exp_name=exp_name)
    plan = replace(plan, arguments=plan.arguments._replace(mode=serial_mode_of(plan.cfg)))
    return Run(SerialMode(plan).train().exp_name)


def _checked_limits(env_step: float | None, train_iter: float | None) -> dict[str, Any]:
    given = {"env_step": env_step, "train_iter": train_iter}
    return {f"max_{name}": checked_limit(name, limit) for name, limit in given.items() if limit is not None}


def _refuse(unknown: Mapping[str, Any]) -> None:
    """Raise ConfigError with every keyword argument that `train` does not take, and the one that may be meant."""
    takes = [name for name, each in inspect.signature(train).parameters.items() if each.kind is each.KEYWORD_ONLY]
    texts = []
    for name in unknown:
        close = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, takes, n=1, cutoff=0.75)
        texts.append(f"train() takes no argument {name!r}{f'; did you mean {close[0]}?' if close else ''}")
    raise ConfigError("\n".join([*texts, f"  It takes a policy and an env without names, then {', '.join(takes)}."]))


def _config(
    policy: str | None,
    env: GivenEnv | None,
    config: str | Path | None,
    import_names: list[str],
    settings: Config | None,
) -> TrainConfig:
    if config is not None:
        if policy is not None or env is not None:
            raise ConfigError("train() was given a config and the names of a policy or env too: give one of the two.")
        return config_of_file(config)
    if policy is None or env is None:
        raise ConfigError(
            "train() needs a policy and an env, such as train('dqn', 'CartPole-v1'), or a file: train(config='FILE')."
        )
    return config_of_names(policy, env, import_names, settings=settings)


# --- the config


def config_of_file(path: str | Path) -> TrainConfig:
    """Return what a config file says."""
    file = read_config(path)
    return TrainConfig(to_plain(file.main_config), to_plain(file.create_config), str(path))


def config_of_names(
    policy: str, env: GivenEnv, import_names: list[str], *, settings: Config | None = None
) -> TrainConfig:
    """Return the shipped config of a policy and an env, where there is one, else one with defaults that learn.

    `settings` are the caller's of the env: its wrappers may change what actions there are. Raises ConfigError for a
    policy or an env that is not known, and for actions that the policy does not take.
    """
    if isinstance(env, str) and env in POLICY_REGISTRY and env not in ENV_REGISTRY:
        raise ConfigError(f"the env is '{env}', which is a policy: the policy comes first, as in train('{env}', ENV).")
    cls = _policy_class(policy, import_names)
    shipped = _shipped(policy, env) if isinstance(env, str) else None
    if shipped is not None:
        place = f"dizoo/{str(shipped).rpartition('/dizoo/')[2]}"
        logger.info("config      of the shipped %s (settings of yours go before it)", place)
        return config_of_file(shipped)._replace(source=f"{policy} on {env}")
    section = _env_section(env, import_names)
    _check_actions(policy, cls, env, {**section, **(settings or {})})
    create: dict[str, Any] = {
        "env": {key: section[key] for key in ("type", "import_names") if key in section},
        "env_manager": {"type": "base"},
        "policy": {"type": policy, "import_names": import_names},
    }
    own = {key: value for key, value in section.items() if key not in ("type", "import_names")}
    numbers = dict(collector_env_num=_NUM_ENVS, evaluator_env_num=_NUM_EPISODES, n_evaluator_episode=_NUM_EPISODES)
    main = {"env": {**own, **numbers}, "policy": _policy_section(cls)}
    return TrainConfig(main, create, f"{policy} on {called(env)}")


def called(env: GivenEnv) -> str:
    """Return what an env is called."""
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


def name_of_run(policy: str, env: GivenEnv, seed: int) -> str:
    """Return what the folder of a run is called by default: cartpole_dqn_seed0."""
    words = re.sub(r"-v\d+$", "", called(env)).rpartition("/")[2].rpartition(":")[2]
    return f"{re.sub(r'[^a-z0-9]+', '_', words.lower()).strip('_')}_{policy}_seed{seed}"


def overrides_of(given: Config | Sequence[str]) -> list[str]:
    """Return `path.to.key=value` texts of a dict by path, or of such texts."""
    if isinstance(given, Mapping):
        return [f"{path}={literal(value)}" for path, value in given.items()]
    return list(given)


def _policy_class(name: str, import_names: list[str]) -> Any:
    if not isinstance(name, str):
        raise ConfigError(f"the policy is {name!r}; expected a name such as 'dqn'. `ding -q policy` lists them.")
    try:
        return get_policy_cls({"type": name, "import_names": import_names})
    except RegistryError as error:
        raise ConfigError(str(error)) from error


def _shipped(policy: str, env_id: str) -> Path | None:
    """Return the shipped config of a policy for an env's id, None where there is none."""
    wanted = _letters(re.sub(r"-v\d+$", "", env_id))
    for name, path in shipped_configs().items():
        env_name = name.removesuffix(f"_{policy}")
        if env_name != name and wanted.startswith(_letters(env_name)):
            with suppress(DingError):  # of an env whose package is missing: the env's own error comes soon enough
                cfg = compile_config(*read_config(path), source=str(path), save=False, renew_dir=False, quiet=True)
                if cfg.env.get("env_id") == env_id and cfg.policy.type == policy:
                    return path
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _env_section(env: GivenEnv, import_names: list[str]) -> dict[str, Any]:
    """Return the section of an env; what has no import path is registered under a name of its own."""
    if isinstance(env, str):
        return to_plain(env_factory(env, {}, import_names).cfg)
    if isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"the env is {env!r}, one object; expected what makes one, as several are played at once: an id, a class, "
            "or a function without arguments: lambda: env."
        )
    if not callable(env):
        raise ConfigError(f"the env is {env!r}; expected a gymnasium id, 'module:Class', a class or a function.")
    module, name = getattr(env, "__module__", ""), getattr(env, "__qualname__", "")
    # A name with a dot is of what was made inside a function, or a lambda.
    if getattr(sys.modules.get(module), name, None) is env and name.isidentifier():
        if module == "__main__":
            logger.info("the env is %s of this program alone: `ding -m ... -c` needs it in a module of its own", name)
        return {"type": f"{module}:{name}"}
    return {"type": _registered(env)}


def _registered(env: Callable[[], Any]) -> str:
    takes = [each for each in inspect.signature(env).parameters.values() if each.default is inspect.Parameter.empty]
    if any(each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in takes):
        raise ConfigError(f"the env is {env!r}, which needs arguments; expected one without: lambda: MyEnv(size=8).")
    name = f"given_env_{next(_NUMBERS)}"
    ENV_REGISTRY.register(name)(lambda cfg: env())
    logger.info("the env is a function of this program alone: `ding -m ... -c` needs it in a module of its own")
    return name


def _check_actions(policy: str, cls: Any, env: GivenEnv, section: Mapping[str, Any]) -> None:
    """Refuse, before anything is written, actions that the policy does not take, naming those that do."""
    with closing(EnvFactory(section)()) as made:
        space = getattr(made, "action_space", None)
        if not isinstance(space, gymnasium.Space):
            raise ConfigError(
                f"{called(env)} has the action_space {space!r}, expected a space of gymnasium.spaces, set in its "
                "constructor."
            )
        kind = type(ActionLayout(space).space).__name__
    takes = getattr(cls, "action_spaces", None)
    if takes is None or kind in takes:
        return
    spaces = {name: getattr(POLICY_REGISTRY.get(name), "action_spaces", None) for name in POLICY_REGISTRY.names()}
    fitting = [name for name, kinds in spaces.items() if kind in (kinds or ())]
    advice = f"policies that do: {', '.join(fitting)}" if fitting else "wrap the env so that they are"
    raise ConfigError(f"policy '{policy}' takes actions of {' or '.join(takes)}, {called(env)} has {space}: {advice}.")


def _policy_section(cls: Any) -> dict[str, Any]:
    """Return settings that learn within some tens of thousands of env steps, where a policy's own defaults do not."""
    defaults = cls.default_config()
    section: dict[str, Any] = {"discount_factor": 0.99}
    if defaults.on_policy or defaults.collect.get("n_episode") is not None:
        section["eval"] = {"evaluator": {"eval_freq": 200}}
        return section
    section["eval"] = {"evaluator": {"eval_freq": 1000}}
    section["collect"] = {"n_sample": _NUM_ENVS}
    section["learn"] = {"update_per_collect": _NUM_ENVS}
    if cls.sample_unit == "row" and "random_collect_size" in defaults and not cls.rows_are_sequences:
        section["random_collect_size"] = _RANDOM_ROWS
    return section


def settings_of(config: TrainConfig, policy: Config | None, env: Config | None) -> TrainConfig:
    """Return a config with settings of the caller's in place of its own."""
    given = {name: section for name, section in (("policy", policy), ("env", env)) if section is not None}
    for name, section in given.items():
        if not isinstance(section, Mapping):
            raise ConfigError(f"{name} is {section!r}; expected its settings, such as {name}=dict(...).")
    return config._replace(main=deep_merge(config.main, given))


class Picture:
    """Picture of curves, which a notebook shows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.read_bytes()

    def _repr_png_(self) -> bytes | None:
        return self._data if self._data.startswith(b"\x89PNG") else None

    def _repr_svg_(self) -> str | None:
        return None if self._repr_png_() is not None else self._data.decode()

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file of the same kind; return its path."""
        target = Path(path)
        if target.suffix != self.path.suffix:
            raise ConfigError(f"the picture is a {self.path.suffix} file, got '{target}': give that ending.")
        target.write_bytes(self._data)
        return target

    def __repr__(self) -> str:
        return f"Picture('{self.path}')"


class Run:
    """Run in a folder; a notebook shows its result and curve."""

    def __init__(self, folder: str | Path) -> None:
        """Raise ConfigError for a folder without a run."""
        self.folder = Path(folder)
        self._agent: tuple[tuple[int, int], Agent] | None = None
        check_experiment(self.folder)

    @property
    def is_finished(self) -> bool:
        """Whether the run is over."""
        return (self.folder / "result.json").is_file()

    @property
    def result(self) -> RunResult:
        """Result of the run. Raises ConfigError while it is not over."""
        if not self.is_finished:
            raise ConfigError(
                f"the run in '{self.folder}' has no result.json: it was interrupted or still runs. resume() goes on "
                "with an interrupted one."
            )
        found = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        return RunResult(
            **{each.name: found[each.name] for each in dataclasses.fields(RunResult) if each.name in found}
        )

    @property
    def agent(self) -> Agent:
        """Agent of the best checkpoint, or of the last one before there is an evaluation."""
        best = self.folder / "ckpt/ckpt_best.pth.tar"
        if not best.is_file():
            return load_agent(self.folder, which="last")
        stat = best.stat()
        stamp = stat.st_ino, stat.st_mtime_ns
        if self._agent is None or self._agent[0] != stamp:
            self._agent = stamp, load_agent(self.folder)
        return self._agent[1]

    def plot(self, out: str | Path | None = None) -> Picture:
        """Draw the learning curve, by default to `curve.png` of the folder; return the picture."""
        return Picture(plot([self.folder], out))

    def resume(self, *, env_step: float | None = None, train_iter: float | None = None) -> Run:
        """Resume from the newest saved point, by default to the limits that the run was started with; return the run.

        With a higher `env_step` a run that is over is resumed too. Raises CheckpointError if there is no saved point.
        """
        resume_pipeline(str(self.folder), **_checked_limits(env_step, train_iter))
        return self

    def __repr__(self) -> str:
        if not self.is_finished:
            return f"Run('{self.folder}', not finished)"
        result = self.result
        return f"Run('{self.folder}', {result.env_step:,} env steps, return {result.eval_value:.4g})"

    def _repr_html_(self) -> str:
        rows = {"folder": f"{self.folder}/", "state": "not finished"}
        if self.is_finished:
            result, episodes = self.result, f"{len(self.result.eval_value_raw)} episodes"
            best = "" if result.best_eval is None else f", best {result.best_eval:.4g}"
            del rows["state"]
            rows["return"] = f"{result.eval_value:.4g} of the last model over {episodes}{best}"
            rows["took"] = f"{result.env_step:,} env steps, {result.train_iter:,} updates, {result.duration_s:.1f} s"
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        curve = ""
        with tempfile.TemporaryDirectory() as folder, suppress(ConfigError):  # no returns yet
            data = plot([self.folder], Path(folder) / "curve.svg").read_bytes()
            curve = f'<img src="data:image/svg+xml;base64,{base64.b64encode(data).decode()}">'
        return f"<table>{cells}</table>{curve}"


@shown_as_by_the_command()
def resume_pipeline(
    exp_name: str,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
    *,
    learners: int | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Policy | RunResult | None:
    """Resume an interrupted run from its newest valid saved point, and return the policy.

    `exp_name` is the run's folder. `env_setting` and `model` must be given again if the run was started with them; the
    limits are those it was started with unless others are given, and there are as many learners. A run of mode ray may
    be resumed with other `workers`, and on the cluster at another `address`. Of a run with a coordinator the result is
    returned. Raises CheckpointError if there is nothing to resume, and ConfigError while another process trains there,
    or if the run is over and no limit above what it has come to is given.
    """
    refuse_in_child()
    limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
    check_limits(**limits)
    serial, ray = {"env_setting": env_setting, "model": model, "learners": learners}, (workers, address)
    with RunFolder() as folder:
        is_run = (Path(exp_name) / "total_config.py").is_file()
        if is_run and is_first():  # of torchrun's processes, one holds the folder for all
            folder.hold(exp_name)
        is_coordinated = (Path(exp_name) / STATE_FILE).exists()
        arguments = None if is_coordinated else RunArguments(**resume_store(exp_name).newest_meta()["arguments"])
        mode = "parallel" if arguments is None else arguments.mode
        if mode != "ray" and ray != (None, None):
            kind = "with a coordinator" if arguments is None else f"of mode {mode}"
            raise ConfigError(f"{exp_name} is a run {kind}: --workers and --address are of mode ray.")
        if not mode.startswith("serial") and any(each is not None for each in serial.values()):
            raise ConfigError(f"{exp_name} is a run of mode {mode}, which takes no --learners, env_setting or model.")
        if arguments is None:
            from ding_like.entry.parallel_entry import resume_coordinated

            return resume_coordinated(exp_name, folder, **limits)
        options = {"ray": {"workers": workers, "address": address}}.get(mode, {})
        run = load(MODES[mode].home)
        given = serial if mode.startswith("serial") else options
        return run.of(None, _with_limits(exp_name, arguments, limits), exp_name=exp_name, **given).start()


def _with_limits(exp_name: str, arguments: RunArguments, limits: dict[str, Any]) -> RunArguments:
    """Return the arguments with the `limits` that are given (not None) in place of the run's own.

    Raises ConfigError for a run that is over, unless a limit above what it has come to is given.
    """
    given = {name: limit for name, limit in limits.items() if limit is not None}
    arguments, result = arguments._replace(**given), Path(exp_name) / "result.json"
    if not result.is_file():
        return arguments
    found = json.loads(result.read_text(encoding="utf-8"))
    env_step, train_iter = int(found["env_step"]), int(found["train_iter"])
    has_more = bool(given) and arguments.max_env_step > env_step and arguments.max_train_iter > train_iter
    if not has_more and resume_store(exp_name).steps()[0] <= (env_step or train_iter):
        refuse_to_resume(exp_name, env_step, train_iter)
    return arguments
