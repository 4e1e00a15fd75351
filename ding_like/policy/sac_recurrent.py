"""SAC with memory, for envs that do not show their whole state (Yang and Nguyen 2021; Ni et al. 2022).

A row is a sequence (`policy/sequences.py`). Actor and critics have a recurrent network each, m(o_1 .. o_t) and
n(o_1 .. o_t); n' is the critics' target. All are unrolled over the row from the state that actor and critics had before
it when acting, which burn-in brings up to date, each its own. For every step t that is learned from, with
a_t ~ pi(m_t) drawn afresh and R_t, the discounted sum of the next k rewards (`nstep`, or as many as the row has),

    y_t         = R_t + gamma^k (min_i Q_i'(n'_{t+k}, a_{t+k}) - alpha * log pi(a_{t+k}))   R_t if terminated
    critic_loss = mean over rows of weight * sum_t sum_i (Q_i(n_t, action_t) - y_t)^2 / (2 * learn_unroll_len)
    actor_loss  = mean over rows of sum_t (alpha * log pi(a_t) - min_i Q_i(n_t, a_t)) / learn_unroll_len
    p           = eta max_t delta_t + (1 - eta) mean_t delta_t                              the row's priority

with delta_t the mean of the critics' absolute errors. The temperature is learned as in `policy/sac.py`, by the same
steps. The actor's loss has no gradient to the critics, nor the critics' to the actor, and neither goes through burn-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.policy.forward import ForwardActor, RecurrentForward, SquashedGaussian
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Improved, SoftActorCritic
from ding_like.policy.sequences import SequencePolicy, priority_of_rows
from ding_like.rl_utils.distributions import squashed_gaussian
from ding_like.rl_utils.td import nstep_td_target
from ding_like.types import Array, Info
from ding_like.utils.registries import POLICY_REGISTRY


class Steps(NamedTuple):
    """What the networks gave of M steps, and the noise of the actions that are drawn there."""

    output: Tensor  # [M, 2 A], the actor's
    features: Tensor  # [M, F], what the critics remember
    noise: Tensor  # [M, A]

    def at(self, *index: Tensor) -> Steps:
        """Return the steps at indices of rows and times."""
        return Steps(*(part[index] for part in self))


@POLICY_REGISTRY.register("sac_recurrent")
class SACRecurrentPolicy(SequencePolicy, SoftActorCritic):
    """SAC from sequences, with a recurrent model.

    The model is a 'recurrent_qac', or any with its methods. `actor` and `critic`, whose part `memory(obs, state)` gives
    the features, are modules that share no parameters.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("act", "obs, state", ("B T 2A", "state")),
        ModelMethod("actor", "obs, state", ("B T 2A", "state")),
        ModelMethod("critic", "features, action", ("N B",)),
        ModelMethod("initial_state", None),
    )
    config: dict[str, Any] = dict(
        type="sac_recurrent",
        burnin_step=10,
        learn_unroll_len=20,
        learn=dict(update_per_collect=1, batch_size=32),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(replay_buffer_size=10000)),
    )

    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "the gradient of recurrent networks is autograd's"}
    model_name = "recurrent_qac"

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        # The critics' memory runs along, as rows hold its state beside the actor's.
        forward = RecurrentForward(self._model.act, self._model.initial_state, self._device)
        return ForwardActor(forward, SquashedGaussian(self._action_range(), is_random=explores))

    # ---- learning

    def _rows(self, batch: TransitionBatch) -> Rows:
        """Begin a gradient: return the steps of sequences that are learned from, M of them, as rows."""
        rows = self._begin(batch)
        mask = rows["mask"]
        unrolled = self._unrolled(self._obs(rows), self._obs(rows, "state"), begins=mask[:, 0])
        at = mask.nonzero(as_tuple=True)
        ends = self._return_ends(rows["num_steps"])[at]
        with torch.no_grad():
            target = self._critic.target.memory(self._obs(rows), self._obs(rows, "state"))[0]
        terminated, weight = rows["terminated"][at], self._weight(rows)
        return Rows(
            obs=unrolled.at(*at),
            action=self._inside(rows["action"][at]),
            reward=rows["reward"][at],
            next_obs=unrolled._replace(features=target).at(at[0], ends),
            discount=rows["discount"][at],
            terminated=torch.zeros_like(terminated) if self._cfg.learn.ignore_done else terminated,
            weight=1.0 if weight is None else weight[at[0]],
        )

    # Any: observations, a tensor or a dict of them.
    def _unrolled(self, obs: Any, state: Mapping[str, Tensor], *, begins: Tensor) -> Steps:
        """Return what actor and critics give of rows [B, L + 1, ...], with a gradient behind burn-in."""
        output = self._unroll(self._actor.network, obs, state, begins=begins)
        features = self._unroll(self._critic.network.memory, obs, state, begins=begins)
        # Of all steps, so that several learners draw alike however many steps of their rows count.
        return Steps(output, features, self._normal_like(output[..., : output.shape[2] // 2]))

    def grad(self, batch: TransitionBatch) -> tuple[Info, Array | None]:
        """Fill the gradients of critics, actor and temperature; priorities are those of sequences [B]."""
        batch = batch.to(self._device)
        info, of_steps = super().grad(batch)
        mask = batch["mask"]
        # Means over the steps that are learned from become means over rows: a step counts the same in every batch.
        share = mask.sum() / (len(batch) * self._shape.num_steps)
        for vector in self.grad_vectors():
            vector.mul_(share)
        info = {name: value * share if name.endswith("loss") else value for name, value in info.items()}
        if of_steps is None:
            return info, None
        mask, found = mask.cpu(), torch.from_numpy(of_steps)
        error = found.new_zeros(mask.shape).masked_scatter_(mask, found)
        return info, priority_of_rows(error, mask).numpy()

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        action, log_prob = self._draw(rows.next_obs)
        next_value = self._critic.target(rows.next_obs.features, action).amin(dim=0) - alpha * log_prob
        return nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)

    def _chosen(self, rows: Rows) -> tuple[Tensor, None]:
        return self._critic.network(rows.obs.features, rows.action), None

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        action, log_prob = self._draw(rows.obs)
        value = self._critic.network(rows.obs.features.detach(), action).amin(dim=0)
        loss = self._actor.backward((alpha * log_prob - value).mean())
        return Improved({"actor_loss": loss}, -log_prob.detach(), -action.shape[1])

    def _draw(self, obs: Steps) -> tuple[Tensor, Tensor]:
        """Return actions [M, A] that the actor draws in steps, and their log densities [M]."""
        mean, log_sigma = obs.output.chunk(2, dim=1)
        return squashed_gaussian(mean, log_sigma, obs.noise)
