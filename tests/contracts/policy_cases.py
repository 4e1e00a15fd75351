"""A small policy of every registered kind, with observations, rows and masks for it: what the contracts share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch, obs_to_columns
from ding_like.data.rollout import Rollout
from ding_like.data.spaces import HybridSpace
from ding_like.policy import Policy, create_policy, get_policy_cls
from ding_like.types import SeesRewards
from ding_like.utils.registries import POLICY_REGISTRY

LANES, STEPS, OBS, AGENTS, ACTIONS = 4, 12, 3, 2, 4

_DQN_MODEL = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8], dueling=False, head_layer_num=0)
_DRQN_MODEL = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8])
_SHORT = dict(burnin_step=2, learn_unroll_len=4, nstep=3)
# A learner alone reads the file.
_EXPERT: dict[str, Any] = dict(collect=dict(data_path="expert.safetensors"))
_RAINBOW: dict[str, Any] = dict(
    model=dict(
        obs_shape=OBS,
        action_shape=ACTIONS,
        encoder_hidden_size_list=[8],
        head_hidden_size=8,
        v_min=-3,
        v_max=3,
        n_atom=7,
    )
)
_DISTRIBUTION = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8], head_layer_num=0)
_C51_MODEL = dict(**_DISTRIBUTION, v_min=-5.0, v_max=5.0, n_atom=11)
_QRDQN_MODEL = dict(**_DISTRIBUTION, num_quantiles=8)
_IQN_MODEL = dict(
    obs_shape=OBS,
    action_shape=ACTIONS,
    encoder_hidden_size_list=[16, 16],
    num_quantiles=5,
    quantile_embedding_size=6,
    head_layer_num=0,
)
_VAC = dict(obs_shape=OBS, encoder_hidden_size_list=[8, 8], actor_head_layer_num=0, critic_head_layer_num=0)
_REMEMBERING = {**_VAC, "encoder_hidden_size_list": [8], "hidden_size": 8}
_CUT = dict(learn=dict(seq_len=5))
_SEVERAL_EPOCHS = ("ppo", "ppo_recurrent", "ippo", "mappo", "ippo_recurrent", "mappo_recurrent", "happo")
_QAC = dict(obs_shape=OBS, action_shape=2, actor_head_hidden_size=8, critic_head_hidden_size=8)
_RECURRENT_QAC = dict(**_QAC, encoder_hidden_size_list=[8], hidden_size=8)
# What `pipeline.envs.obs_shape` says of a team's observation space.
_TEAM_OBS = {"agents": [AGENTS, OBS], "alive": AGENTS, "ended": AGENTS, "rewards": AGENTS, "state": 5}
_JOINT_SHAPES: dict[str, Any] = dict(obs_shape=_TEAM_OBS, action_shape=[ACTIONS] * AGENTS)
_TEAM_VAC = dict(_VAC, obs_shape=_TEAM_OBS)
_TEAM_MEMORY = {**_TEAM_VAC, "encoder_hidden_size_list": [8], "hidden_size": 8}
_TEAM_ACTORS = dict(obs_shape=_TEAM_OBS, encoder_hidden_size_list=[8], critic_hidden_size_list=[8], head_layer_num=0)
_TEAM_BOX: dict[str, Any] = dict(
    action_space="continuous", action_low=[-2.0, 0.0] * AGENTS, action_high=[2.0, 1.0] * AGENTS
)
_AGENTS = dict(obs_shape=_TEAM_OBS, action_shape=[ACTIONS] * AGENTS, hidden_size_list=[8])
_TEAM = dict(**_AGENTS, mixer_embed_size=4)
_COPIED = dict(target_update_freq=2)
# Of actor-critics with central critics.
_TEAM_QAC = dict(
    obs_shape=_TEAM_OBS,
    action_shape=[ACTIONS] * AGENTS,
    actor_hidden_size_list=[8],
    critic_hidden_size_list=[8],
)
_TEAM_QAC_BOX: dict[str, Any] = dict(model={**_TEAM_QAC, "action_shape": 2 * AGENTS}, **_TEAM_BOX)
_PG = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8], head_layer_num=0)
# Short phases of PPG, so that a few batches have auxiliary ones among them.
_PHASES = dict(aux_freq=2, aux_train_epoch=2)
_DISCRETE_QAC = dict(
    obs_shape=OBS,
    action_shape=ACTIONS,
    encoder_hidden_size_list=[8],
    actor_head_hidden_size=8,
    critic_head_hidden_size=8,
)
_DISCRETE_CRITICS = {name: size for name, size in _DISCRETE_QAC.items() if not name.startswith("actor")}
_BOX = dict(action_space="continuous", action_low=[-2.0, 0.0], action_high=[2.0, 1.0])
_CHOICES: dict[str, Any] = dict(
    obs_shape=OBS,
    action_shape=dict(action_type_shape=3, action_args_shape=2),
    action_mask=[[1, 0], [0, 1], [0, 0]],
)
_HYBRID_ROWS = dict(action_space="hybrid", action_low=[-2.0, 0.0], action_high=[2.0, 1.0])
_PDQN: dict[str, Any] = dict(
    model=dict(**_CHOICES, encoder_hidden_size_list=[8, 8], head_layer_num=0, dueling=False), **_HYBRID_ROWS
)
_HYBRID_VAC = dict(model={**_VAC, **_CHOICES}, **_HYBRID_ROWS)
_BC = dict(obs_shape=OBS, action_shape=ACTIONS, encoder_hidden_size_list=[8, 8], head_layer_num=0)
_BCQ: dict[str, Any] = dict(
    obs_shape=OBS,
    action_shape=2,
    actor_head_hidden_size=[8],
    critic_head_hidden_size=[8, 8],
    vae_hidden_dims=[8],
    num_candidates=7,
)
_DT = dict(obs_shape=OBS, action_shape=ACTIONS, n_blocks=1, h_dim=8, n_heads=2)
_CONTEXT = dict(context_len=4, rtg_target=3.0, rtg_scale=2.0, warmup_steps=3)
_IMAGES = dict(obs_shape=[1, 8, 8], num_classes=3, hidden_size_list=[4, 8], kernel_size=[3], stride=[1])


@dataclass(frozen=True)
class Case:
    """Policy with its settings; `space` is its env's action space, None for one that does not act."""

    policy: str
    space: spaces.Space[Any] | None
    settings: dict[str, Any] = field(default_factory=dict)
    import_names: tuple[str, ...] = ()


