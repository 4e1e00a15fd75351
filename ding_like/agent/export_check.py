"""Compare a file that was exported with the agent that it is of, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ding_like.agent.export_module import ExportedAgent, rows_of
from ding_like.agent.loaded import Agent
from ding_like.agent.wrappers import stack_obs
from ding_like.data.obs import ACTION_MASK
from ding_like.errors import CheckpointError
from ding_like.types import Array

_BATCHES = (1, 2, 7)
_STEPS = 6
_PLAYED_STEPS = 200
_WIDTH = 10.0  # of what is drawn where a Box has no bounds
_TOLERANCE = 1e-4  # of what an action, or the state, is large

# Takes and gives arrays [B, ...] in the order of the ports.
Run = Callable[[Sequence[Array]], Sequence[Array]]


class Step(NamedTuple):
    """Hold observations [B, ...] and where an episode begins [B]."""

    obs: Any
    is_first: Array


class Compared(NamedTuple):
    """Hold how many actions were compared, and the largest difference of one, of its size."""

    num_actions: int
    difference: float


def compare(agent: Agent, module: ExportedAgent, run: Run, steps: Iterator[Step]) -> Compared:
    """Return how a file compares with the agent. Raises CheckpointError with the figures where they differ."""
    count, largest = 0, 0.0
    state: dict[str, Array] = {}
    agent.reset()
    for step in steps:
        rows = len(step.is_first)
        expected = np.asarray(agent.act(step.obs, is_first=step.is_first))
        state = {name: _begun(state.get(name), value, step.is_first) for name, value in module.initial_state.items()}
        inputs = rows_of(module.inputs, step.obs, state)
        try:
            action, *after = run(inputs)
        except Exception as error:  # torch and onnxruntime have no common class of errors
            raise CheckpointError(
                f"the file cannot be run on {rows} observations ({type(error).__name__}: {error}): it was not written. "
                "Use ding_like.load or `ding serve`."
            ) from error
        state = dict(zip(module.initial_state, after, strict=True))
        if action.shape != expected.shape or action.dtype != expected.dtype:
            raise CheckpointError(
                f"the file gives actions {action.dtype} {action.shape} for {rows} observations, the agent "
                f"{expected.dtype} {expected.shape}: it was not written."
            )
        largest = max(largest, _difference(action, expected))
        count += rows
        if largest > _TOLERANCE:
            raise CheckpointError(
                f"the file acts otherwise than the agent: for observation {count} the largest difference is "
                f"{largest:.3g} of the actions' size, allowed are {_TOLERANCE:g} (agent {_told(expected)}, file "
                f"{_told(action)}). It was not written; use ding_like.load or `ding serve`."
            )
    return Compared(count, largest)


def draw_observations(space: spaces.Space[Any], *, seed: int = 0) -> Iterator[Step]:
    """Yield random observations of a space, in batches of several sizes; some episodes begin in the middle."""
    space.seed(seed)
    rng = np.random.default_rng(seed)
    for rows in _BATCHES:
        for time in range(_STEPS):
            first = np.ones(rows, bool) if time == 0 else rng.random(rows) < 0.2
            yield Step(stack_obs([_draw(space, rng) for _ in range(rows)]), first)


def play_observations(env: Any, agent: Agent) -> Iterator[Step]:  # Any: an env of gymnasium, whatever it observes
    """Yield what an env observes while the agent plays it; `compare` asks the agent, whose last action is played."""
    obs, _ = env.reset(seed=0)
    is_first = True
    for _ in range(_PLAYED_STEPS):
        yield Step(stack_obs([obs]), np.array([is_first]))
        action = agent.last_actions[0]
        taken = int(action) if isinstance(agent.action_space, spaces.Discrete) else action
        obs, _, terminated, truncated, _ = env.step(taken)
        is_first = bool(terminated or truncated)
        if is_first:
            obs, _ = env.reset()


def _draw(space: spaces.Space[Any], rng: np.random.Generator, key: str = "") -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _draw(inner, rng, name) for name, inner in space.spaces.items()}
    if key == ACTION_MASK:
        return np.where(rng.random(space.shape or ()) < 0.5, 1, 1).astype(space.dtype)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = np.maximum(space.low, -_WIDTH), np.minimum(space.high, _WIDTH)
        return rng.uniform(np.minimum(low, high), high).astype(space.dtype)
    return space.sample()


def _begun(state: Array | None, initial: Array, is_first: Array) -> Array:
    rows = len(is_first)
    fresh = np.stack([initial] * rows)
    if state is None or len(state) != rows:
        return fresh
    where = is_first.reshape(rows, *[1] * initial.ndim)
    return np.where(where, fresh, state)


def _difference(mine: Array, theirs: Array) -> float:
    if mine.dtype.kind in "iub":
        return float((mine != theirs).any())
    size = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    return float(np.abs(mine - theirs).max(initial=0.0)) / size


def _told(action: Array) -> str:
    return str(action.reshape(-1)[:8].tolist())
