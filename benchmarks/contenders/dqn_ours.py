"""Our DQN end to end: a serial run with hooks and logs at their defaults."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks.common import Clock, emit_versions  # isort: skip  (pins the threads first)

from ding_like.config import compile_config
from ding_like.pipeline.build import build_serial, training_process
from ding_like.pipeline.serial import SerialRun
from ding_like.utils.registries import SERIAL_EVALUATOR_REGISTRY
from ding_like.worker import BaseLearner, InteractionSerialEvaluator, LearnerHook


def configs(*, steps: int, n_sample: int = 8, manager: str = "base", backend: str = "auto") -> tuple[Any, Any]:
    """Return (main_config, create_config) of the work that the README describes."""
    main = dict(
        exp_name="bench",
        env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8),
        policy=dict(
            discount_factor=0.99,
            double=False,
            nstep=1,
            random_collect_size=1000,
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


class CallHook(LearnerHook):
    """Call a function at one position of the run."""

    def __init__(self, call: Callable[[], None], *, position: str, priority: float) -> None:
        super().__init__(call.__name__, priority, position=position)
        self._call = call

    def __call__(self, engine: BaseLearner) -> None:
        self._call()


def main() -> None:
    """Train once and print the rates, or a profile; the clock covers the loop, not building and not judging."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--backend", default="auto", choices=["auto", "autograd"])
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    args = parser.parse_args()
    clock = Clock(profile=args.profile)
    cfg = compile_config(*configs(steps=args.steps, backend=args.backend), seed=0)
    with training_process():
        parts = build_serial(cfg, seed=0)
        # The last thing before the loop, the first thing after it: checkpoints are loaded and saved outside.
        parts.learner.register_hook(CallHook(clock.start, position="before_run", priority=1000))
        parts.learner.register_hook(CallHook(clock.stop, position="after_run", priority=0))
        result = SerialRun(cfg, parts, max_train_iter=float("inf"), max_env_step=args.steps).run()
        parts.close()
    clock.report(result.env_step, updates=result.train_iter)
    emit_versions("torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
