"""What DDPG, TD3 and SAC share: networks with targets, rows as tensors, acting. Losses are in their own files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch
from ding_like.model.optimizer import FlatOptimizer
from ding_like.policy.base import Policy
from ding_like.policy.forward import Choose, ForwardActor, NetworkForward
from ding_like.policy.qac_by_hand import NumpyQAC
from ding_like.policy.sharing import GradNoise, Moving, Pending
from ding_like.policy.trained_network import TrainedNetwork
from ding_like.rl_utils.exploration import ActionRange
from ding_like.types import Array, Config, State
from ding_like.utils.bounds import SHARE_ABOVE_0, Bounds


class Rows(NamedTuple):
    """Minibatch as tensors on the policy's device."""

    obs: Any  # [B, O...], or a dict of them
    action: Tensor  # [B, A] in [-1, 1]; of discrete actions their numbers [B]
    reward: Tensor  # [B], the n-step return
    next_obs: Any
    discount: Tensor | float  # [B], what multiplies the value of next_obs
    terminated: Tensor  # [B] bool; all False with learn.ignore_done
    weight: Tensor | float  # [B], importance weights
    next_action: Tensor | None = None  # [B, A], the data's, of row makers that give it
    has_next_action: Tensor | None = None  # [B] bool


class OffPolicyActorCritic(Policy):
    """Actor and critics that learn off-policy; continuous actions, [-1, 1] inside.

    The model has `actor(obs)` and `critic(obs, action) -> [N, B]`, modules that share no parameters. An algorithm for
    discrete actions overrides `action_spaces` and `_inside`; its critic may be another function.
    """

    config: dict[str, Any] = dict(
        discount_factor=0.99,
        random_collect_size=10000,
        learn=dict(
            update_per_collect=8,
            batch_size=256,
            # One learning rate for all networks, in place of their own: learn.learning_rate_...
            learning_rate=None,
            # Share of the networks that is mixed into their target networks with every step.
            target_theta=0.005,
            # How gradients are computed: "autograd", or "auto": by hand in numpy where the networks are small MLPs.
            backend="auto",
        ),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(replay_buffer_size=100000)),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.target_theta": SHARE_ABOVE_0}
    config_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"learn.backend": ("auto", "autograd")}
    action_spaces: tuple[str, ...] = ("Box",)

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["learn"]["learning_rate"] is not None:
            rates = (f"learn.{name}" for name in cfg["learn"] if name.startswith("learning_rate_"))
            yield from cls._no_effect(cfg, rates, "learn.learning_rate is set for all networks")

    model_name = "continuous_qac"

    def _networks(self) -> dict[str, TrainedNetwork]:
        """Return what is trained, by the name it is saved under."""
        raise NotImplementedError(f"{type(self).__name__} must name the networks that it trains.")

    def _init_learn(self) -> None:
        if {"Box", "HybridSpace"} & set(self.action_spaces):
            reach = self._action_range()
            self._centre, self._half = (torch.from_numpy(part).to(self._device) for part in (reach.centre, reach.half))
        self._noise = GradNoise(self._device)
        self._num_updates = Pending(0, int, int)

    def _trained(self, network: Any, rate: str, *, has_target: bool = True) -> TrainedNetwork:
        """Return a network with an optimizer, whose learning rate the config has under the name `rate`."""
        learn = self._cfg.learn
        learning_rate = learn[rate] if learn.learning_rate is None else learn.learning_rate
        return TrainedNetwork(network, learn, learning_rate=learning_rate, has_target=has_target)

    def _in_numpy(self, actor: TrainedNetwork, critic: TrainedNetwork) -> NumpyQAC | None:
        """Return what computes gradients by hand; None: autograd does."""
        return NumpyQAC.of(actor, critic) if self._cfg.learn.backend == "auto" else None

    def _actor_that(self, choose: Choose) -> ForwardActor:
        """Return what acts by the model's actor and a choice."""
        return ForwardActor(NetworkForward(self._model.actor, self._model.actor, self._device), choose)

    def _action_range(self) -> ActionRange:
        """Return the bounds of actions; without an env to say them, -1 and 1."""
        low, high = self._cfg.get("action_low"), self._cfg.get("action_high")
        return ActionRange(-1.0 if low is None else low, 1.0 if high is None else high)

    def _begin(self, batch: TransitionBatch) -> TransitionBatch:
        """Begin a gradient: return a batch on the policy's device."""
        self._noise.begin()
        for network in self._networks().values():
            network.params.follow()
        return batch.to(self._device)

    def _rows(self, batch: TransitionBatch) -> Rows:
        """Begin a gradient: return a batch of rows as tensors, actions as the critics take them."""
        tensors = self._begin(batch)
        terminated = tensors["terminated"]
        weight = self._weight(tensors)
        return Rows(
            obs=self._obs(tensors),
            action=self._inside(tensors["action"]),
            reward=tensors["reward"],
            next_obs=self._obs(tensors, "next_obs"),
            discount=tensors.columns.get("discount", self._gamma),
            terminated=torch.zeros_like(terminated) if self._cfg.learn.ignore_done else terminated,
            weight=1.0 if weight is None else weight,
            next_action=self._inside(tensors["next_action"]) if "next_action" in tensors.columns else None,
            has_next_action=tensors.columns.get("has_next_action"),
        )

    def _inside(self, action: Tensor) -> Tensor:
        """Return actions of rows as the critics take them: continuous ones [B, A] scaled to [-1, 1]."""
        return (action.float() - self._centre) / self._half

    def _normal_like(self, action: Tensor | Array) -> Tensor:
        """Return standard normal noise in the shape of actions [B, A]; of several learners', each takes its rows."""
        return self._noise.normal(*action.shape, share=self._share)

    def _is_turn_of(self, freq: int) -> bool:
        """Tell whether the update under way is one of every `freq`."""
        return (self._num_updates.now + 1) % int(freq) == 0

    def _end_update(self) -> None:
        """Count an update that is being applied, and take over the random numbers that its gradient drew."""
        self._num_updates.next = self._num_updates.now + 1
        for each in self._moving().values():
            each.commit()

    def _priority(self, error: Tensor) -> Array | None:
        """Return the absolute TD error [B], the mean of the critics' [N, B]; None without priorities."""
        if not self._cfg.priority:
            return None
        return error.detach().abs().mean(dim=0).cpu().numpy()

    def _optimizers(self) -> Iterable[FlatOptimizer]:
        return (network.optimizer for network in self._networks().values())

    def _grad_modules(self) -> dict[str, nn.Module]:
        targets = {f"{name}_target": network.target for name, network in self._networks().items()}
        return {**super()._grad_modules(), **{name: target for name, target in targets.items() if target is not None}}

    def _moving(self) -> dict[str, Moving]:
        return {"generator": self._noise, "num_updates": self._num_updates}

    def _state_dict_learn(self) -> State:
        networks = {name: network.state_dict() for name, network in self._networks().items()}
        return {**super()._state_dict_learn(), "networks": networks}

    def _load_state_dict_learn(self, state: State) -> None:
        super()._load_state_dict_learn(state)
        # A checkpoint of weights alone (a pre-trained model) starts with fresh optimizers and equal targets.
        saved = state.get("networks", {})
        for name, network in self._networks().items():
            network.load_state_dict(saved.get(name))
