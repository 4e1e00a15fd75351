"""What a user calls: `serial_pipeline()` and its siblings, and the command line."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

# Imported on first use: `ding --help` must not wait for torch.
_HOMES = {
    "serial_pipeline": "ding_like.entry.serial_entry",
    "serial_pipeline_onpolicy": "ding_like.entry.serial_entry",
    "serial_pipeline_bc": "ding_like.entry.data_set_entry",
    "serial_pipeline_offline": "ding_like.entry.data_set_entry",
    "resume_pipeline": "ding_like.entry.train",
    "parallel_pipeline": "ding_like.entry.parallel_entry",
    "ray_pipeline": "ding_like.entry.ray_entry",
    "seed_pipeline": "ding_like.entry.seed_entry",
    "launch_coordinator": "ding_like.entry.parallel_entry",
    "launch_collector": "ding_like.entry.dist_entry",
    "launch_learner": "ding_like.entry.dist_entry",
    "random_collect": "ding_like.pipeline.collect",
    "collect_demo_data": "ding_like.entry.eval_entry",
    "collect_demonstrations": "ding_like.entry.demonstrations",
    "collect_levels": "ding_like.entry.levels",
    "collect_episodic_demo_data": "ding_like.entry.demonstrations",
    "eval": "ding_like.entry.eval_entry",
    "live_page": "ding_like.entry.page",
    **{
        f"serial_pipeline_{name}": "ding_like.entry.stages"
        for name in (
            *("gail", "sqil", "dqfd", "r2d3", "ngu", "reward_model"),
            *("preference_based_irl", "preference_based_irl_onpolicy"),
        )
    },
    # DI-engine has two, by the policy's nature, which the config says.
    **{
        f"serial_pipeline_reward_model_{name}": "ding_like.entry.stages:serial_pipeline_reward_model"
        for name in ("offpolicy", "onpolicy")
    },
    # DI-engine's own entry of PPG: here every on-policy algorithm has the same.
    "serial_pipeline_onpolicy_ppg": "ding_like.entry.serial_entry:serial_pipeline_onpolicy",
}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "serial_pipeline_plr": "use collect's level_seeds in a loop of your own",
    "serial_pipeline_td3_vae": "use serial_pipeline with policy 'td3'",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
