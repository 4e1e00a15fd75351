"""What a user calls: `serial_pipeline()` and its siblings, and the command line."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

# Imported on first use: `ding --help` must not wait for torch.
_HOMES = {
    "serial_pipeline": "ding_like.entry.serial_entry",
    "serial_pipeline_onpolicy": "ding_like.entry.serial_entry",
    "serial_pipeline_bc": "ding_like.entry.data_set_entry",
    "resume_pipeline": "ding_like.entry.train",
    "parallel_pipeline": "ding_like.entry.parallel_entry",
    "ray_pipeline": "ding_like.entry.ray_entry",
    "seed_pipeline": "ding_like.entry.seed_entry",
    "launch_coordinator": "ding_like.entry.parallel_entry",
    "launch_collector": "ding_like.entry.dist_entry",
    "launch_learner": "ding_like.entry.dist_entry",
    "random_collect": "ding_like.pipeline.collect",
    "collect_demo_data": "ding_like.entry.eval_entry",
    "eval": "ding_like.entry.eval_entry",
    # DI-engine's own entry of PPG: here every on-policy algorithm has the same.
    "serial_pipeline_onpolicy_ppg": "ding_like.entry.serial_entry:serial_pipeline_onpolicy",
}
_NO_OFFLINE = "there is no learning from recorded data yet; serial_pipeline and serial_pipeline_onpolicy learn online"
_NO_REWARD_MODEL = "there are no reward models yet; serial_pipeline and serial_pipeline_onpolicy learn from the env's"
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "collect_episodic_demo_data": "use collect_demo_data, or an EpisodeSerialCollector and save_data of a buffer",
    "serial_pipeline_dqfd": _NO_OFFLINE,
    "serial_pipeline_gail": _NO_OFFLINE,
    "serial_pipeline_offline": _NO_OFFLINE,
    "serial_pipeline_ngu": "use serial_pipeline with policy 'r2d2'",
    "serial_pipeline_plr": "use collect's level_seeds in a loop of your own",
    "serial_pipeline_preference_based_irl": _NO_REWARD_MODEL,
    "serial_pipeline_r2d3": "use serial_pipeline with policy 'r2d2'",
    "serial_pipeline_reward_model_offpolicy": _NO_REWARD_MODEL,
    "serial_pipeline_reward_model_onpolicy": _NO_REWARD_MODEL,
    "serial_pipeline_sqil": _NO_OFFLINE,
    "serial_pipeline_td3_vae": "use serial_pipeline with policy 'td3'",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
