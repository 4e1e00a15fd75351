"""Parallelised Q-learning, PQN (Gallici et al. 2024): Q-learning without a replay buffer and without a target network.

Lanes act epsilon-greedily for some steps; then the network learns from their rows alone, in shuffled minibatches,
epoch after epoch. Layer normalisation keeps it stable in place of a target network. With V(s) = max_a Q(s, a), of legal
actions and by the network that acted, the targets are the lambda-returns (Peng and Williams 1996)

    G_t  = r_t + gamma * ((1 - lambda) * V(s_t+1) + lambda * G_t+1)     r_t if terminated; lambda 0 where the rows end
    loss = mean((Q(s_t, a_t) - G_t)^2)

A truncated episode is followed by V of its true last observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.data.rollout import Rollout
from ding_like.model.numpy_networks import NumpyGrad, can_differentiate
from ding_like.policy.base import PER_COLLECT
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.onpolicy import OnPolicy
from ding_like.policy.value_based import EpsilonPolicy
from ding_like.rl_utils.td import legal_value
from ding_like.rl_utils.value_family import ScalarValue
from ding_like.types import Array, Config, Info, Obs
from ding_like.utils.bounds import SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("pqn")
class PQNPolicy(OnPolicy, EpsilonPolicy):
    """Values of discrete actions, learned from the rows that were just made."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("q"),)
    config: dict[str, Any] = dict(
        type="pqn",
        model=dict(
            # Layer normalisation, in place of a target network.
            norm_type="LN",
        ),
        learn=dict(
            # Times that all collected rows are learned from.
            epoch_per_collect=2,
            # Rows of a mini-batch.
            batch_size=256,
            learning_rate=2.5e-4,
            grad_clip_value=10.0,
            # How gradients are computed: "autograd", or "auto": by hand in numpy where the model is a small MLP.
            backend="auto",
        ),
        collect=dict(
            # Lambda of the returns: 1 is Monte Carlo returns, 0 one-step ones.
            q_lambda=0.65,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.epoch_per_collect": PER_COLLECT,
        "collect.q_lambda": SHARE,
    }
    config_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"learn.backend": ("auto", "autograd")}
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "it has no use with lambda-returns; set collect.q_lambda"),
        "random_collect_size": (0, "there is no buffer that random rows could fill; raise other.eps.start"),
    }
    action_spaces = ("Discrete",)
    model_name = "dqn"

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["model"].get("noise"):
            yield "model.noise", "is True, but this policy draws no noise: explore by other.eps, or choose 'dqn'"

    _family = ScalarValue("mse")

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        return ForwardActor(self._values_of_actions(), EpsilonGreedy())

    def _values_of_actions(self) -> NetworkForward:
        # Partial and not lambda: a deep copy must run the copied network.
        return NetworkForward(partial(self._family.predict, self._model), self._model, self._device)

    def _init_learn(self) -> None:
        super()._init_learn()
        self._q = self._values_of_actions()  # after FlatParams, which moves the weights
        by_hand = self._cfg.learn.backend == "auto" and can_differentiate(self._model)
        self._by_hand = NumpyGrad(self._model, self._params) if by_hand else None
        self._learns_by_hand = by_hand

    # ---- rows

    @property
    def _lambda(self) -> float:
        return float(self._cfg.collect.q_lambda)

    def _values(self, obs: Obs) -> Array:
        """Return the values [N] of the best legal actions; 0 where a mask allows none, as nothing can follow."""
        obs, mask = split_mask(obs)
        values = torch.from_numpy(self._q.array(obs))
        return legal_value(values, values, mask).float().numpy()

    def _targets(self, rollout: Rollout) -> dict[str, Array]:
        return {"return_": super()._targets(rollout)["return_"]}

    # ---- learning

    def minibatches(self, batch: TransitionBatch, rng: np.random.Generator) -> Iterator[TransitionBatch]:
        """Yield shuffled minibatches, epoch after epoch."""
        self._begin_train(batch, num_rows=len(batch))
        for _ in range(self._cfg.learn.epoch_per_collect):
            yield from self._shuffled(batch, self._cfg.learn.batch_size, rng)

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradient of the loss for one minibatch."""
        if self._by_hand is not None and isinstance(batch["return_"], np.ndarray):
            output = self._by_hand.forward(split_mask(self._obs(batch))[0])
            found = self._family.loss_by_hand(output, batch["action"], batch["return_"], weight=None)
            self._by_hand.backward(found.grad)
            loss, values = self._params.loss.fill_(found.loss).clone(), torch.from_numpy(output)
        else:
            rows = batch.to(self._device)
            self._params.follow()
            prediction = self._family.predict(self._model, split_mask(self._obs(rows))[0])
            each = self._family.loss(self._family.of_action(prediction, rows["action"]), rows["return_"])
            loss, values = self._params.backward(each.loss.mean()), prediction.detach()
        return {"cur_lr": self._now(self._learning_rate), "total_loss": loss, "q_value": values}, None

    monitored: tuple[str, ...] = ("cur_lr", "total_loss", "q_value")
