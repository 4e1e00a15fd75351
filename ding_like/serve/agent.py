"""Build an agent that acts for clients: a policy with the weights of one checkpoint, which never change."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from ding_like.agent.description import read_description
from ding_like.agent.loaded import check_finite, finite_actor
from ding_like.agent.messages import ActRequest, ActResponse, by_flat_name
from ding_like.agent.observations import (
    ObservationReader,
    Rows,
    Space,
    describe_space,
    read_columns,
    read_is_first,
)
from ding_like.agent.weights import counter, load_weights
from ding_like.agent.wrappers import AgentWrappers, WrapperSplit, rows_split
from ding_like.comm.rest.refusal import RefusedError
from ding_like.data.modes import EvalMode
from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.components import build_policy
from ding_like.types import Array, Obs
from ding_like.utils.checkpoint import load_state
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

MAX_BATCH = 1024


class ServedVersion(NamedTuple):
    """Version of the weights that act. `number` grows by one with every checkpoint that a server loads."""

    number: int
    file: str
    train_iter: int | None  # updates that the weights have had, None where the file does not say
    env_step: int | None

    def describe(self) -> dict[str, Any]:
        """Return the version as a plain dict, for JSON."""
        return self._asdict()

    def __str__(self) -> str:
        known = [("iteration", self.train_iter), ("env step", self.env_step)]
        return ", ".join([self.file, *(f"{name} {value:,}" for name, value in known if value is not None)])


class Blueprint:
    """All of a run but its weights: the spaces of its clients, its wrappers, and how to build its policy."""

    def __init__(
        self, *, fitted: Mapping[str, Any], split: WrapperSplit, name: str, max_batch: int = MAX_BATCH
    ) -> None:
        """`fitted` is the policy section as `fit_policy_config` returns it, `name` what the env is called."""
        self._fitted = fitted
        self.split = split
        self.env_name = name
        self.policy_name = str(fitted["type"])
        self._has_warned = False
        self.reader = ObservationReader(split.observation_space, max_batch=max_batch)

    @classmethod
    def of(
        cls,
        exp_name: str | Path,
        *,
        client_wraps: bool = False,
        on_cpu: bool = False,
        max_batch: int = MAX_BATCH,
        import_names: Sequence[str] = (),
    ) -> Blueprint:
        """Return the blueprint of an experiment's folder, whose env is not needed.

        With `client_wraps` clients apply the wrappers that need earlier steps; `on_cpu` overrides a config with a GPU.
        `import_names` are modules of the run's own that it may use. Raises ConfigError for a folder without a run,
        and for wrappers that cannot be applied here.
        """
        description = read_description(exp_name, import_names=import_names)
        if description.has_own_model:
            raise ConfigError(
                f"the run in '{exp_name}' was given its model as an object, which its folder does not hold: serve a "
                "run whose policy.model names a registered model."
            )
        split = rows_split(description.split(remembers=False, client_wraps=client_wraps))
        fitted = dict(description.policy)
        if on_cpu:
            fitted["cuda"] = False
        elif fitted.get("cuda") and not torch.cuda.is_available():
            raise ConfigError("this run trained on a GPU (policy.cuda is True), and torch sees none here: give --cpu.")
        return cls(fitted=fitted, split=split, name=description.env_name, max_batch=max_batch)

    @property
    def action_space(self) -> Space:
        """Return the action space of the client's env."""
        return self.split.action_space

    def make(self, path: Path, number: int = 1) -> Agent:
        """Return an agent with the weights of a checkpoint.

        Raises CheckpointError for one that is missing, torn, of another model, or has numbers that are not finite.
        """
        state = load_state(path)
        mode = build_policy(self._fitted, modes=["eval"]).eval_mode
        if not hasattr(mode, "actor") and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the policy is in DI-engine's style and keeps its state itself: with every request an episode begins."
            )
        mode = adapt_eval_mode(mode)
        statistics = load_weights(mode, state, path)
        version = ServedVersion(number, path.name, counter(state, "last_iter"), counter(state, "last_step"))
        try:
            return Agent(mode, AgentWrappers(self.split, statistics), self.reader, version)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


