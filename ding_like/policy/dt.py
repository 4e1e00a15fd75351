"""Decision transformer: offline reinforcement learning as supervised learning of sequences (Chen et al. 2021).

A row is `context_len` steps of an episode, from any step on, with the return to go of each (algorithm 1 of the paper)

    R_t = r_t + r_{t+1} + ... + r_T            undiscounted, over `rtg_scale` where the network sees it

and the model predicts each action from R, o and a of the row before it, and R_t and o_t. With a' what it predicts, the
loss is a mean over the steps of the row that belong to the episode, of

    discrete actions      -log softmax(a'_t)[a_t]
    continuous actions    mean over dimensions of (a'_t - a_t)^2, in units where the bounds are -1 and 1

The optimizer is AdamW, with a learning rate that grows in a straight line over the first `warmup_steps` updates. To
act, the first return to go is `rtg_target`, and each reward is subtracted from it: R_{t+1} = R_t - r_t. The network
sees the last `context_len` steps. Rows are padded behind, where causal attention never looks; the paper pads in front
and masks what it has padded, which is the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, columns_to_obs, map_obs, obs_to_columns, split_mask
from ding_like.data.rollout import Rollout
from ding_like.errors import ConfigError, SchemaError
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import as_sizes
from ding_like.model.optimizer import FlatOptimizer
from ding_like.policy.base import Policy
from ding_like.policy.forward import Choose, ForwardActor, GaussianNoise, OfFamily, to_device
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offline import FromData
from ding_like.policy.rows import ContextRows, Rows
from ding_like.policy.sharing import GradNoise, Moving, Pending
from ding_like.rl_utils.distributions import Categorical, allowed_logits
from ding_like.rl_utils.exploration import ActionRange
from ding_like.types import Array, Info, Obs, State
from ding_like.utils.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, Bounds
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import POLICY_REGISTRY


class ContextForward:
    """`Forward` of a network over the last steps of each lane, which the state holds.

    `run` gives outputs [R, T, A] of columns [R, T, ...] of T steps. The state has these columns with room for the whole
    context, and `step` [R], how many steps of the episode came before the last of them.
    """

    def __init__(
        self, run: Callable[[Mapping[str, Tensor]], Tensor], initial_state: Mapping[str, Array], device: torch.device
    ) -> None:
        self._run, self.initial_state, self._device = run, initial_state, device
        self.context_len = len(initial_state["return_to_go"])

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        """Return (output [R, A] of the last step, no state); the observations are in the state too."""
        slot = np.minimum(state["step"], self.context_len - 1)
        num_slots = int(slot.max(initial=0)) + 1
        names = [name for name in state if name in ("return_to_go", "action") or name.split("/")[0] == "obs"]
        columns = {name: state[name][:, :num_slots] for name in names}
        columns["step"] = (state["step"] - slot)[:, None] + np.arange(num_slots)
        with torch.no_grad():
            output = self._run(to_device(columns, self._device)).cpu().numpy()
        return output[np.arange(len(slot)), slot], {}


class ContextActor(ForwardActor):
    """Actor that keeps the last steps of each lane, and what is left of the return that it is to reach.

    `observe` must be given the reward of each action. `target` gives the return of an episode that begins.
    """

    def __init__(self, forward: ContextForward, choose: Choose, target: Callable[[], float]) -> None:
        super().__init__(forward, choose)
        self._context_len, self._target = forward.context_len, target

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: float | Array
    ) -> dict[str, Array]:
        """Return the choice's columns [R, ...] for the R `lanes`. Raises SchemaError where a reward is missing."""
        seen, legal = split_mask(obs)
        new = obs_to_columns("obs", seen)
        self._hold(new)
        state = self.take(lanes, is_first)
        if state["waits"].any():
            raise SchemaError(
                "a decision transformer needs the reward of each action before it acts again: give it to "
                "agent.act(obs, reward=...), or to the actor's observe(lanes, reward), or mark is_first"
            )
        begins, is_full = state["step"] == 0, state["step"] >= self._context_len
        state["left"][begins] = self._target()
        here = np.arange(len(lanes)), np.minimum(state["step"], self._context_len - 1)
        for name, column in {**new, "return_to_go": state["left"], "action": None}.items():
            history = state[name]
            history[is_full, :-1] = history[is_full, 1:]
            if column is not None:  # the action is not chosen yet, and nothing before it looks at its place
                history[here] = column
        output, _ = self.forward(seen, state)
        chosen = self.choose(output, legal, rng, setting)
        state["action"][here] = chosen["action"]
        state["step"] += 1
        state["waits"].fill(True)
        self.put(lanes, state)
        return chosen

    def observe(self, lanes: Array, reward: Array) -> None:
        """Subtract the rewards [R] of the last actions of `lanes` [R] from what is left to reach."""
        known = lanes < len(self._columns["waits"])
        self._columns["left"][lanes[known]] -= reward[known]
        self._columns["waits"][lanes[known]] = False

    def _hold(self, obs: Mapping[str, Array]) -> None:
        """Make room for observations [R, O...] by name, of which the first ones have the shapes."""
        for name, column in obs.items():
            if name not in self._initial:
                self._initial[name] = np.zeros((self._context_len, *column.shape[1:]), column.dtype)
                num_lanes = len(self._columns["waits"])
                self._columns[name] = np.zeros((num_lanes, *self._initial[name].shape), column.dtype)

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned."""
        self._hold({name: column[:, 0] for name, column in state.items() if name not in self._initial})
        num_lanes = len(state["waits"])
        empty = {name: np.broadcast_to(value, (num_lanes, *value.shape)) for name, value in self._initial.items()}
        super().load_state_dict({**empty, **state})  # of an actor that has seen nothing, observations are not there


@POLICY_REGISTRY.register("dt")
class DTPolicy(FromData):
    """Actor that learns which actions came before which returns, and acts for the return that it is asked for."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor", "obs, action, return_to_go, step", ("B T A",)),
        ModelMethod("fit", "obs, best_return", ("nothing",)),
        ModelMethod("best_return", None),
    )
    config: dict[str, Any] = dict(
        type="dt",
        # Return that the actor is to reach in an episode; None: the highest one of the data set.
        rtg_target=None,
        # What returns to go are divided by before the network sees them.
        rtg_scale=1000.0,
        # Env steps that the network sees at once.
        context_len=20,
        # Updates over which the learning rate grows to its full value.
        warmup_steps=10_000,
        # Longest episode of an evaluation: a key of DI-engine's configs, see `without_effect`.
        max_eval_ep_len=None,
        # Mean and deviation of observations: keys of DI-engine's configs, see `without_effect`.
        state_mean=None,
        state_std=None,
        learn=dict(
            learning_rate=1e-4,
            train_epoch=10,
            optimizer=dict(type="adamw", weight_decay=1e-4),
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "rtg_target": FINITE,
        "rtg_scale": ABOVE_0,
        "context_len": FROM_1,
        "warmup_steps": FROM_0,
        "max_eval_ep_len": FROM_1,
        "state_mean": FINITE,
        "state_std": FROM_0,
    }
    config_types: ClassVar[Mapping[str, tuple[type, ...]]] = {
        "state_mean": (float, list),
        "state_std": (float, list),
    }
    config_unused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("discount_factor", "learn.ignore_done", "nstep"), "returns are undiscounted sums to the episode's end"
        ),
        **dict.fromkeys(
            (
                *("random_collect_size", "learn.update_per_collect", "learn.data_share"),
                *("collect.n_sample", "collect.n_episode"),
            ),
            "nothing is collected: rows come from a file",
        ),
    }
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {"priority": (False, "each window counts alike")}
    config_idle: ClassVar[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
        "action_space": ("discrete", ("action_low", "action_high")),
    }
    without_effect: ClassVar[dict[str, str]] = {
        "max_eval_ep_len": "the env limits its episodes: env.max_episode_steps, or a wrapper 'time_limit'",
        "state_mean": "it is taken from the data set, and saved with the weights",
        "state_std": "it is taken from the data set, and saved with the weights",
    }
    goes_online = False
    why_alone = "learns from the mean over the steps of whole batches"
    action_spaces: tuple[str, ...] | None = ("Discrete", "Box")
    model_name = "dt"

    def _build_model(self) -> nn.Module:
        model = self._cfg.model
        if not self._is_continuous:  # the config was checked before the env said what its actions are
            for path, message in self._no_effect(self._cfg, ("action_low", "action_high"), "actions are discrete"):
                one_time_warning(f"policy.{path} {message}.")
        if model.get("type", self.model_name) == self.model_name:
            if model.setdefault("continuous", self._is_continuous) != self._is_continuous:
                kind = "continuous" if self._is_continuous else "discrete"
                raise ConfigError(f"policy.model.continuous is {model['continuous']}, but the actions are {kind}.")
        return super()._build_model()

    @property
    def _is_continuous(self) -> bool:
        return bool(self._cfg.action_space == "continuous")

    @cached_property
    def _action_range(self) -> ActionRange:
        low, high = self._cfg.action_low, self._cfg.action_high
        return ActionRange(-1.0 if low is None else low, 1.0 if high is None else high)

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ContextActor:
        self._model.eval()  # dropout is for `grad` alone
        length = int(self._cfg.context_len)
        shape = as_sizes("action_shape", self._cfg.model.action_shape) if self._is_continuous else ()
        initial: dict[str, Array] = {
            "left": np.zeros((), np.float32),  # of the return that is to be reached, when the lane acts next
            "return_to_go": np.zeros(length, np.float32),
            "action": np.zeros((length, *shape), np.float32 if self._is_continuous else np.int64),
            "step": np.zeros((), np.int64),
            "waits": np.zeros((), bool),  # for the reward of the last action
        }
        choose: Choose = OfFamily(Categorical(), is_greedy=not explores, with_log_prob=False)
        if self._is_continuous:
            choose = GaussianNoise(self._action_range)
        return ContextActor(ContextForward(self._outputs, initial, self._device), choose, self._first_return_to_go)

    def _first_return_to_go(self) -> float:
        target = self._cfg.rtg_target
        return float(self._model.best_return if target is None else target)

    def _outputs(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Return what the model gives [B, T, A] for columns [B, T, ...] of steps, whose observations have no mask."""
        return_to_go = columns["return_to_go"] / float(self._cfg.rtg_scale)
        obs = columns_to_obs("obs", columns)
        output: Tensor = self._model.actor(obs, self._inside(columns["action"]), return_to_go, columns["step"])
        return output

    def _inside(self, action: Tensor) -> Tensor:
        """Return actions as the model takes them: continuous ones scaled to [-1, 1]."""
        if not self._is_continuous:
            return action
        centre, half = self._scale
        return (action.float() - centre) / half

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        reach = self._action_range
        return torch.from_numpy(reach.centre).to(self._device), torch.from_numpy(reach.half).to(self._device)

    # ---- rows

    def row_maker(self) -> ContextRows:
        return ContextRows(int(self._cfg.context_len))

    def data_rows(self, rollout: Rollout) -> Rows:
        """Return the windows of a data set, whose observations and returns the model is fitted to."""
        windows, _ = self.row_maker().windows(rollout, closes=True)
        columns = windows.columns
        begins = columns["step"] == 0
        best = columns["return_to_go"][begins if begins.any() else slice(None)].max()
        obs, _ = split_mask(columns_to_obs("obs", columns))
        self._model.fit(map_obs(torch.from_numpy, obs), float(best))
        return windows

    def why_no_reward_model(self) -> str | None:
        """Return why rows cannot be given other rewards: they hold returns."""
        return "its rows hold returns to go, and no rewards"

    # ---- learning

    def _init_learn(self) -> None:
        self._params = FlatParams(self._model)
        self._optimizer = FlatOptimizer.from_config(self._params, self._cfg.learn)
        self._noise = GradNoise(torch.device("cpu"))
        self._num_updates = Pending(0, int, int)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for a minibatch of windows."""
        names = ("obs", "action", "return_to_go", "step", "mask")
        rows = batch.select(name for name in batch.columns if name.split("/")[0] in names).to(self._device)
        self._params.follow()
        self._noise.begin()
        obs, legal = split_mask(self._obs(rows))
        columns = {name: rows[name] for name in names[1:]} | cast(dict[str, Tensor], obs_to_columns("obs", obs))
        mask, action = columns["mask"], self._inside(columns["action"])
        with self._dropout():
            output = self._outputs(columns)
        if self._is_continuous:
            error = (output - action).square().mean(dim=2)
            found = {"action_error": _mean((output.detach() - action).abs().mean(dim=2), mask)}
        else:
            if legal is not None:  # beyond the episode nothing is
                legal = legal.bool() | ~mask.unsqueeze(2)
            logits = allowed_logits(output, legal)
            error = F.cross_entropy(logits.flatten(0, 1), action.long().flatten(), reduction="none").view_as(mask)
            found = {"accuracy": _mean((logits.argmax(dim=2) == action).float(), mask)}
        loss = self._params.backward(_mean(error, mask))
        return {"total_loss": loss, "cur_lr": self._rate(), **found}, None

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Run the model as it is trained; what is dropped follows from `_noise`, and torch's generators stay."""
        seed = int(self._noise.uniform(1, share=self._share) * 2**24)  # of the CPU's: no device is waited for
        self._model.train()
        try:
            with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
                torch.manual_seed(seed)
                yield
        finally:
            self._model.eval()

    def _rate(self) -> float:
        """Return the learning rate of the update under way."""
        warm = min(1.0, (self._num_updates.now + 1) / max(1, int(self._cfg.warmup_steps)))
        return self._optimizer.learning_rate * warm

    def apply(self) -> None:
        """Take one step of the optimizer."""
        full = self._optimizer.learning_rate
        self._optimizer.learning_rate = self._rate()
        self._optimizer.step()
        self._optimizer.learning_rate = full
        self._num_updates.next = self._num_updates.now + 1
        for each in self._moving().values():
            each.commit()

    def _moving(self) -> dict[str, Moving]:
        return {"generator": self._noise, "num_updates": self._num_updates}

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (self._optimizer,)

    def _saved(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer}

    monitored: tuple[str, ...] = (*Policy.monitored, "accuracy", "action_error")


def _mean(value: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of values [B, T] over the steps that `mask` [B, T] marks."""
    return (value * mask).sum() / mask.sum()
