"""Choose opponents: prioritised fictitious self-play (Vinyals et al. 2019, "Grandmaster level in StarCraft II")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ding_like.errors import ConfigError
from ding_like.types import Array


def pfsp(win_rates: Sequence[float] | Array, weighting: str = "squared") -> Array:
    """Return the probability [N] of each opponent, given our win rates [N] against them.

    'squared' is (1 - p)^2, which prefers those we lose to; 'variance' is p (1 - p), which prefers our equals. Where
    every weight is 0 (we beat every player, always) all are as likely. Raises ConfigError for another weighting, for no
    opponents, and for invalid rates.
    """
    rates = np.asarray(win_rates, np.float64)
    if rates.ndim != 1 or not len(rates) or not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise ConfigError(f"pfsp takes win rates from 0 to 1, at least one, got {win_rates!r:.80}.")
    if weighting == "squared":
        weights = (1.0 - rates) ** 2
    elif weighting == "variance":
        weights = rates * (1.0 - rates)
    else:
        raise ConfigError(f"pfsp weighting is {weighting!r}; expected 'squared' or 'variance'.")
    total = weights.sum()
    # Below this a division could overflow, and the weights say nothing any more.
    if total < 1e-12:
        return np.full(len(rates), 1.0 / len(rates))
    probabilities: Array = weights / total
    return probabilities
