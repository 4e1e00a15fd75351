"""Act at random with a probability that falls as env steps are taken: what epsilon-greedy policies have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ding_like.policy.base import Policy
from ding_like.rl_utils.exploration import get_epsilon_greedy_fn
from ding_like.utils.bounds import FROM_1, SHARE, Bounds


class EpsilonPolicy(Policy):
    """Tell collectors the epsilon of `other.eps` (type, start, end, decay) for an env step."""

    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "other.eps.start": SHARE,
        "other.eps.end": SHARE,
        "other.eps.decay": FROM_1,
    }

    @staticmethod
    def _eps_faults(cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for what is wrong with `other.eps`."""
        if cfg["other"]["eps"]["type"] not in ("exp", "linear"):
            yield "other.eps.type", f"must be 'exp' or 'linear', got {cfg['other']['eps']['type']!r}"
        if cfg["other"]["eps"]["start"] < cfg["other"]["eps"]["end"]:
            yield "other.eps.start", "is less than eps.end: exploration would grow. Swap start and end"

    def _init_command(self) -> None:
        eps = self._cfg.other.eps
        self._epsilon = get_epsilon_greedy_fn(eps.start, eps.end, eps.decay, eps.type)

    def _get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return epsilon for the env step in `info`."""
        return {"eps": self._epsilon(int(info["envstep"]))}
