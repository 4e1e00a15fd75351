"""Write docs/di_engine_defaults.md: `python -m tests.config.di_engine_page > docs/di_engine_defaults.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config.di_engine import CLOSEST_POLICIES, POLICY_DEFAULTS, Default
from ding_like.config.schema import class_defaults
from ding_like.config.tree import get_path, literal
from ding_like.utils import registries

# (policy, key) of DI-engine's that has no counterpart, or none that is known -> the reason that docs give.
_NOT_TAKEN: Mapping[tuple[str, str], str] = {
    ("all with an actor and critics", "learn.init_w = 0.003"): "last layers begin with torch's own weights here",
    ("qmix, wqmix, qtran, idqn (10), coma (20)", "collect.unroll_len"): (
        "rows are single transitions here, and the networks have no memory"
    ),
    ("pdqn", "learn.learning_rate = 0.001"): "each network has a rate of its own here",
    ("fqf", "learn.learning_rate = 0.001"): "its two networks have a rate of their own in both",
    ("qmix, wqmix, qtran, idqn", "cuda = True"): "the device is the user's to choose",
    ("wqmix, qtran, idqn", "replay_buffer.max_reuse, max_staleness = 1e9"): "there is no limit here",
    ("ppo_offpolicy", "nstep = 3"): "has an effect there with nstep_return=True alone; advantages are generalised here",
    ("idqn", "nstep = 3, collect.n_episode = 32"): (
        "each agent's own rewards are those of one step, and steps are collected, not episodes"
    ),
    ("ngu", "nstep = 5, collect.n_sample = 32"): "rewards are given step by step; an iteration collects 8 steps here",
    ("ppo, ppg, impala, ppo_offpolicy", "eps of Adam"): "not documented; ours is learn.adam_eps = 1e-5",
    ("ppg_offpolicy", "replay_buffer.multi_buffer"): "one buffer holds the rows, used as often as the policy says",
    ("dqn and its kin, discrete_cql", "learn.target_theta = 0.005"): (
        "has no effect there beside target_update_freq: targets of a DQN, C51, QRDQN and discrete CQL that were run "
        "did not move in three updates"
    ),
    ("sqn", "other.eps"): "actions are drawn from the policy here",
    ("dqfd", "learn.lambda3, margin_function, per_train_iter_k, collect.pho"): (
        "optimizer.weight_decay, expert_margin, pretrain_updates and expert_share have our values"
    ),
    ("bc", "learn.optimizer = 'SGD', learning_rate = 1e-5, momentum = 0.9, weight_decay = 1e-4"): (
        "there is no SGD here, and the rates of Adam are others"
    ),
    ("bc", "learn.lr_decay = False, warmup_lr, decay_epoch"): "the learning rate stays as it is here",
    ("happo", "learn.adv_norm, recompute_adv = True"): (
        "agents take turns on one rollout, whose advantages are those of before the first turn"
    ),
    ("coma", "learn.update_per_collect = 20, batch_size = 32, policy_weight = 0.001, target_update_theta = 0.001"): (
        "there rows come from a replay buffer; here a rollout is learned from once, and the target critic is copied"
    ),
    ("maddpg, matd3, masac, masac_discrete, mappo, idqn", "all"): (
        "those of ddpg, td3, sac, discrete_sac and ppo there, whose multi_agent=True they are, and of madqn"
    ),
    ("all", "sizes of networks"): "every config of DI-engine gives them in policy.model",
}

_HEAD = """\
# Defaults of DI-engine that differ from ours

`create_config.defaults = "di_engine"` in a config file, or `ding -m serial -c CONFIG --di-engine`, takes these
in place of ours; what the config says wins over both. The run's total_config.py then says them, so that resuming,
evaluating and `ding enjoy` need no switch. "default_config()" means: printed by running that function of the
class in DI-engine 0.5.3. Where a key is not listed, both have the same default. Written by
`python -m tests.config.di_engine_page`.
"""

# Type of an env whose class says what DI-engine's env of that name has otherwise -> its module.
_ENVS = {"cartpole": "dizoo.classic_control.cartpole.envs.cartpole_env"}


def page() -> str:
    """Return the page, in Markdown."""
    return "\n".join([_HEAD, *_defaults(), "", *_not_taken(), "", *_policies(), ""])


def _defaults() -> Iterator[str]:
    yield from ("| policy | key | DI-engine | ours | source |", "|---|---|---|---|---|")
    rows: dict[str, list[str]] = {}  # all of a row but its policy -> the policies
    for name, found in POLICY_DEFAULTS.items():
        ours = class_defaults(registries.POLICY_REGISTRY.get(name))
        for path, default in found.items():
            rows.setdefault(_row(path, default, _ours(ours, path)), []).append(name)
    yield from (f"| {', '.join(names)} {row}" for row, names in rows.items())
    for name, module in _ENVS.items():
        cls = registries.ENV_REGISTRY.get(name, module)
        for path, value in getattr(cls, "di_engine_defaults", {}).items():
            default = Default(value, "the env of that type, whose stop_value is 195")
            yield f"| env {name} {_row(f'env.{path}', default, literal(get_path(class_defaults(cls), path)))}"


def _ours(defaults: Mapping[str, Any], path: str) -> str:
    if path == "policy.other.replay_buffer.type":
        return '"naive", or "advanced" where priorities or a key of its own ask for it'
    if path.startswith(place := "policy.eval.evaluator."):
        evaluator = registries.SERIAL_EVALUATOR_REGISTRY.get("interaction")
        return literal(get_path(class_defaults(evaluator), path.removeprefix(place)))
    value = get_path(defaults, path.removeprefix("policy."), defaults)
    return "no limit" if value is defaults else literal(value)


def _row(path: str, default: Default, ours: str) -> str:
    return f"| `{path}` | {literal(default.value)} | {ours} | {default.source} |"


def _not_taken() -> Iterator[str]:
    yield from ("## What the switch does not change", "", "| policy | DI-engine | why |", "|---|---|---|")
    for (name, key), reason in _NOT_TAKEN.items():
        yield f"| {name} | `{key}` | {reason} |"


def _policies() -> Iterator[str]:
    yield from ("## Policies of DI-engine that are not here", "", "| policy | closest |", "|---|---|")
    for name, closest in CLOSEST_POLICIES.items():
        yield f"| `{name}` | {', '.join(f'`{each}`' for each in closest)} |"


if __name__ == "__main__":
    print(page(), end="")
