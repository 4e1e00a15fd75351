"""Algorithms: a file each, or one for those that differ by little, with the maths visible in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ding_like.utils.registries import lazy_exports

if TYPE_CHECKING:
    from ding_like.policy.base import Policy, create_policy, get_policy_cls

# Imported on first use: processes that only step envs need no torch.
_OWN = {
    "Policy": "ding_like.policy.base",
    "create_policy": "ding_like.policy.base",
    "get_policy_cls": "ding_like.policy.base",
}
# Names are DI-engine's; where ours differs, both are there.
_HOMES = {
    "A2CPolicy": "ding_like.policy.a2c",
    "BCPolicy": "ding_like.policy.bc",
    "BCQPolicy": "ding_like.policy.bcq",
    "C51Policy": "ding_like.policy.dqn",
    "COMAPolicy": "ding_like.policy.coma",
    "CQLPolicy": "ding_like.policy.cql",
    "CrossQPolicy": "ding_like.policy.crossq",
    "D4PGPolicy": "ding_like.policy.d4pg",
    "DAggerPolicy": "ding_like.policy.dagger",
    "DDPGPolicy": "ding_like.policy.ddpg",
    "DQFDPolicy": "ding_like.policy.dqfd",
    "DQNPolicy": "ding_like.policy.dqn",
    "DRQNPolicy": "ding_like.policy.r2d2",
    "DiscreteBCQPolicy": "ding_like.policy.bcq",
    "DiscreteCQLPolicy": "ding_like.policy.cql",
    "DTPolicy": "ding_like.policy.dt",
    "DiscreteSACPolicy": "ding_like.policy.sac",
    "EDACPolicy": "ding_like.policy.edac",
    "FQFPolicy": "ding_like.policy.iqn",
    "HAPPOPolicy": "ding_like.policy.happo",
    "IDQNPolicy": "ding_like.policy.idqn",
    "IMPALAPolicy": "ding_like.policy.impala",
    "IQLPolicy": "ding_like.policy.iql",
    "IPPOPolicy": "ding_like.policy.ippo",
    "IPPORecurrentPolicy": "ding_like.policy.ippo_recurrent",
    "IQNPolicy": "ding_like.policy.iqn",
    "MAPPOPolicy": "ding_like.policy.mappo",
    "MAPPORecurrentPolicy": "ding_like.policy.mappo_recurrent",
    "MADDPGPolicy": "ding_like.policy.maddpg",
    "MASACDiscretePolicy": "ding_like.policy.masac_discrete",
    "MASACPolicy": "ding_like.policy.masac",
    "MATD3Policy": "ding_like.policy.matd3",
    "MDQNPolicy": "ding_like.policy.mdqn",
    "NGUPolicy": "ding_like.policy.ngu",
    "PDQNPolicy": "ding_like.policy.pdqn",
    "PGPolicy": "ding_like.policy.a2c",
    "PQNPolicy": "ding_like.policy.pqn",
    "PPGOffPolicy": "ding_like.policy.ppg",
    "PPGPolicy": "ding_like.policy.ppg",
    "PPOOffPolicy": "ding_like.policy.ppo",
    "PPOPGPolicy": "ding_like.policy.a2c:PGPolicy",
    "PPOPolicy": "ding_like.policy.ppo",
    "PPORecurrentPolicy": "ding_like.policy.ppo_recurrent",
    "PolicyFactory": "ding_like.policy.di_engine_view",
    "QMIXPolicy": "ding_like.policy.qmix",
    "QRDQNPolicy": "ding_like.policy.dqn",
    "QTRANPolicy": "ding_like.policy.qtran",
    "QTranPolicy": "ding_like.policy.qtran:QTRANPolicy",
    "R2D2Policy": "ding_like.policy.r2d2",
    "R2D3Policy": "ding_like.policy.r2d3",
    "RainbowDQNPolicy": "ding_like.policy.rainbow:RainbowPolicy",
    "RainbowPolicy": "ding_like.policy.rainbow",
    "ReBRACPolicy": "ding_like.policy.rebrac",
    "SACDiscretePolicy": "ding_like.policy.sac:DiscreteSACPolicy",
    "SACRecurrentPolicy": "ding_like.policy.sac_recurrent",
    "SACPolicy": "ding_like.policy.sac",
    "SQILDQNPolicy": "ding_like.policy.sqil",
    "SQILPolicy": "ding_like.policy.sqil",
    "SQILSACPolicy": "ding_like.policy.sqil",
    "SQLPolicy": "ding_like.policy.sql",
    "SQNPolicy": "ding_like.policy.sqn",
    "TD3BCPolicy": "ding_like.policy.td3_bc",
    "TD3Policy": "ding_like.policy.ddpg",
    "TQCPolicy": "ding_like.policy.tqc",
    "VDNPolicy": "ding_like.policy.vdn",
    "WQMIXPolicy": "ding_like.policy.wqmix",
    "get_random_policy": "ding_like.policy.di_engine_view",
    "single_env_forward_wrapper": "ding_like.policy.di_engine_view",
}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "ACERPolicy": "use IMPALAPolicy, actor-critic off-policy with V-trace, or PPOOffPolicy",
    "AveragedDQNPolicy": "use DQNPolicy; its double=True is against the same overestimation",
    "BDQPolicy": "use PPOPolicy, which takes MultiDiscrete actions",
    "PPOFPolicy": "use PPOPolicy",
    "PPOSTDIMPolicy": "use PPOPolicy",
}

__all__ = ["Policy", "create_policy", "get_policy_cls", *_HOMES]

__getattr__, __dir__ = lazy_exports(__name__, {**_OWN, **_HOMES}, instead=_INSTEAD)
