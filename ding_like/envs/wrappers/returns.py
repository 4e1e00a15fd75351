"""Report an episode's return as the env itself counts it."""

from __future__ import annotations

from typing import Any

import gymnasium

from ding_like.utils.registries import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("eval_episode_return")
class EpisodeReturn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Put the sum of an episode's rewards into `info["eval_episode_return"]` at its end, unless it is there already.

    Placed inside a wrapper that changes rewards, it keeps reports and `stop_value` in the env's own currency.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin to count anew."""
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and count."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if terminated or truncated:
            info = {"eval_episode_return": self._return, **info}
        return obs, reward, terminated, truncated, info
