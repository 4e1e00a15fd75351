"""Agent objects of the user's, of which the SEED trainer needs a network and a training step."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.policy.value_based import EpsilonPolicy
from ding_like.types import Array, Config, Info, State
from ding_like.utils.bounds import Bounds
from ding_like.utils.metrics import MetricsSink


@runtime_checkable
class Agent(Protocol):
    """Agent that a `Trainer` trains: a network of action values, and a step that improves it.

    Beside these two, an agent may have `discount` (0.99) and `batch_size` (32), `set_logging_client(client)`, called
    once at the start, and `state_dict()` and `load_state_dict(state)`, which are saved with a run's points.
    """

    model_instance: torch.nn.Module  # observations [R, O...] -> values [R, A] of discrete actions

    def train_step(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change `model_instance` in place by a batch of B rows; return numbers to log, and `priority` [B] if any.

        `batch` has tensors: `obs`, `next_obs` [B, O...] (dicts where observations are), `action` [B], `reward` [B], the
        n-step return, `discount` [B], which multiplies the value of `next_obs`, and `terminated` [B].
        """


class LoggingClient:
    """Writer of an agent's numbers into the metrics of a run."""

    def __init__(self, metrics: MetricsSink) -> None:
        self._metrics = metrics

    def log(self, name: str, values: Mapping[str, float]) -> None:
        """Write numbers by name, as reported by `name`."""
        self._metrics.write(name, values, env_step=-1, train_iter=-1)


class AgentPolicy(EpsilonPolicy):
    """Policy whose network and updates are an `Agent`'s; epsilon-greedy, with this package's replay buffer.

    Its model is the agent's `model_instance`; only the driver has the agent itself, in `agent`.
    """

    config: dict[str, Any] = dict(
        type="ding_like.policy.agent:AgentPolicy",
        discount_factor=0.99,
        learn=dict(update_per_collect=1, batch_size=32),
        collect=dict(n_sample=8),
        other=dict(
            eps=dict(type="linear", start=0.1, end=0.1, decay=1), replay_buffer=dict(replay_buffer_size=100_000)
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {}
    agent: Any = None  # Any: an `Agent`

    @classmethod
    def check_model(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield nothing: the model is the agent's own."""
        return ()

    def _build_model(self) -> torch.nn.Module:
        raise ConfigError("this policy is a script's agent object: train it by Trainer(agent, config, environment).")

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(NetworkForward(self._model, None, self._device), EpsilonGreedy())

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Let the agent take a training step; return (what it logs, priorities [B] or None)."""
        tensors = batch.to(self._device)
        discount = tensors.columns.get("discount")
        if discount is None:
            discount = torch.full_like(tensors["reward"], self._gamma)
        own = {"obs": self._obs(tensors), "next_obs": self._obs(tensors, "next_obs"), "discount": discount}
        rows = {name: tensors[name] for name in ("action", "reward", "terminated")}
        info = dict(self.agent.train_step({**own, **rows}))
        priority = info.pop("priority", None)
        return info, None if priority is None else np.asarray(priority)

    def apply(self) -> None:
        """Do nothing: the agent has changed its network."""

    monitored: tuple[str, ...] = ("loss",)

    def _state_dict_learn(self) -> State:
        saved = getattr(self.agent, "state_dict", None)
        own = super()._state_dict_learn()
        return own if saved is None else {**own, "agent": copy.deepcopy(saved())}

    def _load_state_dict_learn(self, state: State) -> None:
        super()._load_state_dict_learn(state)
        if "agent" in state:
            self.agent.load_state_dict(state["agent"])
