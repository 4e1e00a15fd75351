"""Our DQN end to end: `serial_pipeline` with hooks and logs at their defaults."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

from ding_like.entry import serial_pipeline
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.worker import BaseLearner, InteractionSerialEvaluator, LearnerHook, register_learner_hook

RANDOM_STEPS = 1000


def configs(*, steps: int, n_sample: int = 8, manager: str = "base", backend: str = "auto") -> tuple[Any, Any]:
    """Return (main_config, create_config) of the work that the README describes."""
    main = dict(
        exp_name="bench",
        env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8),
        policy=dict(
            discount_factor=0.99,
            double=False,
            nstep=1,
            random_collect_size=RANDOM_STEPS,
            model=dict(encoder_hidden_size_list=[128, 128, 64], dueling=False, head_layer_num=0),
            learn=dict(
                update_per_collect=1,
                batch_size=64,
                learning_rate=1e-3,
                target_update_freq=500,
                loss="mse",
                backend=backend,
            ),
            collect=dict(n_sample=n_sample),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.1, decay=steps // 2),
                replay_buffer=dict(replay_buffer_size=100_000),
            ),
        ),
    )
    create = dict(
        env=dict(type="gymnasium"),
        env_manager=dict(type=manager),
        policy=dict(type="dqn"),
        evaluator=dict(type="never"),
    )
    return main, create


@SERIAL_EVALUATOR_REGISTRY.register("never")
class NeverEvaluator(InteractionSerialEvaluator):
    """Evaluate at no time of the training, as the peers do; the last model is judged after the clock has stopped."""

    def should_eval(self, train_iter: int) -> bool:
        return False


class ClockHook(LearnerHook):
    """Start the clock before the loop, and stop it at the last update: what follows saves, judges and draws."""

    clock: Clock
    updates: int
    env_steps = 0  # what the run had done when the clock stopped

    def __call__(self, engine: BaseLearner) -> None:
        if self.position == "before_run":
            self.clock.start()
        elif engine.train_iter + 1 == self.updates:  # hooks run before the count goes up
            self.clock.stop()
            ClockHook.env_steps = engine.collector_envstep


def main() -> None:
    """Train once and print the rates, or a profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--backend", default="auto", choices=["auto", "autograd"])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    ClockHook.clock = Clock(profile=args.profile)
    ClockHook.updates = (args.steps - RANDOM_STEPS) // 8
    register_learner_hook("clock", ClockHook)
    main_config, create_config = configs(steps=args.steps, backend=args.backend)
    hooks = {f"clock_{position}": True for position in ("before_run", "after_iter")}
    main_config["policy"]["learn"]["learner"] = dict(hook=hooks)
    serial_pipeline((main_config, create_config), seed=0, max_env_step=args.steps)
    ClockHook.clock.report(ClockHook.env_steps, updates=ClockHook.updates)
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
