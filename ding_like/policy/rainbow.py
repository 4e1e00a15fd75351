"""Rainbow (Hessel et al. 2018): six additions to deep Q-learning in one agent, each of which can be switched off.

They are double Q-learning (`double`), dueling streams (`model.dueling`), distributions of returns
(`model.distributional`), noisy networks (`model.noise`; exploration is by `other.eps` alone without), n-step returns
(`nstep=1`) and prioritised replay (`priority=False`). A row is (obs, action, R, discount, next_obs, terminated). With
z_1 ... z_N the possible returns and p(s, a) their probabilities, which a network gives under a noise,

    a*       = argmax_a sum_i z_i p_i(next_obs, a)             by the online network
    m        = projection of R + discount * z, which has the probabilities p'(next_obs, a*), onto z
                                                               p' is the target network's; of R alone if terminated
    loss     = mean(weight * -sum_i m_i log p_i(obs, action))
    priority = sum_i m_i log(m_i / p_i(obs, action))           the KL divergence, section "the integrated agent"

These networks run under noise, whose equations are in `model/layers.py`. The three noises of an update are independent
draws, each for all of its rows. In acting, each env has its own in every step; an evaluation has none. The update
around it is `policy/value_based.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.value_family import CategoricalValue, ScalarValue, ValueFamily
from ding_like.types import Config
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("rainbow")
class RainbowPolicy(DQNPolicy):
    """Q-learning of distributions of returns that explores by noisy networks."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("under", "noise", ("model",)),
        ModelMethod("noise_size", None),
    )
    config: dict[str, Any] = dict(
        type="rainbow",
        priority=True,
        priority_IS_weight=True,
        nstep=3,
        other=dict(
            # On top of noise, so small; without noise it is all exploration that there is.
            eps=dict(type="exp", start=0.05, end=0.05, decay=100000),
            replay_buffer=dict(type="advanced", replay_buffer_size=20000),
        ),
    )

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["model"].get("distributional", True):
            yield from cls._no_effect(cfg, ("learn.loss",), "probabilities are compared by their cross entropy")

    model_name = "rainbowdqn"

    @cached_property
    def _family(self) -> ValueFamily[Any]:  # Any: whatever a family makes predictions of
        names = ("distributional", "noise_size", "under")
        is_distributional, *_ = attributes_of(self._model, *names, policy=self._cfg.type)
        if not is_distributional:
            return ScalarValue(self._cfg.learn.loss)
        return CategoricalValue(*attributes_of(self._model, "v_min", "v_max", "n_atom", policy=self._cfg.type))
