"""Make what acts for clients: a policy with the weights of one checkpoint, which it keeps for good."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from ding_like.comm.flat_state import flatten_state
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.serve.messages import Answer, Question
from ding_like.config import compile_config, read_config
from ding_like.data.rows import adapt_eval_mode
from ding_like.envs import get_vec_env_setting, make_env
from ding_like.envs.solo import SoloEnv
from ding_like.errors import CheckpointError, ConfigError, DingError
from ding_like.pipeline.build import build_policy, build_single_env, fit_policy_config
from ding_like.pipeline.serve.observations import (
    ObservationReader,
    Rows,
    Space,
    describe_space,
    read_columns,
    read_is_first,
)
from ding_like.pipeline.serve.wrappers import Division, WrapperPath, divide
from ding_like.pipeline.statistics import load_agent
from ding_like.policy.random_policy import RandomActor
from ding_like.types import Array, EvalMode, Obs, State
from ding_like.utils.checkpoint import load_state
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

MAX_BATCH = 1024


class ServedVersion(NamedTuple):
    """Say which weights act. `number` grows by one with every checkpoint that a server takes."""

    number: int
    file: str
    train_iter: int | None  # updates that the weights have had, None where the file does not say
    env_step: int | None

    def describe(self) -> dict[str, Any]:
        """Return it JSON-like."""
        return self._asdict()

    def __str__(self) -> str:
        known = [("iteration", self.train_iter), ("env step", self.env_step)]
        return ", ".join([self.file, *(f"{name} {value:,}" for name, value in known if value is not None)])


class Blueprint:
    """Know all of a run but its weights: what clients send, what is made of it, and how its policy is built."""

    def __init__(self, *, fitted: Mapping[str, Any], division: Division, name: str, max_batch: int = MAX_BATCH) -> None:
        """`fitted` is the policy section as `fit_policy_config` returns it, `name` what the env is called."""
        self._fitted = fitted
        self.division = division
        self.env_name = name
        self.policy_name = str(fitted["type"])
        self._has_told = False
        self.reader = ObservationReader(division.observation_space, max_batch=max_batch)

    @classmethod
    def of(
        cls, exp_name: str | Path, *, client_wraps: bool = False, on_cpu: bool = False, max_batch: int = MAX_BATCH
    ) -> Blueprint:
        """Return that of an experiment's folder. An env is made to see its spaces, and closed again.

        With `client_wraps` wrappers that remember earlier steps are the clients' matter; `on_cpu` leaves the config's
        GPU aside. Raises ConfigError for a folder without a run, and for wrappers that cannot be applied here.
        """
        config_file = Path(exp_name) / "total_config.py"
        if not config_file.is_file():
            raise ConfigError(f"'{exp_name}' is not an experiment folder: it has no total_config.py.")
        file = read_config(config_file)
        cfg = compile_config(file.main_config, file.create_config, source=str(config_file), renew_dir=False, save=False)
        _, _, env_cfgs = get_vec_env_setting(cfg.env, collect=False)
        env_cfg = env_cfgs[0]
        division = divide(env_cfg, client_wraps=client_wraps)
        manager = build_single_env(lambda: _one_player(make_env(env_cfg)))
        try:
            fitted = fit_policy_config(cfg.policy, manager)
        finally:
            manager.close()
        if on_cpu:
            fitted["cuda"] = False
        elif fitted.get("cuda") and not torch.cuda.is_available():
            raise ConfigError("this run trained on a GPU (policy.cuda is True), and torch sees none here: give --cpu.")
        name = str(cfg.env.get("env_id") or cfg.env.type)
        return cls(fitted=fitted, division=division, name=name, max_batch=max_batch)

    @property
    def action_space(self) -> Space:
        """Return the action space of the client's env."""
        return self.division.action_space

    def make(self, path: Path, number: int = 1) -> Agent:
        """Return an agent with the weights of a checkpoint.

        Raises CheckpointError for one that is missing, torn, of another model, or has numbers that are not finite.
        """
        state = load_state(path)
        mode = build_policy(self._fitted, modes=["eval"]).eval_mode
        if not hasattr(mode, "actor") and not self._has_told:
            self._has_told = True
            logger.warning(
                "the policy is in DI-engine's style and keeps its state itself: with every request an episode begins."
            )
        mode = adapt_eval_mode(mode)
        statistics = _load_weights(mode, state, path)
        version = ServedVersion(number, path.name, _counter(state, "last_iter"), _counter(state, "last_step"))
        try:
            return Agent(mode, WrapperPath(self.division, statistics), self.reader, version)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


