"""Act by what a run trained: the agent that `ding_like.load` returns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from ding_like.agent.description import AgentDescription, read_description
from ding_like.agent.layers import AnyEnv
from ding_like.agent.messages import by_flat_name
from ding_like.agent.observations import ObservationReader, Rows, Space
from ding_like.agent.weights import counter, find_checkpoint, load_weights, make_policy, run_folder
from ding_like.agent.wrappers import AgentWrappers, RowStacks, WrapperSplit
from ding_like.comm.rest.refusal import RefusedError
from ding_like.data.rows import adapt_collect_mode, adapt_eval_mode
from ding_like.envs.wrappers import adopt_wrapper_states, wrap, wrapper_states
from ding_like.errors import CheckpointError, SchemaError
from ding_like.policy.forward import ForwardActor
from ding_like.types import Array, Forward, Obs, State
from ding_like.utils.checkpoint import load_state
from ding_like.utils.seeding import make_rng

logger = logging.getLogger(__name__)

_MAX_BATCH = 2**31


class FiniteForward:
    """Network whose observations, output and recurrent state must be finite, else FloatingPointError is raised."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self.initial_state = forward.initial_state

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the network: an export needs its `run_tensors`."""
        return getattr(self._forward, name)

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        check_finite("the policy observes", obs if isinstance(obs, dict) else {"": obs})
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            output, after = self._forward(obs, state)
        check_finite("the policy's network computes", {"": output, **after})
        return output, after


def finite_actor(actor: Any) -> Any:
    """Return an actor of a policy's mode; its network, where it can be seen, is a `FiniteForward` from now on."""
    if isinstance(actor, ForwardActor):
        actor.forward = FiniteForward(actor.forward)
    return actor


def check_finite(what: str, columns: Mapping[str, Array]) -> None:
    """Raise FloatingPointError for columns [R, ...] with a NaN or an infinity; `what` begins the message."""
    for column in columns.values():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            rows = np.flatnonzero(~np.isfinite(column).reshape(len(column), -1).all(axis=1))
            raise FloatingPointError(
                f"{what} {column[~np.isfinite(column)][0]} for the observation in row "
                f"{', '.join(map(str, rows[:5]))}, expected finite numbers: give observations as the env gives them"
            )


class LoadedVersion(NamedTuple):
    """Weights that act."""

    path: Path
    train_iter: int | None  # updates that the weights have had, None where the file does not say
    env_step: int | None


