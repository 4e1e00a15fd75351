"""REINFORCE with a baseline (Williams 1992; Sutton and Barto 2018, section 13.4).

Episodes are played to their ends, then each row is learned from once. With G the discounted sum of the rewards from a
row on, and V, the baseline, what a critic says of its observation:

    loss = mean(-log_prob * (G - V)) + value_weight * mean((V - G)^2) - entropy_weight * mean(entropy)

The first V is a constant, that of when the episode was played. An episode that was truncated counts as going on: its
rewards are followed by V of its true last observation, and so are those of one that is cut where a batch ends
(collect.n_sample in place of collect.n_episode).

This is the loss of `policy/a2c.py` on whole returns, generalised advantages with lambda 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ding_like.policy.a2c import A2CPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("pg")
class PGPolicy(A2CPolicy):
    """Learn discrete or continuous actions from whole returns."""

    config: dict[str, Any] = dict(
        type="pg",
        learn=dict(batch_size=64),
        collect=dict(n_sample=1024, gae_lambda=1.0),
    )

    # Type of a collector -> what it has as a default with this policy, which learns from the rows of episodes.
    collector_config: ClassVar[dict[str, dict[str, Any]]] = {"episode": {"get_train_sample": True}}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        if cfg["collect"]["gae_lambda"] != 1:
            yield (
                "collect.gae_lambda",
                f"must be 1, got {cfg['collect']['gae_lambda']}: whole returns are what this algorithm learns from; "
                "choose policy 'a2c' for a shorter mean",
            )

    def default_model(self) -> tuple[str, list[str]]:
        return "pg", []