class Agent:
    """Policy with the weights of one checkpoint, which answers one request at a time.

    Clients keep the recurrent state: it comes with a request and is returned with the response. Without it, and where
    `is_first` is set, a row is the first step of an episode.
    """

    def __init__(self, mode: EvalMode, path: AgentWrappers, reader: ObservationReader, version: ServedVersion) -> None:
        self.version = version
        self._actor = finite_actor(mode.actor)
        self._path = path
        self._reader = reader
        # Evaluation is deterministic in this package's policies; a user's own may draw random numbers.
        self._rng = make_rng(0, "serve")
        self.state_columns: dict[str, tuple[tuple[int, ...], Any]] = {}
        self._try()

    @property
    def wrappers(self) -> list[str]:
        """Return the names of the wrappers that are applied to observations and actions."""
        return self._path.names

    def read(self, request: ActRequest) -> tuple[Rows, Obs, dict[str, Array] | None, Array]:
        """Return (rows, the policy's observations, its state, is_first [R]). Raises RefusedError for a bad request."""
        rows = self._reader.read(request.obs)
        state = None
        if request.state is not None:
            if not self.state_columns:
                raise RefusedError(
                    "schema", "'state' was sent to a policy that is not recurrent, expected none: leave it out"
                )
            state = read_columns(request.state, self.state_columns, rows)
        if request.is_first is not None:
            is_first = read_is_first(request.is_first, rows)
            if state is None and not is_first.all():
                raise RefusedError(
                    "schema", "'is_first' is false somewhere, which needs the 'state' of the last answer"
                )
        else:
            is_first = np.full(rows.num, state is None)
        return rows, self._path.to_policy(rows), state, is_first

    def act(self, rows: Rows, obs: Obs, state: Mapping[str, Array] | None, is_first: Array) -> ActResponse:
        """Return the response to what `read` returned; call it from one thread at a time.

        Raises FloatingPointError where the network overflows.
        """
        actor = self._actor
        if state is None:
            actor.reset()
        else:
            actor.load_state_dict(dict(state))
        columns = actor.act(obs, lanes=np.arange(rows.num), is_first=is_first, rng=self._rng)
        check_finite("the policy chooses", {"action": columns["action"]})
        after = actor.state_dict() if self.state_columns else {}
        action = self._path.to_client(columns["action"])
        return ActResponse(action, after, self.version.describe(), rows.is_batch)

    def _try(self) -> None:
        """Act once, to check that the policy works and to learn the shapes of its recurrent state."""
        rows = self._reader.read(by_flat_name(self._reader.example()))
        try:
            self.act(rows, self._path.to_policy(rows), None, np.ones(1, bool))
        except FloatingPointError as error:
            raise CheckpointError("its weights choose actions that are not finite: its training has failed.") from error
        kept = self._actor.state_dict()
        if not all(isinstance(column, np.ndarray) and column.shape[:1] == (1,) for column in kept.values()):
            raise ConfigError(
                f"the policy's actor keeps {sorted(kept)}, which are no columns [R, ...] of arrays by name: such a "
                "state cannot be handed to a client. Let the actor's state_dict() return one row for each lane."
            )
        self.state_columns = {name: (column.shape[1:], column.dtype) for name, column in kept.items()}


def describe_agent(agent: Agent, blueprint: Blueprint) -> dict[str, Any]:
    """Return what clients need to know of an agent, as a plain dict for JSON."""
    return {
        "env": blueprint.env_name,
        "policy": blueprint.policy_name,
        "obs": blueprint.reader.describe(),
        "action": describe_action(blueprint.action_space),
        "state": {name: list(shape) for name, (shape, _) in agent.state_columns.items()},
        "wrappers": agent.wrappers,
        "client_wrappers": list(blueprint.split.client_wrappers),
        "max_batch": blueprint.reader.max_batch,
    }


def describe_action(space: Space) -> dict[str, Any]:
    """Return the description of an action as a plain dict, with the bounds of a Box that has them."""
    told = describe_space(space)
    if isinstance(space, spaces.Box) and space.is_bounded():
        told |= {"low": space.low.tolist(), "high": space.high.tolist()}
    return told
