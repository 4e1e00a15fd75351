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
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn

from ding_like.model.layers import factor_noise
from ding_like.model.numpy_networks import NumpyGrad
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.value_family import CategoricalValue, ScalarValue, ValueFamily
from ding_like.types import Array, Config
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
        is_distributional, *_ = attributes_of(
            self._model, "distributional", "noise_size", "under", policy=self._cfg.type
        )
        if not is_distributional:
            return ScalarValue(self._cfg.learn.loss)
        return CategoricalValue(*attributes_of(self._model, "v_min", "v_max", "n_atom", policy=self._cfg.type))

    # Any: tensors, in a dict or not; what the family predicts.
    def _next_value(self, next_obs: Any, mask: Any) -> Any:
        """Return the value [B, ...] of next observations: the best legal action's, by the target network."""
        values = self._target.tensor(next_obs, self._draw())
        judge = self._online.tensor(next_obs, self._draw()) if self._cfg.double else values
        return self._family.of_best(values, self._family.expected(judge), mask)

    # Any: as above.
    def _predict(self, obs: Any) -> Any:
        return _predicted(self._family, self._model, obs, self._draw())

    def _predict_by_hand(self, model: NumpyGrad, obs: Array) -> Array:
        noise = self._draw()
        return model.forward(obs, None if noise is None else noise.numpy())

    @property
    def _draws(self) -> bool:
        return bool(self._model.noise_size)

    def _draw(self) -> Tensor | None:
        """Return noise [P] for one use of a network, which all learners draw alike; None if it takes none."""
        return None if self._noise is None else factor_noise(self._noise.normal(self._model.noise_size))

    def _predictions(self, model: nn.Module) -> NetworkForward:
        return NetworkForward(partial(_predicted, self._family, model), self._numpy_twin(model), self._device)

    # ---- acting

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        twin = self._numpy_twin(self._model)
        family: Any = self._family  # it is a ByHand where there is a twin
        then = None if twin is None else family.expected_by_hand
        values = NetworkForward(partial(_expected, self._family, self._model), twin, self._device, then=then)
        return ForwardActor(values, EpsilonGreedy(), noise_size=self._model.noise_size if explores else 0)


# Any: observations as the model takes them, what the family predicts.
def _predicted(family: ValueFamily[Any], model: Any, obs: Any, noise: Tensor | None = None) -> Any:
    return family.predict(model.under(noise), obs)


def _expected(family: ValueFamily[Any], model: Any, obs: Any, noise: Tensor | None = None) -> Tensor:
    return family.expected(_predicted(family, model, obs, noise))
