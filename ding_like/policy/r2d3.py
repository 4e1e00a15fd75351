"""R2D3: recurrent Q-learning from replayed sequences and demonstrations (Paine et al. 2020).

It is R2D2 (`policy/r2d2.py`), with sequences of an expert as a fixed share of each batch, the demo ratio of the paper.
An expert's sequences begin with the state before an episode, which burn-in warms up. The paper has no other loss than
R2D2's. With `learn.lambda2` above 0 that of DQfD (`policy/dqfd.py`) is added to each step of the expert's, on the scale
of h(Q):

    lambda2 * (max_a (Q(o_t, a) + expert_margin * [a != a_t]) - Q(o_t, a_t))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.policy.dqfd import LargeMargin
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("r2d3")
class R2D3Policy(LargeMargin, R2D2Policy):
    """Q-learning from sequences, an expert's among them, with a recurrent network."""

    config: dict[str, Any] = dict(type="r2d3", learn=dict(expert_share=0.25, lambda2=0.0, expert_margin=0.3))

    # Any: a mask of legal actions, or None.
    def _beside(self, rows: TransitionBatch, values: Tensor, legal: Any) -> Tensor | float:
        return self._margin_loss(rows, values, legal)
