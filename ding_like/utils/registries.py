"""Create every registry, each with the package where its classes live.

Nothing is imported from those packages until a name is asked for: that is how levels 1 to 5 reach classes above them.
"""

from __future__ import annotations

from typing import Any

from ding_like.utils.registry import Registry

# What a registry builds is a protocol's matter (types.py), not one base class: hence Registry[Any].
POLICY_REGISTRY: Registry[Any] = Registry(
    "policy",
    "ding_like.policy",
    modules={
        **dict.fromkeys(("c51", "qrdqn"), "ding_like.policy.dqn"),
        "drqn": "ding_like.policy.r2d2",
        "pg": "ding_like.policy.a2c",
        "ppo_offpolicy": "ding_like.policy.ppo",
        "td3": "ding_like.policy.ddpg",
    },
)
POLICY_REGISTRY.alias("sac_discrete", "discrete_sac")  # as some of DI-engine's configs have it
MODEL_REGISTRY: Registry[Any] = Registry("model", "ding_like.model")
ENV_REGISTRY: Registry[Any] = Registry(
    "env",
    "ding_like.envs",
    modules={"gymnasium": "ding_like.envs.gymnasium_env", "joint_petting_zoo": "ding_like.envs.petting_zoo"},
)
ENV_WRAPPER_REGISTRY: Registry[Any] = Registry("env_wrapper", "ding_like.envs.wrappers")
ENV_MANAGER_REGISTRY: Registry[Any] = Registry(
    "env_manager",
    "ding_like.envs.manager",
    modules=dict.fromkeys(("envpool", "ale_vector"), "ding_like.envs.manager.native"),
)
LEARNER_REGISTRY: Registry[Any] = Registry("learner", "ding_like.worker.learner")
LEARNER_HOOK_REGISTRY: Registry[Any] = Registry("learner_hook", "ding_like.worker.learner.base")
_BATTLE = "ding_like.worker.collector.battle"
SERIAL_COLLECTOR_REGISTRY: Registry[Any] = Registry(
    "serial_collector",
    "ding_like.worker.collector",
    modules=dict.fromkeys(("sample_1v1", "episode_1v1", "battle_sample", "battle_episode"), _BATTLE),
)
SERIAL_EVALUATOR_REGISTRY: Registry[Any] = Registry(
    "serial_evaluator",
    "ding_like.worker.evaluator",
    modules=dict.fromkeys(("interaction_1v1", "battle_interaction"), "ding_like.worker.evaluator.interaction"),
)
PARALLEL_COLLECTOR_REGISTRY: Registry[Any] = Registry(
    "parallel_collector", "ding_like.pipeline.parallel", modules={"marine": "ding_like.pipeline.parallel.zergling"}
)
BUFFER_REGISTRY: Registry[Any] = Registry("buffer", "ding_like.worker.replay_buffer")
COMMANDER_REGISTRY: Registry[Any] = Registry("commander", "ding_like.worker.commander")
COMM_LEARNER_REGISTRY: Registry[Any] = Registry(
    "comm_learner", "ding_like.pipeline.parallel", modules={"flask_fs": "ding_like.pipeline.parallel.comm_learner"}
)
COMM_COLLECTOR_REGISTRY: Registry[Any] = Registry(
    "comm_collector", "ding_like.pipeline.parallel", modules={"flask_fs": "ding_like.pipeline.parallel.comm_collector"}
)
WEIGHT_UPDATER_REGISTRY: Registry[Any] = Registry(
    "weight_updater", "ding_like.comm.weights", modules={"distributed": "ding_like.comm.weights.weight_updater"}
)
RANK_COLLECTOR_REGISTRY: Registry[Any] = Registry(
    "rank_collector", "ding_like.pipeline.ranks", modules={"rank": "ding_like.pipeline.ranks.collector"}
)
COORDINATOR_REGISTRY: Registry[Any] = Registry(
    "coordinator", "ding_like.pipeline.parallel", modules={"flask_fs": "ding_like.pipeline.parallel.coordinator"}
)
LEAGUE_REGISTRY: Registry[Any] = Registry("league", "ding_like.league.league")
PLAYER_REGISTRY: Registry[Any] = Registry("player", "ding_like.league.player")
REWARD_MODEL_REGISTRY: Registry[Any] = Registry("reward_model", "ding_like.reward_model")
TRACKER_REGISTRY: Registry[Any] = Registry("tracker", "ding_like.utils.trackers")

ENV_MANAGER_REGISTRY.alias("async_subprocess", "subprocess")  # DI-engine's name
ENV_MANAGER_REGISTRY.alias("env_pool", "envpool")  # DI-engine's name
BUFFER_REGISTRY.alias("deque", "naive")  # what DI-engine's newer configs ask for

REGISTRIES: dict[str, Registry[Any]] = {
    registry.name: registry
    for registry in (
        POLICY_REGISTRY,
        ENV_REGISTRY,
        ENV_WRAPPER_REGISTRY,
        ENV_MANAGER_REGISTRY,
        MODEL_REGISTRY,
        REWARD_MODEL_REGISTRY,
        LEARNER_REGISTRY,
        LEARNER_HOOK_REGISTRY,
        SERIAL_COLLECTOR_REGISTRY,
        PARALLEL_COLLECTOR_REGISTRY,
        SERIAL_EVALUATOR_REGISTRY,
        BUFFER_REGISTRY,
        COMMANDER_REGISTRY,
        COMM_LEARNER_REGISTRY,
        COMM_COLLECTOR_REGISTRY,
        WEIGHT_UPDATER_REGISTRY,
        RANK_COLLECTOR_REGISTRY,
        COORDINATOR_REGISTRY,
        LEAGUE_REGISTRY,
        PLAYER_REGISTRY,
        TRACKER_REGISTRY,
    )
}
