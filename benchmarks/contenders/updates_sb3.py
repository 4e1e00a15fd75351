"""Stable-Baselines3's DQN and SB3-Contrib's QR-DQN: their updates alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.contenders import updates_work as work  # isort: skip  (pins the threads first)

import gymnasium
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

# `train` logs once a call: as often as a run that makes this many updates between two vector steps.
_UPDATES_A_CALL = 8


def _updates(algorithm: Any, **policy_kwargs: Any) -> Callable[[int], None]:
    model = algorithm(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * work.NUM_LANES),
        learning_rate=work.LEARNING_RATE,
        buffer_size=work.ROWS,
        batch_size=work.BATCH_SIZE,
        gamma=work.GAMMA,
        n_steps=work.NSTEP,
        policy_kwargs=dict(net_arch=list(work.HIDDEN), **policy_kwargs),
        device="cpu",
        seed=0,
    )
    model.set_logger(configure(None, []))
    infos: list[dict[str, Any]] = [{} for _ in range(work.NUM_LANES)]
    for step in work.lane_steps():
        model.replay_buffer.add(step.obs, step.next_obs, step.action, step.reward, step.terminated, infos)

    def update(count: int) -> None:
        for done in range(0, count, _UPDATES_A_CALL):
            model.train(gradient_steps=min(_UPDATES_A_CALL, count - done), batch_size=work.BATCH_SIZE)

    return update


def dqn() -> Callable[[int], None]:
    """Return DQN; it is not double."""
    return _updates(DQN)


def qrdqn() -> Callable[[int], None]:
    """Return QR-DQN."""
    return _updates(QRDQN, n_quantiles=work.NUM_QUANTILES)


if __name__ == "__main__":
    work.main({"dqn": dqn, "qrdqn": qrdqn}, ("stable_baselines3", "sb3_contrib", "gymnasium"))
