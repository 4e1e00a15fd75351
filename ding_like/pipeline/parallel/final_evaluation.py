"""Evaluate the last model of a run on fresh episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding_like.config import FrozenConfig
from ding_like.errors import ConfigError
from ding_like.pipeline.build import (
    EnvSetting,
    Opponents,
    build_eval_env,
    build_evaluator,
    build_policy,
    fit_policy_config,
    one_player_sees,
)
from ding_like.pipeline.roles.evaluate import EvaluateRole
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.policy import Policy
from ding_like.types import EnvManager


class FinalEvaluation:
    """Final evaluation and its envs, whose spaces are known before there is a policy."""

    def __init__(self, cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None) -> None:
        self._cfg = cfg
        self.manager: EnvManager = build_eval_env(cfg, seed=seed, env_setting=env_setting)
        self._versus = one_player_sees(cfg, self.manager, seed=seed, name="judge")
        self.env: EnvManager = self.manager if self._versus is None else self._versus  # as the policy sees it
        self._evaluator = build_evaluator(cfg, self.env, None, seed=seed)
        self._role: EvaluateRole | None = None

    def judge(self, policy: Policy, opponents: Opponents, *, before: Callable[[], None] | None = None) -> None:
        """Choose the policy to evaluate, and in games its opponent; before the first `play`.

        `before` is called before each.
        """
        if self._versus is not None:
            opponents.face(self._versus, str(self._cfg.env.manager.opponent))
        self._evaluator.reset_policy(policy.eval_mode)
        self._role = EvaluateRole(self._evaluator, LoadedWeights(policy), before=before)

    def play(self) -> dict[str, Any]:
        """Return what the policy is worth: `eval_value`, the mean of `eval_value_raw`, and lengths."""
        if self._role is None:
            raise ConfigError("there is no policy to evaluate: call judge() first.")
        final = self._role.final()
        return {
            "eval_value": final.mean,
            "eval_value_raw": final.returns,
            "eval_metrics": dict(final.metrics),
            "eval_lengths": final.lengths,
            "judge_s": final.duration_s,
        }

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()


def build_policy_alone(cfg: FrozenConfig, *, seed: int) -> Policy:
    """Build the policy of a config, fitted to envs that are closed again."""
    final_evaluation = FinalEvaluation(cfg, seed=seed)
    try:
        return build_policy(fit_policy_config(cfg.policy, final_evaluation.env), seed=seed)
    finally:
        final_evaluation.close()