class Agent:
    """Answer questions with the weights of one checkpoint, one question at a time.

    Recurrent state is the client's to keep: it comes with the question and goes with the answer. Without it, and where
    `is_first`, a row is the first step of an episode.
    """

    def __init__(self, mode: EvalMode, path: WrapperPath, reader: ObservationReader, version: ServedVersion) -> None:
        self.version = version
        self._actor = mode.actor
        self._path = path
        self._reader = reader
        # Evaluations choose without chance; a policy of a user's own may draw.
        self._rng = make_rng(0, "serve")
        self.state_columns: dict[str, tuple[tuple[int, ...], Any]] = {}
        self._try()

    @property
    def wrappers(self) -> list[str]:
        """Return the names of the wrappers that are applied to observations and actions."""
        return self._path.names

    def read(self, question: Question) -> tuple[Rows, Obs, dict[str, Array] | None, Array]:
        """Return (rows, what the policy observes, its state, is_first [R]); RefusedError for what does not fit."""
        rows = self._reader.read(question.obs)
        state = None
        if question.state is not None:
            if not self.state_columns:
                raise RefusedError("schema", "there is a 'state', but this policy remembers nothing: leave it out")
            state = read_columns(question.state, self.state_columns, rows)
        if question.is_first is not None:
            is_first = read_is_first(question.is_first, rows)
            if state is None and not is_first.all():
                raise RefusedError(
                    "schema", "'is_first' is false somewhere, which needs the 'state' of the last answer"
                )
        else:
            is_first = np.full(rows.num, state is None)
        return rows, self._path.to_policy(rows), state, is_first

    def act(self, rows: Rows, obs: Obs, state: Mapping[str, Array] | None, is_first: Array) -> Answer:
        """Return the answer to what `read` returned; one call at a time."""
        actor = self._actor
        if state is None:
            actor.reset()
        else:
            actor.load_state_dict(dict(state))
        columns = actor.act(obs, lanes=np.arange(rows.num), is_first=is_first, rng=self._rng)
        after = actor.state_dict() if self.state_columns else {}
        action = self._path.to_client(columns["action"])
        return Answer(action, after, self.version.describe(), rows.is_batch)

    def _try(self) -> None:
        """Act once, which shows what the policy remembers and that it acts at all."""
        rows = self._reader.read(_flat(self._reader.example()))
        answer = self.act(rows, self._path.to_policy(rows), None, np.ones(1, bool))
        if answer.action.dtype.kind == "f" and not np.isfinite(answer.action).all():
            raise CheckpointError("its weights choose actions that are not finite.")
        kept = self._actor.state_dict()
        if not all(isinstance(column, np.ndarray) and column.shape[:1] == (1,) for column in kept.values()):
            raise ConfigError(
                f"the policy's actor keeps {sorted(kept)}, which are no columns [R, ...] of arrays by name: such a "
                "state cannot be handed to a client. Let the actor's state_dict() return one row for each lane."
            )
        self.state_columns = {name: (column.shape[1:], column.dtype) for name, column in kept.items()}


def describe_agent(agent: Agent, blueprint: Blueprint) -> dict[str, Any]:
    """Return what clients are to know of an agent, JSON-like."""
    return {
        "env": blueprint.env_name,
        "policy": blueprint.policy_name,
        "obs": blueprint.reader.describe(),
        "action": describe_action(blueprint.action_space),
        "state": {name: list(shape) for name, (shape, _) in agent.state_columns.items()},
        "wrappers": agent.wrappers,
        "client_wrappers": list(blueprint.division.of_client),
        "max_batch": blueprint.reader.max_batch,
    }


def describe_action(space: Space) -> dict[str, Any]:
    """Return what an action is, JSON-like, with the bounds of a Box where it has any."""
    told = describe_space(space)
    if isinstance(space, spaces.Box) and space.is_bounded():
        told |= {"low": space.low.tolist(), "high": space.high.tolist()}
    return told


def _load_weights(mode: EvalMode, state: State, path: Path) -> Any:
    """Put a checkpoint's weights into a mode; return the statistics of wrappers that came with them."""
    own = mode.state_dict()
    try:
        statistics = load_agent(mode, dict(state))
    except DingError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint of this run's policy ({type(error).__name__}: {error})."
        ) from error
    expected, given = flatten_state(own), flatten_state({name: state[name] for name in own if name in state})
    for name, tensor in given.items():
        if name in expected and tensor.dtype != expected[name].dtype:
            raise CheckpointError(f"{path} has {name} as {tensor.dtype}, the policy has {expected[name].dtype}.")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path} has numbers in {name} that are not finite: its training has failed.")
    return statistics


def _counter(state: State, name: str) -> int | None:
    value = state.get(name)
    return None if value is None else int(value)


def _one_player(env: Any) -> Any:  # Any: an env, or a game
    return SoloEnv(env, RandomActor(env.action_space)) if hasattr(env, "num_players") else env


def _flat(example: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(example, dict):
        return {path: example}
    flat: dict[str, Any] = {}
    for key, inner in example.items():
        flat.update(_flat(inner, f"{path}/{key}" if path else key))
    return flat
