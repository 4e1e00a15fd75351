"""Our DQN and PPO on Pong with the manager `ale_vector`, hooks and logs at their defaults."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Clock, emit, emit_versions  # isort: skip  (pins the threads first)

import tensorboardX  # noqa: F401  (30 ms once a process, at the first log; SB3 imports its writer with itself)

from benchmarks.contenders import atari_work as work
from benchmarks.contenders.dqn_ours import ClockHook
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.utils.registries import ENV_REGISTRY
from ding_like.worker import register_learner_hook
from dizoo.atari.envs import AtariEnv


@ENV_REGISTRY.register("pong_judged_briefly")
class PongJudgedBriefly(AtariEnv):
    """Env of Pong; episodes of evaluations are short, as a run ends with 20 of them after the clock has stopped."""

    @classmethod
    def create_evaluator_env_cfg(cls, cfg: Any) -> list[Any]:
        """Return the sections of the evaluator's envs."""
        sections = super().create_evaluator_env_cfg(cfg)
        for section in sections:
            section.kwargs = {"max_num_frames_per_episode": 200}
        return sections


def configs(algorithm: str, *, steps: int) -> tuple[Any, Any]:
    """Return (main_config, create_config) of the common work."""
    main = dict(
        exp_name="bench",
        env=dict(
            # Lives, FIRE and rewards as SB3's wrapper has them.
            env_id="PongNoFrameskip-v4",
            collector_env_num=work.ENVS,
            evaluator_env_num=1,
            n_evaluator_episode=1,
        ),
        policy=_dqn(steps) if algorithm == "dqn" else _ppo(),
    )
    create = dict(
        env=dict(type="pong_judged_briefly"),
        env_manager=dict(type="ale_vector"),
        policy=dict(type=algorithm),
        evaluator=dict(type="never"),
    )
    return main, create


def _dqn(steps: int) -> dict[str, Any]:
    return dict(
        discount_factor=work.GAMMA,
        double=False,
        nstep=1,
        random_collect_size=work.WARMUP,
        model=dict(dueling=False, head_layer_num=0),
        learn=dict(
            update_per_collect=work.UPDATES_A_CALL,
            batch_size=work.DQN_BATCH,
            learning_rate=work.DQN_LR,
            target_update_freq=work.TARGET_EVERY // work.ENVS * work.UPDATES_A_CALL,
            loss="huber",
            grad_clip_norm=work.MAX_GRAD_NORM["dqn"],
        ),
        collect=dict(n_sample=work.ENVS),
        other=dict(
            eps=dict(type="linear", start=1.0, end=work.EPS_END, decay=steps // 2),
            # Each frame is kept once, as the shipped configs have it.
            replay_buffer=dict(replay_buffer_size=work.REPLAY, frame_stack=4),
        ),
    )


def _ppo() -> dict[str, Any]:
    return dict(
        discount_factor=work.GAMMA,
        model=dict(actor_head_layer_num=0, critic_head_layer_num=0),
        learn=dict(
            epoch_per_collect=work.EPOCHS,
            batch_size=work.PPO_BATCH,
            learning_rate=work.PPO_LR,
            clip_ratio=work.CLIP,
            value_weight=0.5,
            entropy_weight=work.ENTROPY,
            grad_clip_value=work.MAX_GRAD_NORM["ppo"],
            adv_norm=True,
        ),
        collect=dict(n_sample=work.ROLLOUT, gae_lambda=work.LAMBDA),
    )


def main() -> None:
    """Train once and print the rates, or a profile."""
    args = work.parse(profile=True)
    ClockHook.clock = clock = Clock(profile=args.profile)
    ClockHook.updates = work.updates_of(args.algorithm, args.steps)
    register_learner_hook("clock", ClockHook)
    main_config, create_config = configs(args.algorithm, steps=args.steps)
    hooks = {f"clock_{position}": True for position in ("before_run", "after_iter")}
    main_config["policy"]["learn"]["learner"] = dict(hook=hooks)
    train = serial_pipeline if args.algorithm == "dqn" else serial_pipeline_onpolicy
    train((main_config, create_config), seed=0, max_env_step=args.steps)
    if not args.profile:
        emit("frames_wall", round(ClockHook.env_steps * work.FRAMES_A_STEP / clock.wall_s, 1), "frames/s")
    clock.report(ClockHook.env_steps, updates=ClockHook.updates)
    emit_versions("ale-py", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
