"""Every key of every class does something, or is said to do nothing.

The walk goes over the defaults of all registered classes. A key is changed, and the class is seen to behave otherwise;
or it is declared in the class's `without_effect`; or, where that takes processes, games or packages that a walk has
not, it is listed as one that tests of its room set. A key that is none of these fails here. Policies have tests of
their own for this, and so have the commanders of parallel runs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ding_like.config.di_engine import COMMANDER
from ding_like.config.schema import class_defaults
from ding_like.config.tree import leaves, set_path
from ding_like.utils.registries import REGISTRIES
from tests.config import key_scenarios as scenarios


class Changed(NamedTuple):
    """Value of a key, and what else must be set for it to matter."""

    value: Any
    beside: dict[str, Any] = {}


# Keys whose effect takes processes, games or packages that a walk has not: tests of their rooms set them.
ELSEWHERE: dict[str, set[str]] = {
    "buffer": {"thruput_controller.window_seconds"},
    "env_manager": {"num_threads", "envs_per_process", "wait_num", "launch_timeout_s", "close_timeout_s", "opponent"}
    | {"subprocess", "step_timeout_s", "reset_timeout_s"},
    "learner": {"hook.check_finite_after_iter"},
    "env": {"env_id", "kwargs", "max_episode_steps", "render_mode", "wrappers", "api", "flatten"},
}
TRACK = Changed(True)  # rows without data_id are refused then
BUFFER: dict[str, Any] = {
    "replay_buffer_size": Changed(4),
    "enable_track_used_data": TRACK,
    "frame_stack": Changed(2),
    "periodic_thruput_seconds": Changed(0.0),
    "max_use": Changed(1),
    "max_staleness": Changed(1),
    "alpha": Changed(0.0),
    "beta": Changed(0.9),
    "anneal_step": Changed(10.0),
    "thruput_controller.push_sample_rate_limit.max": Changed(0.1),
    "thruput_controller.push_sample_rate_limit.min": Changed(
        3.0, {"thruput_controller.push_sample_rate_limit.max": 9.0}
    ),
    "thruput_controller.sample_min_limit_ratio": Changed(3),
    "monitor.sampled_data_attr.average_range": Changed(1, {"monitor.sampled_data_attr.print_freq": 5}),
    "monitor.sampled_data_attr.print_freq": Changed(2),
    "monitor.periodic_thruput.seconds": Changed(0.0),
    "sequence_length": Changed(3),
    "num_streams": Changed(1),
    "padding": Changed(True),
    "burn_in": Changed(1),
    "initial_columns": Changed(["hidden"]),
    "strategy": Changed("final"),
    "k": Changed(0),
    "size_unit": Changed("episodes"),  # of which none ends in the first rows
}
MANAGER: dict[str, Any] = {
    "reseed_after": Changed(0),
    "resume_replay_steps": Changed(0),
    "max_env_restarts": Changed(0),
    "nonfinite": Changed("raise"),
    "autoreset_mode": Changed("NextStep"),
}
COLLECTOR: dict[str, Any] = {
    "collect_print_freq": Changed(1),
    "get_train_sample": Changed(True),
    "reward_shaping": Changed(True),
}
EVALUATOR: dict[str, Any] = {"eval_freq": Changed(1), "n_episode": Changed(6), "stop_value": Changed(-1e9)}
LEARNER: dict[str, Any] = {
    "train_iterations": Changed(3),
    "log_policy": Changed(False),
    "only_monitor_rank0": Changed(False),
    "hook.load_ckpt_before_run": Changed("nowhere.pth.tar"),
    "hook.log_show_after_iter": Changed(2),
    "hook.save_ckpt_after_iter": Changed(2),
    "hook.save_ckpt_after_run": Changed(False),
}
LEAGUE: dict[str, Any] = {
    "path_policy": Changed("elsewhere"),
    "active_players": Changed({"main_player": 2}),
    "use_initial_snapshot": Changed(False),
    "payoff.decay": Changed(0.5),
    "payoff.min_win_rate_games": Changed(1000),
    "naive_sp_player": Changed({"one_phase_step": 4}),
    "main_player": Changed({"one_phase_step": 4}),
    "main_exploiter": Changed({"min_valid_win_rate": 0.99}),
    "league_exploiter": Changed({"mutate_prob": 1.0}),
    "games_per_job": Changed(5),
}
PLAYER: dict[str, Any] = {
    "one_phase_step": Changed(4),
    "strong_win_rate": Changed(0.01),
    "mutate_prob": Changed(1.0),
    "min_valid_win_rate": Changed(0.99),
    # Shares must sum to 1: one that does not is refused.
    "branch_probs.pfsp": Changed(0.9),
    "branch_probs.sp": Changed(0.9),
    "branch_probs.veri": Changed(0.9),
    "branch_probs.main_players": Changed(0.9),
}
REGISTRY_KEYS: dict[str, dict[str, Any]] = {
    "buffer": BUFFER,
    "env_manager": MANAGER,
    "serial_collector": COLLECTOR,
    "serial_evaluator": EVALUATOR,
    "learner": LEARNER,
    "env": {},
    "league": LEAGUE,
    "player": PLAYER,
}
USES = {
    "buffer": scenarios.use_buffer,
    "env_manager": scenarios.use_manager,
    "serial_collector": scenarios.use_collector,
    "serial_evaluator": scenarios.use_evaluator,
    "learner": scenarios.use_learner,
    "league": scenarios.use_league,
    "player": scenarios.use_player,
}
# What a part needs in order to do anything in a short use; a key's own proof comes before it.
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("buffer", name): {"sequence_length": 4} for name in ("sequence", "prioritised_sequence")
}
# A part that a walk cannot use: its own keys have tests by name.
NOT_USED = {("env_manager", name) for name in ("ale_vector", "envpool", "subprocess", "game")}
# What a class makes of a key that others have: (registry, class, key) -> the proof in place of the general one.
SPECIAL: dict[tuple[str, str, str], Any] = {
    ("serial_evaluator", "metric", "stop_value"): Changed({"acc": 0.5}),
    ("serial_evaluator", "interaction_1v1", "eval_freq"): Changed(100),
}


def declared(*registries: str) -> Iterator[tuple[str, str, type[Any], str]]:
    """Yield (registry, name, class, key) of our classes."""
    for registry in REGISTRIES.values():
        if registry.name not in (registries or REGISTRY_KEYS):
            continue
        for name in registry.names():
            cls = registry.get(name)
            if cls.__module__.startswith("ding_like"):
                for key, _ in leaves(class_defaults(cls)):
                    if key != "type":
                        yield registry.name, name, cls, key


OTHER_VALUES = {bool: True, int: 7, float: 0.5, str: "env_step", type(None): "elsewhere"}


@pytest.mark.parametrize("registry", REGISTRY_KEYS)
def test_a_key_has_an_effect_or_is_said_to_have_none(registry: str, tmp_path: Path) -> None:
    """Whether a key that is said to have no effect has none is looked at, too."""
    folders = (tmp_path / str(number) for number in itertools.count())
    outcomes: dict[str, str] = {}  # by class and what is set beside the key
    wrong = []
    for _, name, cls, key in declared(registry):
        is_idle = key in getattr(cls, "without_effect", {})
        proof = SPECIAL.get((registry, name, key), REGISTRY_KEYS[registry].get(key))
        if proof is None and not is_idle and key not in ELSEWHERE.get(registry, ()):
            wrong.append(f"'{key}' of {cls.__name__}: show what it does, or declare it in without_effect")
        elif registry in USES and (registry, name) not in NOT_USED and (is_idle or proof is not None):
            use = functools.partial(scenarios.outcome, USES[registry], cls)
            needed: dict[str, Any] = {}
            if is_idle:
                value = OTHER_VALUES[type(dict(leaves(class_defaults(cls)))[key])]
            else:
                value, needed = proof.value, dict(proof.beside)
                needed |= {other: each for other, each in BESIDE.get((registry, name), {}).items() if other != key}
            beside = _tree(needed)
            kind = f"{name} {needed}"
            if kind not in outcomes:
                outcomes[kind] = use({}, beside, next(folders))
                assert outcomes[kind] == use({}, beside, next(folders)), f"the use of {kind} is not repeatable"
            if (use(_tree({key: value}), beside, next(folders)) == outcomes[kind]) != is_idle:
                wrong.append(f"'{key}' of {cls.__name__} has {'an' if is_idle else 'no'} effect")

    assert not wrong


def test_keys_without_effect_are_keys() -> None:
    for registry, name, cls, _ in declared():
        unknown = set(getattr(cls, "without_effect", {})) - {key for key, _ in leaves(class_defaults(cls))}
        if registry != "serial_evaluator":
            assert not unknown, f"{registry} {name} has no {unknown}"
    commander = REGISTRIES["commander"].get("naive").config
    assert {path.rpartition(".")[2] for path in COMMANDER} <= set(commander)


def _tree(paths: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in paths.items():
        set_path(tree, path, value)
    return tree