# Any: what a policy's section holds.
def _vac(policy: str, space: spaces.Space[Any], shape: Any, *, model: Any = _VAC, **settings: Any) -> Case:
    """Return the case of an actor-critic of actions of a shape."""
    return Case(policy, space, dict(model={**model, "action_shape": shape}, **settings))


_DISCRETE, _TWO_OF_THREE = spaces.Discrete(ACTIONS), spaces.MultiDiscrete([3, 2])
_BITS, _VECTOR = spaces.MultiBinary(3), spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
_JOINT = spaces.MultiDiscrete([ACTIONS] * AGENTS)
_JOINT_BOX = spaces.Box(np.float32(_TEAM_BOX["action_low"]), np.float32(_TEAM_BOX["action_high"]))
_HYBRID = HybridSpace(3, [-2.0, 0.0], [2.0, 1.0], parameter_mask=_CHOICES["action_mask"])

CASES: dict[str, Case] = {
    "dqn": Case("dqn", _DISCRETE, dict(model=_DQN_MODEL)),
    "dqn dueling": Case("dqn", _DISCRETE, dict(model={**_DQN_MODEL, "dueling": True})),
    "dqn noisy": Case("dqn", _DISCRETE, dict(model={**_DQN_MODEL, "noise": True})),
    "dqn autograd": Case("dqn", _DISCRETE, dict(model=_DQN_MODEL, learn=dict(backend="autograd"))),
    "dqn momentum": Case("dqn", _DISCRETE, dict(model=_DQN_MODEL, double=False, learn=dict(target_theta=0.1))),
    "r2d2": Case("r2d2", _DISCRETE, dict(model=_DRQN_MODEL, **_SHORT)),
    "r2d2 gru": Case("r2d2", _DISCRETE, dict(model=dict(_DRQN_MODEL, lstm_type="gru", res_link=True), **_SHORT)),
    "drqn": Case("drqn", _DISCRETE, dict(model=dict(_DRQN_MODEL, dueling=False), learn_unroll_len=4)),
    "ngu": Case("ngu", _DISCRETE, dict(model=dict(_DRQN_MODEL, num_arms=3), **{**_SHORT, "nstep": 1})),
    "rainbow": Case("rainbow", _DISCRETE, _RAINBOW),
    "rainbow autograd": Case("rainbow", _DISCRETE, deep_merge(_RAINBOW, dict(learn=dict(backend="autograd")))),
    "rainbow noise alone": Case(
        "rainbow", _DISCRETE, deep_merge(_RAINBOW, dict(double=False, model=dict(dueling=False, distributional=False)))
    ),
    "rainbow without noise": Case("rainbow", _DISCRETE, deep_merge(_RAINBOW, dict(model=dict(noise=False)))),
    "c51": Case("c51", _DISCRETE, dict(model=_C51_MODEL)),
    "c51 dueling": Case("c51", _DISCRETE, dict(model={**_C51_MODEL, "dueling": True}, double=False)),
    "c51 autograd": Case("c51", _DISCRETE, dict(model=_C51_MODEL, learn=dict(backend="autograd"))),
    "qrdqn": Case("qrdqn", _DISCRETE, dict(model=_QRDQN_MODEL)),
    "qrdqn dueling": Case(
        "qrdqn", _DISCRETE, dict(model={**_QRDQN_MODEL, "dueling": True, "num_quantiles": 5}, double=False)
    ),
    "qrdqn autograd": Case("qrdqn", _DISCRETE, dict(model=_QRDQN_MODEL, learn=dict(backend="autograd"))),
    "iqn": Case("iqn", _DISCRETE, dict(model=_IQN_MODEL)),
    "iqn autograd": Case("iqn", _DISCRETE, dict(model=_IQN_MODEL, learn=dict(backend="autograd"))),
    "fqf": Case("fqf", _DISCRETE, dict(model=_IQN_MODEL, learn=dict(learning_rate_quantile=0.01))),
    "fqf autograd": Case(
        "fqf", _DISCRETE, dict(model=_IQN_MODEL, learn=dict(learning_rate_quantile=0.01, backend="autograd"))
    ),
    "idqn": Case(
        "idqn", _JOINT, dict(model={**_DQN_MODEL, **_JOINT_SHAPES, "dueling": True}, learn=dict(target_update_freq=2))
    ),
    "idqn noisy": Case("idqn", _JOINT, dict(model={**_DQN_MODEL, **_JOINT_SHAPES, "noise": True})),
    "ippo": _vac("ippo", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_VAC),
    "ippo box": _vac("ippo", _JOINT_BOX, 2 * AGENTS, model=_TEAM_VAC, **_TEAM_BOX),
    "mappo": _vac("mappo", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_VAC),
    "mappo autograd": _vac("mappo", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_VAC, learn=dict(backend="autograd")),
    "mappo box": _vac("mappo", _JOINT_BOX, 2 * AGENTS, model=_TEAM_VAC, **_TEAM_BOX),
    "ippo_recurrent": _vac("ippo_recurrent", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_MEMORY, **_CUT),
    "ippo_recurrent box": _vac("ippo_recurrent", _JOINT_BOX, 2 * AGENTS, model=_TEAM_MEMORY, **_CUT, **_TEAM_BOX),
    "mappo_recurrent": _vac("mappo_recurrent", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_MEMORY, **_CUT),
    "mappo_recurrent box": _vac("mappo_recurrent", _JOINT_BOX, 2 * AGENTS, model=_TEAM_MEMORY, **_CUT, **_TEAM_BOX),
    "happo": _vac("happo", _JOINT, [ACTIONS] * AGENTS, model=_TEAM_ACTORS),
    "happo box": _vac("happo", _JOINT_BOX, 2 * AGENTS, model=_TEAM_ACTORS, **_TEAM_BOX),
    "vdn": Case("vdn", _JOINT, dict(model=_AGENTS, learn=_COPIED)),
    "qmix": Case("qmix", _JOINT, dict(model=_TEAM, learn=_COPIED)),
    "wqmix": Case("wqmix", _JOINT, dict(model=dict(**_TEAM, central_hidden_size_list=[8]), learn=_COPIED)),
    "wqmix centrally": Case(
        "wqmix",
        _JOINT,
        dict(model=dict(**_TEAM, central_hidden_size_list=[8]), learn=dict(**_COPIED, weighting="centrally")),
    ),
    "qtran": Case("qtran", _JOINT, dict(model=dict(**_AGENTS, joint_hidden_size_list=[8]), learn=_COPIED)),
    "coma": Case("coma", _JOINT, dict(model=dict(**_AGENTS, critic_hidden_size_list=[8]), learn=_COPIED)),
    "ppo": _vac("ppo", _DISCRETE, ACTIONS),
    "ppo autograd": _vac("ppo", _DISCRETE, ACTIONS, learn=dict(backend="autograd")),
    "ppo value_norm": _vac("ppo", _DISCRETE, ACTIONS, learn=dict(value_norm=True)),
    "ppo several": _vac("ppo", _TWO_OF_THREE, [3, 2]),
    "ppo bits": _vac("ppo", _BITS, [2, 2, 2]),
    "ppo team": _vac("ppo", _JOINT, [ACTIONS] * AGENTS),
    "ppo box": _vac("ppo", _VECTOR, 2, **_BOX),
    "ppo hybrid": Case("ppo", _HYBRID, _HYBRID_VAC),
    "ppo hybrid autograd": Case("ppo", _HYBRID, deep_merge(_HYBRID_VAC, dict(learn=dict(backend="autograd")))),
    "ppo_recurrent": _vac("ppo_recurrent", _DISCRETE, ACTIONS, model=_REMEMBERING, **_CUT),
    "ppo_recurrent gru several": _vac(
        "ppo_recurrent", _TWO_OF_THREE, [3, 2], model={**_REMEMBERING, "cell_type": "gru"}, **_CUT
    ),
    "ppo_recurrent bits": _vac("ppo_recurrent", _BITS, [2, 2, 2], model=_REMEMBERING, **_CUT),
    "ppo_recurrent box": _vac("ppo_recurrent", _VECTOR, 2, model=_REMEMBERING, **_CUT, **_BOX),
    "impala": _vac("impala", _DISCRETE, ACTIONS, unroll_len=5),
    "impala several": _vac("impala", _TWO_OF_THREE, [3, 2], unroll_len=5),
    "impala bits": _vac("impala", _BITS, [2, 2, 2], unroll_len=5),
    "impala box": _vac("impala", _VECTOR, 2, unroll_len=5, **_BOX),
    "ppo_offpolicy": _vac("ppo_offpolicy", _DISCRETE, ACTIONS),
    "a2c": _vac("a2c", _DISCRETE, ACTIONS),
    "a2c several": _vac("a2c", _TWO_OF_THREE, [3, 2]),
    "a2c box": _vac("a2c", _VECTOR, 2, **_BOX),
    "pg": Case("pg", _DISCRETE, dict(model=_PG)),
    "pg box": _vac("pg", _VECTOR, 2, model=_PG, **_BOX),
    "ppg": _vac("ppg", _DISCRETE, ACTIONS, learn=_PHASES),
    "ppg autograd": _vac("ppg", _DISCRETE, ACTIONS, learn=dict(**_PHASES, backend="autograd")),
    "ppg several": _vac("ppg", _TWO_OF_THREE, [3, 2], learn=_PHASES),
    "ppg box": _vac("ppg", _VECTOR, 2, learn=_PHASES, **_BOX),
    "ppg_offpolicy": _vac("ppg_offpolicy", _DISCRETE, ACTIONS, learn=_PHASES),
    "ddpg": Case("ddpg", _VECTOR, dict(model=_QAC, **_BOX)),
    "d4pg": Case("d4pg", _VECTOR, dict(model=dict(**_QAC, v_min=-5.0, v_max=5.0, n_atom=11), **_BOX)),
    "td3": Case("td3", _VECTOR, dict(model=_QAC, **_BOX)),
    "td3_bc": Case("td3_bc", _VECTOR, dict(model=_QAC, **_BOX)),
    "rebrac": Case("rebrac", _VECTOR, dict(model=_QAC, **_BOX)),
    "rebrac autograd": Case("rebrac", _VECTOR, dict(model=_QAC, learn=dict(backend="autograd"), **_BOX)),
    "iql": Case("iql", _VECTOR, dict(model=_QAC, **_BOX)),
    "iql autograd": Case("iql", _VECTOR, dict(model=_QAC, learn=dict(backend="autograd"), **_BOX)),
    "edac": Case("edac", _VECTOR, dict(model=dict(**_QAC, num_critics=3), **_BOX)),
    "sac": Case("sac", _VECTOR, dict(model=_QAC, **_BOX)),
    "sac_recurrent": Case("sac_recurrent", _VECTOR, dict(model=_RECURRENT_QAC, **_SHORT, **_BOX)),
    "sac_recurrent gru": Case(
        "sac_recurrent",
        _VECTOR,
        dict(model={**_RECURRENT_QAC, "cell_type": "gru"}, burnin_step=0, learn_unroll_len=3, **_BOX),
    ),
    "sql": Case("sql", _DISCRETE, dict(model=_DQN_MODEL)),
    "pqn": Case("pqn", _DISCRETE, dict(model=_DQN_MODEL)),
    "pqn autograd": Case("pqn", _DISCRETE, dict(model=_DQN_MODEL, learn=dict(backend="autograd"))),
    "mdqn": Case("mdqn", _DISCRETE, dict(model=_DQN_MODEL)),
    "crossq": Case("crossq", _VECTOR, dict(model=_QAC, **_BOX)),
    "tqc": Case("tqc", _VECTOR, dict(model=dict(**_QAC, num_quantiles=5), **_BOX)),
    "pdqn": Case("pdqn", _HYBRID, _PDQN),
    "pdqn dueling": Case("pdqn", _HYBRID, deep_merge(_PDQN, dict(model=dict(dueling=True, head_layer_num=1)))),
    "mpdqn": Case("pdqn", _HYBRID, deep_merge(_PDQN, dict(model=dict(multi_pass=True)))),
    "discrete_sac": Case("discrete_sac", _DISCRETE, dict(model=_DISCRETE_QAC)),
    "maddpg": Case("maddpg", _JOINT, dict(model=_TEAM_QAC)),
    "maddpg box": Case("maddpg", _JOINT_BOX, _TEAM_QAC_BOX),
    "maddpg shared": Case("maddpg", _JOINT, dict(model=dict(**_TEAM_QAC, sharing="shared", critic_sees="agents"))),
    "matd3": Case("matd3", _JOINT_BOX, _TEAM_QAC_BOX),
    "masac": Case("masac", _JOINT_BOX, _TEAM_QAC_BOX),
    "masac shared": Case(
        "masac",
        _JOINT_BOX,
        deep_merge(_TEAM_QAC_BOX, dict(model=dict(sharing="shared"), learn=dict(alpha_by_agent=False))),
    ),
    "masac_discrete": Case("masac_discrete", _JOINT, dict(model=_TEAM_QAC)),
    "sqn": Case("sqn", _DISCRETE, dict(model=_DISCRETE_CRITICS)),
    "sqil": Case("sqil", _DISCRETE, dict(model=_DQN_MODEL, **_EXPERT)),
    "sqil_dqn": Case("sqil_dqn", _DISCRETE, dict(model=_DQN_MODEL, **_EXPERT)),
    "sqil_sac": Case("sqil_sac", _VECTOR, dict(model=_QAC, **_BOX, **_EXPERT)),
    "dqfd": Case("dqfd", _DISCRETE, dict(model=_DQN_MODEL, nstep=3, **_EXPERT)),
    "r2d3": Case("r2d3", _DISCRETE, dict(model=_DRQN_MODEL, **_SHORT, **_EXPERT)),
    "bcq": Case("bcq", _VECTOR, dict(model=_BCQ, **_BOX)),
    "cql": Case("cql", _VECTOR, dict(model=_QAC, **_BOX)),
    "cql autograd": Case("cql", _VECTOR, dict(model=_QAC, **_BOX, learn=dict(backend="autograd", min_q_version=2))),
    "cql lagrange": Case("cql", _VECTOR, dict(model=_QAC, **_BOX, learn=dict(with_lagrange=True))),
    "discrete_bcq": Case("discrete_bcq", _DISCRETE, dict(model=_DQN_MODEL)),
    "discrete_cql": Case("discrete_cql", _DISCRETE, dict(model=_QRDQN_MODEL)),
    "bc": Case("bc", _DISCRETE, dict(model=_BC)),
    "bc several": Case("bc", _TWO_OF_THREE, dict(model={**_BC, "action_shape": [3, 2]})),
    "bc bits": Case("bc", _BITS, dict(model={**_BC, "action_shape": [2, 2, 2]}, learn=dict(ce_label_smooth=True))),
    "bc box": Case("bc", _VECTOR, dict(model={**_BC, "action_shape": 2}, **_BOX)),
    "bc gaussian": Case("bc", _VECTOR, dict(model={**_BC, "action_shape": 2}, loss_type="nll_loss", **_BOX)),
    "dt": Case("dt", _DISCRETE, dict(model=_DT, **_CONTEXT)),
    "dt box": Case("dt", _VECTOR, dict(model={**_DT, "action_shape": 2}, **_CONTEXT, **_BOX)),
    "dagger": Case("dagger", _DISCRETE, dict(model=_BC, collect=dict(model_path="expert"))),
    "image_classification": Case(
        "image_classification", None, dict(model=_IMAGES), ("dizoo.image_classification.policy",)
    ),
}
ACTING = {name: case for name, case in CASES.items() if case.space is not None}
MASKED = {name: case for name, case in ACTING.items() if not isinstance(case.space, spaces.Box)}
BY_REWARDS = {name for name, case in ACTING.items() if case.policy == "dt"}  # act by the reward of each step
# One variant of each family, and each way to compute gradients: what the suite runs. The others are `slow`.
FAMILIES = (
    *("dqn", "fqf autograd", "rainbow", "r2d2", "qmix", "ppo", "ppo hybrid autograd", "ppo_recurrent gru several"),
    *("mappo", "mappo_recurrent", "happo box", "idqn"),
    *("maddpg", "masac"),
    *("impala box", "ppg", "td3", "sac", "sac_recurrent", "pdqn", "image_classification", "bc gaussian", "dt"),
)


