"""Distributed distributional deterministic policy gradients, D4PG (Barth-Maron et al. 2018).

DDPG whose critic gives a distribution of returns: probabilities p_i(obs, action) of the N fixed returns z_i, evenly
spaced from v_min to v_max. A row is that of `policy/ddpg.py`, of 5 steps; primes mark the target networks. The losses
are

    m_i         = sum_j p_j'(next_obs, mu'(next_obs)) h_i(R + discount * z_j)     of R alone if terminated
    critic_loss = -mean(weight * sum_i m_i log p_i(obs, action))                  the cross entropy
    actor_loss  = -mean(sum_i z_i p_i(obs, mu(obs)))
    priority    = sum_i m_i log(m_i / p_i(obs, action))                           the KL divergence

where h_i, which is 1 at z_i and falls to 0 at its neighbours, projects onto the z_i (C51, Bellemare et al. 2017,
eq. 7; `rl_utils/value_family.py`). Of several critics, p' is of the one that expects the least.

The paper's many actors are the pipelines' (`ding -m parallel`, `ray` and `seed`), for every policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ding_like.policy.ddpg import DDPGPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.value_family import CategoricalValue, ValueFamily
from ding_like.utils.bounds import FINITE, FROM_1, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("d4pg")
class D4PGPolicy(DDPGPolicy):
    """Deterministic actor and a critic of distributions of returns, learned off-policy from rows of several steps."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("actor"),
        ModelMethod("critic", "obs, action", ("N B M",)),
        *(ModelMethod(name, None) for name in ("v_min", "v_max", "n_atom")),
    )
    config: dict[str, Any] = dict(
        type="d4pg",
        nstep=5,
        model=dict(
            # Smallest return of the critic's distribution, discounted; smaller ones count as this.
            v_min=-10.0,
            # Largest return of the critic's distribution, discounted; larger ones count as this.
            v_max=10.0,
            # Returns from v_min to v_max, both among them.
            n_atom=51,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "model.v_min": FINITE,
        "model.v_max": FINITE,
        "model.n_atom": FROM_1,
    }
    config_unused: ClassVar[Mapping[str, str]] = {"learn.backend": "the gradient of distributions is autograd's"}

    def _make_family(self) -> ValueFamily[Tensor]:
        return CategoricalValue(*attributes_of(self._model, "v_min", "v_max", "n_atom", policy=self._cfg.type))

    def _next_value(self, prediction: Tensor, action: Tensor, rows: Rows) -> Tensor:
        """Return the probabilities [B, M] that the critic of the least expected return gives, of logits [N, B, M]."""
        by_row = prediction.transpose(0, 1)
        return self._family.of_best(by_row, -self._family.expected(by_row), None)
