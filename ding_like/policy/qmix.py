"""QMIX (Rashid et al. 2018): Q-learning of a team whose value grows with those of its agents.

What VDN adds up, a mixer puts together whose weights the state makes, none of them negative, so that what is best for
each agent is best for all (equations 4 to 6, figure 2):

    Q_tot(s, u) = w_2(s) . elu(W_1(s) (alive_a Q_a(o_a, u_a))_a + b_1(s)) + b_2(s)     W_1, w_2 >= 0
    y           = r + discount * Q_tot'(s', (argmax_u Q_a(o_a', u))_a)
    loss        = mean((Q_tot(s, u) - y)^2)

Who counts, and all else of the update, is in `policy/vdn.py`. With `model.mixer=False` it is VDN.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.vdn import VDNPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("qmix")
class QMIXPolicy(VDNPolicy):
    """Q-learning of a team's discrete actions from its common reward, by a mixer of its agents' values."""

    config: dict[str, Any] = dict(type="qmix")

    model_name = "qmix"