def by_family(names: Iterable[str], also: Collection[str] = ()) -> list[Any]:
    """Return the names as parameters; those that are neither in FAMILIES nor in `also` are marked `slow`."""
    quick = {*FAMILIES, *also}
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def shipped_policies() -> set[str]:
    """Return the names of the policies that the package registers; tests of this process may have registered others."""
    names = POLICY_REGISTRY.names()
    return {name for name in names if POLICY_REGISTRY.get(name).__module__.partition(".")[0] in ("ding_like", "dizoo")}


def make(case: Case, *, seed: int = 0, **changes: Any) -> Policy:
    """Return the policy of a case, its weights drawn with `seed`."""
    torch.manual_seed(seed)
    name: dict[str, Any] = dict(type=case.policy, import_names=list(case.import_names))
    defaults = to_plain(get_policy_cls(name).default_config())
    epochs = {"epoch_per_collect": 2} if case.policy in _SEVERAL_EPOCHS else {}
    batch = dict(learn=dict(batch_size=16, **epochs))
    settings = deep_merge(deep_merge(deep_merge(deep_merge(defaults, batch), case.settings), changes), name)
    return with_expert(create_policy(settings))


class Expert:
    """Expert of discrete actions, which chooses by the last digits of what it observes."""

    def act(self, obs: Any, **given: Any) -> dict[str, np.ndarray]:
        board = obs["board"] if isinstance(obs, dict) else obs
        return {"action": (np.abs(board).sum(axis=1) * 1000).astype(np.int64) % ACTIONS}

    def reset(self, lanes: Any = None) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


