"""Never Give Up (Badia et al. 2020): R2D2 that learns a family of policies, from much exploration to none.

Each of N arms has a weight beta of the bonus and a discount gamma, and maximises r + beta b (`reward_model/ngu.py`):

    beta_0 = 0, beta_{N-1} = beta, else beta sigmoid(10 (2 i - (N - 2)) / (N - 2))
    gamma_i = 1 - exp(((N - 1 - i) log(1 - gamma_max) + i log(1 - gamma_min)) / (N - 1))

One network has the values of all arms; it is given the arm beside the observation. A lane that collects draws an arm
for each episode, which its rows keep, and learns with the arm's beta and gamma. Evaluations take the arm 0, which the
bonus does not move. The rest is R2D2's, but that a share of the rows of each minibatch is learned from as if the arm 0
had acted, by the env's rewards: what the other arms found it learns off-policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.policy.forward import ArmActor, EpsilonGreedy, ForwardActor, RecurrentForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.policy.rows import ArmRows
from ding_like.rl_utils.exploration import exploration_arms
from ding_like.types import Array, Config
from ding_like.utils.bounds import FROM_0, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ngu")
class NGUPolicy(R2D2Policy):
    """Family of recurrent Q-learners that weight a bonus for exploration each in its own way."""

    model_methods: tuple[ModelMethod, ...] = (*R2D2Policy.model_methods, ModelMethod("num_arms", None))
    config: dict[str, Any] = dict(
        type="ngu",
        nstep=1,
        # Weight of the reward model's bonus in the rewards of the arm that explores most.
        beta=0.3,
        # Discount of the arm that explores most; that of the arm that explores least is `discount_factor`.
        discount_factor_min=0.99,
        learn=dict(
            # Share of the rows, drawn for each update, from which the arm 0 learns whichever arm acted.
            exploit_share=0.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "beta": FROM_0,
        "discount_factor_min": SHARE,
        "learn.exploit_share": SHARE,
    }
    config_fixed: ClassVar[Mapping[str, tuple[Any, str]]] = {
        "nstep": (1, "rewards are given step by step, and each arm has a discount of its own")
    }
    model_name = "ngu"

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        low, high = cfg["discount_factor_min"], cfg["discount_factor"]
        if high >= 1:
            yield "discount_factor", f"is {high}, but discounts lie between 1 and it in proportion: set it below 1"
        elif low > high:
            yield "discount_factor_min", f"is {low}, above discount_factor {high}: swap them"
        if (num_arms := cfg["model"].get("num_arms", 2)) == 1:
            yield "model.num_arms", f"is {num_arms}; give 2 or more, or take policy 'r2d2', which has one"

    def minibatches(self, batch: Any, rng: np.random.Generator) -> Iterator[Any]:  # Any: as the base class
        """Yield the batch, with a column of the rows that arm 0 learns from."""
        if share := self._cfg.learn.exploit_share:
            batch = batch.with_columns(exploits=rng.random(len(batch)) < share)
        yield from super().minibatches(batch, rng)

    def _fill(self, rows: TransitionBatch) -> tuple[Tensor, Tensor, Tensor, Array | None]:
        exploits = rows.columns.get("exploits")
        return super()._fill(rows if exploits is None else self._of_exploiting_arm(rows, exploits[:, None]))

    def _of_exploiting_arm(self, rows: TransitionBatch, marked: Tensor) -> TransitionBatch:
        """Return rows in which those that `marked` [B, 1] names are of arm 0: its discount, the reward of the env."""
        own = rows.columns
        arm, reward = self._obs(rows, "state")["arm"], own["reward"]
        changes = {
            "state/arm": torch.where(marked, torch.eye(arm.shape[1], device=arm.device)[0].to(arm.dtype), arm),
            "discount": torch.where(marked, self._gamma, own["discount"]),
            "reward": torch.where(marked, own.get("env_reward", reward), reward),
        }
        return rows.with_columns(**changes)

    def row_maker(self) -> ArmRows:
        ends: dict[str, float] = dict(gamma_max=self._gamma, gamma_min=self._cfg.discount_factor_min)
        betas, gammas = exploration_arms(int(self._model.num_arms), beta=self._cfg.beta, **ends)
        return ArmRows(self._shape, self._nstep, self._gamma, tuple(betas.tolist()), tuple(gammas.tolist()))

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        forward = RecurrentForward(self._model.run, self._model.initial_state, self._device)
        return (ArmActor if explores else ForwardActor)(forward, EpsilonGreedy())
