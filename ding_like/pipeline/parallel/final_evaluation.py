"""FinalEvaluation the last model of a run on fresh episodes."""

from __future__ import annotations

from typing import Any

from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.manager.versus import VersusManager
from ding_like.pipeline.build import EnvSetting, Opponents
from ding_like.pipeline.self_play import is_game, versus
from ding_like.types import EnvManager
from ding_like.worker import InteractionSerialEvaluator, create_serial_evaluator

_EPISODES = 20
_NUMBER = -1  # of the evaluation that judges the last model: its episodes are none that a stop rule has seen


class FinalEvaluation:
    """Hold the envs of an evaluation."""

    def __init__(self, cfg: Any, *, seed: int, env_setting: EnvSetting | None = None) -> None:
        env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
        self.manager: EnvManager = create_env_manager(cfg.env.manager, [EnvFactory(each, env_fn) for each in env_cfgs])
        self.manager.seed(seed)
        self.manager.launch()
        self.env = self.manager  # as the policy that is judged sees it
        self._versus: VersusManager | None = None
        if is_game(cfg):
            self.env = self._versus = versus(self.manager, seed=seed, name="judge")
            self._opponent = str(cfg.env.manager.opponent)
        self._evaluator: InteractionSerialEvaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator, env=self.env, policy=None, seed=seed, exp_name=cfg.exp_name
        )

    def face(self, opponents: Opponents) -> None:
        """In games, choose whom the policy is judged by; before the first `play`."""
        if self._versus is not None:
            opponents.face(self._versus, self._opponent)

    def play(self, eval_mode: Any) -> dict[str, Any]:
        """Return what a policy is worth: `eval_value`, the mean return, and what it is of."""
        self._evaluator.reset_policy(eval_mode)
        final = self._evaluator.play(max(_EPISODES, self.env.num_lanes), number=_NUMBER)
        return {"eval_value": final.mean, "eval_value_raw": final.returns, "judge_s": final.duration_s}

    def close(self) -> None:
        """Close the envs; may be called again."""
        self._evaluator.close()