def with_expert(policy: Policy) -> Policy:
    """Give a policy an expert if it needs one, as a pipeline does; return it."""
    if policy.needs_expert:
        policy.use_expert(Expert())
    return policy


def sizes_of(case: Case) -> list[int]:
    """Return the number of choices of each discrete action."""
    space = case.space
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    return [2] * int(space.n) if isinstance(space, spaces.MultiBinary) else [int(n) for n in space.nvec]


def draw_mask(case: Case, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return masks [R, choices of all actions in a row] that allow one choice of each action at least."""
    parts = []
    for size in sizes_of(case):
        part = rng.random((rows, size)) < 0.4
        part[np.arange(rows), rng.integers(0, size, rows)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1).astype(np.int8)


def draw_obs(case: Case, rows: int, rng: np.random.Generator, *, masked: bool = False) -> Any:
    """Return observations [R, ...], with `masked` as a dict with an action mask."""
    if case.settings.get("model", {}).get("obs_shape") == _TEAM_OBS:
        obs: dict[str, Any] = {"agents": rng.normal(size=(rows, AGENTS, OBS)), "state": rng.normal(size=(rows, 5))}
        obs["rewards"] = rng.normal(size=(rows, AGENTS))
        obs = {name: value.astype(np.float32) for name, value in obs.items()}
        obs["alive"] = (rng.random((rows, AGENTS)) < 0.8).astype(np.int8)
        obs["ended"] = np.zeros((rows, AGENTS), np.int8)
    else:
        obs = {"board": rng.normal(size=(rows, OBS)).astype(np.float32)}
    if masked:
        return {**obs, "action_mask": draw_mask(case, rows, rng)}
    return obs if len(obs) > 1 else obs["board"]


def act(
    actor: Any,
    obs: Any,
    rows: int,
    *,
    rng: np.random.Generator | int = 0,
    is_first: np.ndarray | None = None,
    **setting: Any,
) -> dict[str, np.ndarray]:
    """Return an actor's columns for observations of so many rows, by default the first ones of their episodes."""
    first = np.ones(rows, bool) if is_first is None else is_first
    columns: dict[str, np.ndarray] = actor.act(
        obs, lanes=np.arange(rows), is_first=first, rng=np.random.default_rng(rng), **setting
    )
    return columns


def forbidden(case: Case, action: np.ndarray, mask: np.ndarray) -> int:
    """Count the choices that the mask [R, all choices in a row] forbids."""
    starts = np.cumsum([0, *sizes_of(case)[:-1]])
    columns = action.reshape(len(action), -1) + starts
    return int((np.take_along_axis(mask.reshape(len(mask), -1), columns, axis=1) == 0).sum())


def play(case: Case, policy: Policy, *, seed: int = 0, masked: bool = False, actor: Any = None) -> Rollout:
    """Return a rollout of the policy's own actions, or of an actor's, in a made-up env."""
    rng, rollout = np.random.default_rng(seed), Rollout(LANES)
    explores = (
        "pdqn",
        "dqn",
        "mdqn",
        "sql",
        "pqn",
        "c51",
        "qrdqn",
        "iqn",
        "fqf",
        "rainbow",
        "vdn",
        "qmix",
        "idqn",
        "wqmix",
        "qtran",
        "r2d2",
        "drqn",
        "ngu",
        "sqil",
        "sqil_dqn",
        "dqfd",
        "r2d3",
        "discrete_bcq",
        "discrete_cql",
    )
    setting = {"eps": 0.5} if case.policy in explores else {}
    first = np.ones(LANES, bool)
    actor = actor or policy.collect_mode.actor
    for step in range(STEPS):
        obs = draw_obs(case, LANES, rng, masked=masked)
        ended = rng.random((2, LANES)) < 0.1
        rows = {
            **obs_to_columns("obs", obs),
            **act(actor, obs, LANES, rng=1000 * seed + step, is_first=first, **setting),
            **obs_to_columns("next_obs", draw_obs(case, LANES, rng, masked=masked)),
            "lane": np.arange(LANES),
            "reward": rng.normal(size=LANES).astype(np.float32),
            "terminated": ended[0],
            "truncated": ended[1] & ~ended[0],
        }
        rollout.append(rows)
        if isinstance(actor, SeesRewards):
            actor.observe(rows["lane"], rows["reward"])
        first = ended.any(axis=0)
    return rollout


def rows_of(case: Case, policy: Policy, *, seed: int = 0, masked: bool = False) -> TransitionBatch:
    """Return training rows: of the policy's own actions, or labelled images."""
    if case.space is None:
        rng = np.random.default_rng(seed)
        images = rng.random((16, 1, 8, 8)).astype(np.float32)
        return TransitionBatch({"obs": images, "label": rng.integers(0, 3, 16)})
    batch, _ = policy.collect_mode.segment(play(case, policy, seed=seed, masked=masked))
    if case.policy == "bc" and not masked:  # what it does itself teaches it nothing
        case.space.seed(seed)
        batch = batch.with_columns(action=np.stack([np.asarray(case.space.sample()) for _ in range(len(batch))]))
    return batch.own_memory()


def train(policy: Policy, batches: list[TransitionBatch]) -> list[Any]:
    """Update with every minibatch of these batches and return what was logged of each."""
    infos = []
    for number, batch in enumerate(batches):
        for minibatch in policy.learn_mode.minibatches(batch, np.random.default_rng(number)):
            infos.append(policy.learn_mode.grad(minibatch)[0])
            policy.learn_mode.apply()
    return infos


def tensors_of(state: Any, prefix: str = "") -> dict[str, Any]:
    """Return all tensors and numbers of a nested state by their paths, copied."""
    if isinstance(state, dict):
        return {k: v for key, value in state.items() for k, v in tensors_of(value, f"{prefix}/{key}").items()}
    if isinstance(state, (list, tuple)):
        return {k: v for i, value in enumerate(state) for k, v in tensors_of(value, f"{prefix}/{i}").items()}
    return {prefix: state.detach().clone() if isinstance(state, torch.Tensor) else state}


def assert_equal_states(one: Any, other: Any) -> None:
    """Compare two nested states bit by bit."""
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        same = torch.equal(value, second[name]) if isinstance(value, torch.Tensor) else value == second[name]
        assert same, f"{name} differs"


_PER: dict[str, Any] = dict(priority=True, priority_IS_weight=True)
_LINES: dict[str, Any] = dict(env_steps=300, lr_end=1e-5)


def _with(name: str, **settings: Any) -> Case:
    case = CASES[name]
    return Case(case.policy, case.space, deep_merge(case.settings, settings), case.import_names)


GRAD_CASES: dict[str, Case] = {
    **CASES,
    "dqn prioritised": _with("dqn", **_PER, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "dqn nstep": _with("dqn", nstep=3, learn=dict(optimizer=dict(type="rmsprop", momentum=0.5))),
    "rainbow prioritised": _with("rainbow", **_PER, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "rainbow prioritised autograd": _with("rainbow autograd", **_PER, learn=dict(target_theta=0.1)),
    "c51 prioritised": _with("c51 dueling", **_PER, nstep=3, learn=dict(target_update_freq=7, grad_clip_norm=0.1)),
    "qrdqn prioritised": _with("qrdqn dueling", **_PER, nstep=3, learn=dict(target_theta=0.1)),
    "iqn prioritised": _with("iqn", **_PER, learn=dict(num_quantiles=3, num_target_quantiles=7, grad_clip_norm=0.1)),
    "iqn nstep": _with("iqn", nstep=3, double=False, learn=dict(target_theta=0.1)),
    "fqf prioritised": _with(
        "fqf", **_PER, learn=dict(learning_rate_quantile=1e-3, ent_coef=0.01, target_update_freq=7)
    ),
    "fqf nstep": _with("fqf", nstep=3, double=False, learn=dict(target_theta=0.1, learning_rate_fraction=1e-3)),
    "vdn prioritised": _with("vdn", **_PER, nstep=3),
    "qmix prioritised": _with("qmix", **_PER),
    "idqn clipped": _with("idqn", double=False, learn=dict(loss="huber", grad_clip_norm=0.1, ignore_done=True)),
    "mappo recompute": _with("mappo", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "ippo schedules": _with("ippo", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003)),
    "mappo_recurrent recompute": _with("mappo_recurrent", recompute_adv=True, learn=dict(adv_norm="batch")),
    "happo schedules": _with("happo", learn=dict(schedule={**_LINES, "clip_end": 0.05}, adv_norm=False)),
    "wqmix prioritised": _with("wqmix", **_PER, nstep=3, double=False, learn=dict(loss="huber")),
    "qtran prioritised": _with("qtran", **_PER, nstep=3, learn=dict(target_theta=0.1)),
    "coma schedules": _with("coma", learn=dict(schedule=_LINES, batch_size=16)),
    "r2d2 clipped": _with("r2d2", double=False, learn=dict(loss="huber", grad_clip_norm=0.1, ignore_done=True)),
    "ngu clipped": _with("ngu", double=False, learn=dict(loss="huber", grad_clip_norm=0.1, ignore_done=True)),
    "drqn prioritised": _with("drqn", **_PER, learn=dict(target_update_freq=7)),
    "ppo schedules": _with("ppo", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003)),
    "ppo autograd target_kl": _with("ppo autograd", learn=dict(target_kl=0.003)),
    "ppo recompute": _with("ppo value_norm", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "ppo_recurrent schedules": _with(
        "ppo_recurrent", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, value_norm=True)
    ),
    "ppo_recurrent recompute": _with("ppo_recurrent", recompute_adv=True, learn=dict(adv_norm="batch", value_clip=0.2)),
    "impala prioritised": _with("impala", **_PER, learn=dict(schedule=_LINES, rho_clip_ratio=2.0, clip_value=0.1)),
    "ppo_offpolicy value_norm": _with("ppo_offpolicy", learn=dict(value_norm=True, schedule=_LINES)),
    "a2c schedules": _with("a2c", learn=dict(schedule=_LINES, batch_size=16, adv_norm=True)),
    "pg schedules": _with("pg", learn=dict(schedule=_LINES, adv_norm=True)),
    "ppg schedules": _with(
        "ppg", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, epoch_per_collect=2)
    ),
    "ppg value_norm": _with("ppg autograd", learn=dict(value_norm=True, adv_norm="batch")),
    "ppg_offpolicy value_norm": _with("ppg_offpolicy", learn=dict(value_norm=True, schedule=_LINES)),
    "td3 prioritised": _with("td3", **_PER, learn=dict(actor_update_freq=3, target_theta=0.1)),
    "d4pg prioritised": _with("d4pg", **_PER, nstep=3, model=dict(twin_critic=True), learn=dict(noise=True)),
    "ddpg prioritised": _with("ddpg", **_PER, learn=dict(grad_clip_norm=0.1)),
    "pdqn prioritised": _with("pdqn", **_PER, nstep=3, learn=dict(update_circle=4, target_theta=0.1)),
    "mpdqn clipped": _with("mpdqn", learn=dict(grad_clip_norm=0.1, ignore_done=True)),
    "ppo hybrid schedules": _with(
        "ppo hybrid", learn=dict(schedule={**_LINES, "clip_end": 0.05}, target_kl=0.003, entropy_weight=0.1)
    ),
    "sac prioritised": _with("sac", **_PER),
    "rebrac prioritised": _with("rebrac", **_PER, nstep=3, learn=dict(actor_update_freq=1)),
    "iql prioritised": _with("iql", **_PER, nstep=3, learn=dict(max_weight=2.0, grad_clip_norm=0.1)),
    "edac prioritised": _with("edac", **_PER, nstep=3, learn=dict(with_q_entropy=False)),
    "crossq prioritised": _with("crossq", **_PER, nstep=3, learn=dict(actor_update_freq=1)),
    "sac_recurrent prioritised": _with("sac_recurrent", **_PER, learn=dict(grad_clip_norm=0.1, ignore_done=True)),
    "tqc prioritised": _with("tqc", **_PER, nstep=3, learn=dict(num_dropped=0)),
    "bcq prioritised": _with("bcq", **_PER, nstep=3, learn=dict(grad_clip_norm=0.1)),
    "cql prioritised": _with("cql lagrange", **_PER, nstep=3, learn=dict(grad_clip_norm=0.1)),
    "discrete_bcq prioritised": _with("discrete_bcq", **_PER, nstep=3, double=False),
    "discrete_cql prioritised": _with("discrete_cql", **_PER, nstep=3, learn=dict(target_theta=0.1)),
    "sac fixed": _with("sac", learn=dict(auto_alpha=False)),
    "discrete_sac prioritised": _with("discrete_sac", **_PER, nstep=3, learn=dict(grad_clip_norm=0.1)),
    "discrete_sac fixed": _with("discrete_sac", learn=dict(auto_alpha=False)),
    "dqfd prioritised": _with("dqfd", **_PER, learn=dict(lambda1=0.5, grad_clip_norm=0.1)),
    "maddpg prioritised": _with("maddpg", **_PER, learn=dict(grad_clip_norm=0.1)),
    "matd3 prioritised": _with("matd3", **_PER, learn=dict(actor_update_freq=3, target_theta=0.1)),
    "masac prioritised": _with("masac", **_PER, learn=dict(grad_clip_norm=0.1)),
    "masac fixed": _with("masac", learn=dict(auto_alpha=False)),
    "masac_discrete prioritised": _with("masac_discrete", **_PER, learn=dict(log_space=False)),
    "sqn prioritised": _with("sqn", **_PER, nstep=3, learn=dict(grad_clip_norm=0.1)),
    "sqn fixed": _with("sqn", learn=dict(auto_alpha=False)),
}
# The families, and each way in which an update goes on from more than its gradient: weights of rows, a target that
# moves at times, a schedule, an early stop, returns that are counted anew.
GRAD_PARAMS = by_family(
    GRAD_CASES,
    also=(
        *("dqn prioritised", "rainbow prioritised autograd", "ppo schedules", "ppo autograd target_kl"),
        *("ppo recompute", "ppo_recurrent recompute", "ppg value_norm", "td3 prioritised"),
    ),
)


def batches_of(case: Case, policy: Policy) -> Iterator[TransitionBatch]:
    """Yield batches without end, with importance weights where the case has priorities."""
    for seed in count():
        batch = rows_of(case, policy, seed=seed)
        if case.settings.get("priority_IS_weight"):
            weight = np.random.default_rng(seed).random(len(batch)).astype(np.float32)
            batch = batch.with_columns(weight=weight)
        yield batch


def rng_of(number: int) -> np.random.Generator:
    """Return what shuffles the batch with this number."""
    return np.random.default_rng(1000 + number)