class Agent:
    """Choose actions for observations of the run's env, one or a batch of them.

    It keeps what it remembers of an episode: recurrent state, stacked frames. A row of a batch is an episode of its
    own, by its place. One agent is for one thread; load one for each.
    """

    def __init__(
        self,
        description: AgentDescription,
        path: Path,
        *,
        device: str | torch.device | None = None,
        model: torch.nn.Module | None = None,
        seed: int = 0,
        split: WrapperSplit | None = None,
    ) -> None:
        """Load the weights of a checkpoint; `seed` is of the random numbers of actions that are sampled.

        `split` says which wrappers the client applies; by default only those that need the env itself.

        Raises CheckpointError for a file that is missing, torn or of another model.
        """
        state = load_state(path)
        self.description = description
        self.policy = make_policy(description, modes=["collect", "eval", "command"], device=device, model=model)
        mode = adapt_eval_mode(self.policy.eval_mode)
        self._statistics: Sequence[Sequence[State]] = load_weights(mode, state, path)
        self._eval_actor = self._last_actor = finite_actor(mode.actor)
        self.version = LoadedVersion(path, counter(state, "last_iter"), counter(state, "last_step"))
        self._split = split or description.split(remembers=True, client_wraps=True)
        try:
            self._wrappers = AgentWrappers(self._split, self._statistics)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        self._stacks = RowStacks(self._wrappers) if _remembers(description, len(self._split.client_wrappers)) else None
        self._reader = ObservationReader(self._split.observation_space, max_batch=_MAX_BATCH)
        self._rng = make_rng(seed, "agent")
        self.last_actions: Any = None  # of the last call, by row
        self._begun = np.zeros(0, bool)  # rows whose episode has begun
        self._is_recurrent = bool(self._eval_actor.state_dict()) or _keeps_state(self._eval_actor)

    @property
    def observation_space(self) -> Space:
        """Return the space of what `act` takes."""
        return self._split.observation_space

    @property
    def action_space(self) -> Space:
        """Return the space of what `act` returns."""
        return self._split.action_space

    @property
    def wrappers(self) -> list[str]:
        """Return the wrappers that the agent applies to observations and actions."""
        if self._stacks is None:
            return self._wrappers.names
        return [layer.name for layer in self.description.layers[len(self._split.client_wrappers) :]]

    @property
    def client_wrappers(self) -> tuple[str, ...]:
        """Return the wrappers of the run that need the env itself: `wrap` puts them around yours."""
        return (*self._split.client_wrappers, *self.description.inner_wrappers)

    @property
    def stack(self) -> AnyEnv:
        """Return the wrappers that the agent applies, with their statistics, around a stand-in for an env."""
        return self._wrappers.stack

    @property
    def actor(self) -> Any:
        """Return what chooses actions without exploring: the policy's own."""
        return self._eval_actor

    @property
    def keeps_state(self) -> bool:
        """Tell whether the agent remembers anything of an episode."""
        return self._is_recurrent or self._stacks is not None

    def wrap(self, env: AnyEnv) -> AnyEnv:
        """Return an env inside those wrappers of the run that need the env itself; without any it is the env."""
        count = len(self._split.client_wrappers)
        wrapped = wrap(env, [layer.spec for layer in self.description.layers[:count]])
        own = len(wrapper_states(self._wrappers.stack))
        if wrapper_states(wrapped) and any(self._statistics):
            adopt_wrapper_states(wrapped, [lane[own:] for lane in self._statistics])
        return wrapped

    def reset(self) -> None:
        """Begin a new episode in every row with the next observations."""
        self._begun[:] = False

    def act(self, obs: Any, *, deterministic: bool = True, is_first: Any = None) -> Any:
        """Return the action for one observation, or those of a batch [B, ...]; which it is the space tells.

        `is_first`, one bool or one for each row [B], says where an episode begins; without it one goes on until
        `reset`. `deterministic=False` draws actions as the run's collector did behind its last step. An action has the
        env's form: an int, an array [A...], or of hybrid actions what the env's `step` takes (of a batch a list).
        Raises SchemaError for what is no observation of `observation_space`, or makes the network overflow.
        """
        rows = self._read(obs)
        first = self._first(rows, is_first)
        seen = self._wrappers.to_policy(rows) if self._stacks is None else self._stacks.to_policy(rows, first)
        actor = self._eval_actor if deterministic else self._collect_actor()
        if actor is not self._last_actor:
            actor.load_state_dict(self._last_actor.state_dict())
            self._last_actor = actor
        setting = {} if deterministic else self._collect_setting
        try:
            chosen = actor.act(seen, lanes=np.arange(rows.num), is_first=first, rng=self._rng, **setting)["action"]
            check_finite("the policy chooses", {"action": chosen})
        except FloatingPointError as error:
            raise SchemaError(f"{error}; the agent takes {self.observation_space}.") from error
        if self._stacks is not None:
            self._stacks.note(chosen)
        action = self.last_actions = self._wrappers.to_client(chosen)
        if rows.is_batch:
            return action
        return action[0].item() if isinstance(self.action_space, gymnasium.spaces.Discrete) else action[0]

    def _collect_actor(self) -> Any:
        if not hasattr(self, "_collect"):
            mode = adapt_collect_mode(self.policy.collect_mode)
            mode.load_state_dict(self.policy.eval_mode.state_dict())
            self._collect = finite_actor(mode.actor)
            setting = self.policy.command_mode.get_setting_collect({"envstep": self.version.env_step or 0})
            self._collect_setting = setting
        return self._collect

    def _read(self, obs: Any) -> Rows:
        try:
            return self._reader.read(by_flat_name(obs))
        except RefusedError as error:
            raise SchemaError(f"{error}; the agent takes {self.observation_space}.") from error

    def _first(self, rows: Rows, is_first: Any) -> Array:
        missing = rows.num - len(self._begun)
        num_begun = int(self._begun.sum())
        if is_first is None and self.keeps_state and num_begun not in (0, rows.num):
            raise SchemaError(
                f"act() was given {rows.num} observations after {num_begun}, and this agent remembers the episodes of "
                "its rows: call reset() before another number of rows, or say which begin: act(obs, is_first=[...])."
            )
        if missing > 0:
            self._begun = np.concatenate([self._begun, np.zeros(missing, bool)])
        first: Array = ~self._begun[: rows.num]
        if is_first is not None:
            given = np.asarray(is_first)
            if given.dtype != bool or given.shape not in ((), (rows.num,)):
                raise SchemaError(
                    f"is_first is {is_first!r}, expected True or False, or one of these for each of {rows.num} rows."
                )
            first = first | given
        self._begun[: rows.num] = True
        self._begun[rows.num :] = False
        return first

    def __repr__(self) -> str:
        at = "" if self.version.env_step is None else f", env step {self.version.env_step:,}"
        return (
            f"Agent({self.description.policy_name} on {self.description.env_name}, {self.version.path.name}{at}, "
            f"observes {self.observation_space}, acts {self.action_space})"
        )


def load(
    path: str | Path,
    *,
    which: str | Path = "best",
    device: str | torch.device | None = None,
    model: torch.nn.Module | None = None,
    seed: int = 0,
    import_names: Sequence[str] = (),
) -> Agent:
    """Return the agent of a run: `path` is its folder, or a checkpoint inside one. Nothing in the folder runs.

    Neither the env nor the config is needed. `which` is "best", "last" or a checkpoint's file. `device` is by default a
    GPU if the run trained on one and there is one, else the CPU. `model` is for runs that were given a model as an
    object. `seed` is of actions that are sampled. `import_names` are modules with classes of your own that the folder
    may name; those that are imported already need not be listed. Raises ConfigError for a folder that is no run's and
    for code that it names and that is not allowed, CheckpointError where there are no weights.
    """
    folder = run_folder(path)
    description = read_description(folder, import_names=import_names)
    checkpoint = Path(path) if Path(path).is_file() else find_checkpoint(folder, which)
    agent = Agent(description, checkpoint, device=device, model=model, seed=seed)
    if agent.client_wrappers:
        logger.info(
            "%s: %s need the env itself: give the agent what agent.wrap(env) observes",
            folder,
            ", ".join(agent.client_wrappers),
        )
    return agent


def _remembers(description: AgentDescription, num_client: int) -> bool:
    return any(layer.needs == "steps" for layer in description.layers[num_client:])


def _keeps_state(actor: Any) -> bool:
    """Tell whether an actor keeps recurrent state, of which it has none yet."""
    forward = getattr(actor, "forward", None)
    return bool(getattr(forward, "initial_state", None))
