"""Never Give Up (Badia et al. 2020): a bonus for what is new in the episode, times how new it is at all.

    b_t    = r_t^episodic * min(max(alpha_t, 1), L)                       equation 1
    r_t^ep = 1 / s_t, 0 where s_t is above s_max                          algorithm 1
    s_t    = sqrt(sum over the k nearest f_i of f(x_t) of K(d_i)) + c
    K(d)   = eps / (max(d / d_m - xi, 0) + eps)                           d = |f(x_t) - f_i|^2
    alpha  = 1 + (e(x_t) - mean(e)) / deviation(e)                        e is the error of random network distillation

f are features that an inverse model shapes, which predicts the action between two observations, and d_m is the mean of
all distances to nearest neighbours so far. The reward of a step is for the observation x_t that it leads to, and the
memory f_i is of the observations before it in its row: with rows as long as episodes, those of the whole episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.data.batch import TransitionBatch, map_obs
from ding_like.reward_model.base import Moments, Transitions
from ding_like.reward_model.intrinsic import DistillationRewardModel, InverseModel, RandomDistance
from ding_like.types import Info
from ding_like.utils.bounds import ABOVE_0, FROM_0, FROM_1, Bounds
from ding_like.utils.registries import REWARD_MODEL_REGISTRY


@REWARD_MODEL_REGISTRY.register("ngu")
class NGURewardModel(DistillationRewardModel):
    """Bonus of the steps of sequences: new in the episode, times new at all."""

    config: dict[str, Any] = dict(
        type="ngu",
        # The rows of policy 'ngu' have weights of their own, the beta of their arm.
        intrinsic_reward_weight=1.0,
        hidden_size_list=[64, 64, 32],
        num_neighbors=10,  # nearest neighbours that are compared, k
        kernel_epsilon=1e-4,  # eps of the kernel: smaller is more similar to nothing else
        cluster_distance=8e-3,  # relative distance below which two observations count as the same, xi
        pseudo_count=1e-3,  # what is added to the similarity, c
        max_similarity=8.0,  # similarity above which there is no bonus, s_max
        max_lifelong=5.0,  # largest factor of what is new at all, L
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "num_neighbors": FROM_1,
        "kernel_epsilon": ABOVE_0,
        "cluster_distance": FROM_0,
        "pseudo_count": ABOVE_0,
        "max_similarity": ABOVE_0,
        "max_lifelong": FROM_1,
    }
    needs_sequences = True
    monitored = ("reward_model_loss", "inverse_loss", "lifelong_loss")

    def build(self) -> nn.Module:
        """Return the networks of both kinds of novelty, with the moments."""
        inverse = InverseModel(self.sizes, self._cfg.hidden_size_list)
        return nn.ModuleDict({"inverse": inverse, "distillation": self.build_distillation(), "distances": Moments(1)})

    @property
    def distillation(self) -> RandomDistance:
        """Networks of random network distillation."""
        found: RandomDistance = self.module["distillation"]
        return found

    def collect(self, batch: TransitionBatch) -> None:
        """Take the batch that the policy learns from next, and the moments of it."""
        super().collect(batch)
        transitions = self.transitions_of(batch)
        with torch.no_grad():
            distance = self.nearest(transitions)  # [B, T, k]
        counts = distance.isfinite()
        if transitions.valid is not None:
            counts &= transitions.valid.reshape(*distance.shape[:2], 1)
        self.module["distances"].update(distance[counts], self.mean_of_learners)

    def update(self, minibatch: Transitions) -> tuple[Tensor, Info]:
        """Return (the loss of the inverse model and of the predictor, each of them)."""
        inverse: InverseModel = self.module["inverse"]
        features = inverse.features(minibatch.obs), inverse.features(minibatch.next_obs)
        of_action = inverse.loss(*features, minibatch.action)
        lifelong = self.distillation(minibatch.next_obs).mean()
        return of_action + lifelong, {"inverse_loss": of_action.detach(), "lifelong_loss": lifelong.detach()}

    def rewards(self, transitions: Transitions) -> Tensor:
        """Return the bonus [N] of steps of sequences."""
        error, moments = self.distillation(transitions.next_obs), self.distillation.moments
        novelty = 1 + (error - moments.mean.float()) / moments.std
        return self.episodic(transitions) * novelty.clamp(1.0, self._cfg.max_lifelong)

    def episodic(self, transitions: Transitions) -> Tensor:
        """Return the episodic novelty [N] of the observations that steps lead to."""
        cfg = self._cfg
        mean = self.module["distances"].mean.float().clamp(min=1e-8)
        relative = (self.nearest(transitions) / mean - cfg.cluster_distance).clamp(min=0.0)
        similarity = (cfg.kernel_epsilon / (relative + cfg.kernel_epsilon)).sum(dim=2).sqrt() + cfg.pseudo_count
        return torch.where(similarity > cfg.max_similarity, 0.0, 1 / similarity).flatten()

    def nearest(self, transitions: Transitions) -> Tensor:
        """Return the squared distances [B, T, k] to nearest neighbours, infinite where there are fewer than k."""
        features, steps = self.module["inverse"].features, transitions.row_steps
        begin = map_obs(lambda it: it[::steps], transitions.obs)
        after = features(transitions.next_obs).reshape(-1, steps, self._cfg.hidden_size_list[-1])
        memory = torch.cat([features(begin).unsqueeze(1), after[:, :-1]], dim=1)  # [B, T, F], of x_0 to x_{T - 1}
        # The product of matrices that torch would take is not exact where two observations are the same.
        distance = torch.cdist(after, memory, compute_mode="donot_use_mm_for_euclid_dist").square()
        place = torch.arange(steps, device=distance.device)
        distance = distance.masked_fill(place > place[:, None], torch.inf)
        return distance.topk(min(self._cfg.num_neighbors, steps), dim=2, largest=False).values
