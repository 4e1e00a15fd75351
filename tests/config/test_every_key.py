"""Every key of every class does something, or is said to do nothing.

The walk goes over the defaults of all registered classes. A key is changed, and the class is seen to behave otherwise;
or it is declared in the class's `without_effect`; or, where that takes processes, games or packages that a walk has
not, a test by name is one in which it matters. A key that is none of these fails here. Policies have tests of their
own for this, and so have the commanders of parallel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ding_like.config.parts import class_defaults
from ding_like.config.tree import leaves, set_path
from ding_like.config.without_effect import COMMANDER
from ding_like.utils.registries import REGISTRIES
from tests.config import key_scenarios as scenarios

ROOT = Path(__file__).parents[2]


class Changed(NamedTuple):
    """Say what a key is set to, and what else must be set for it to matter."""

    value: Any
    beside: dict[str, Any] = {}


class ShownBy(NamedTuple):
    """Name a test of another file in which a key is set and matters."""

    test: str


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
    "thruput_controller.window_seconds": ShownBy(
        "tests/worker/replay_buffer/test_limiter.py::test_counts_fade_to_one_percent_in_a_window"
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
SUBPROCESS = "tests/envs/test_subprocess.py::"
MANAGER: dict[str, Any] = {
    "reseed_after": Changed(0),
    "resume_replay_steps": Changed(0),
    "max_env_restarts": Changed(0),
    "nonfinite": Changed("raise"),
    "autoreset_mode": Changed("NextStep"),
    "num_threads": ShownBy("tests/envs/test_envpool.py::test_atari_options_have_the_meaning_they_have_elsewhere"),
    "envs_per_process": ShownBy(SUBPROCESS + "test_a_hung_env_is_killed_when_the_manager_closes"),
    "wait_num": ShownBy(SUBPROCESS + "test_a_slow_lane_does_not_hold_up_a_step_that_waits_for_one"),
    "launch_timeout_s": ShownBy(SUBPROCESS + "test_an_env_that_hangs_when_made_is_an_env_error"),
    "close_timeout_s": ShownBy(SUBPROCESS + "test_a_hung_env_is_killed_when_the_manager_closes"),
    "opponent": ShownBy(
        "tests/pipeline/self_play/test_self_play.py::test_the_opponent_of_evaluations_is_as_the_config_says"
    ),
    "subprocess": ShownBy("tests/envs/test_game_process.py::test_a_game_that_hangs_at_every_move_ends_the_run"),
    "step_timeout_s": ShownBy(SUBPROCESS + "test_a_lost_process_costs_only_the_episode_that_broke_it"),
    "reset_timeout_s": ShownBy(SUBPROCESS + "test_a_lost_process_in_a_reset_after_an_episode_drops_it_alone"),
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
    "hook.check_finite_after_iter": ShownBy(
        "tests/worker/learner/test_check_finite.py::test_several_in_a_row_end_the_run_with_evidence"
    ),
    "hook.save_ckpt_after_iter": Changed(2),
    "hook.save_ckpt_after_run": Changed(False),
}
ENV: dict[str, Any] = {
    "env_id": ShownBy("tests/envs/test_factory.py::test_any_gymnasium_id_makes_its_env_with_its_time_limit"),
    "kwargs": ShownBy("tests/envs/test_factory.py::test_kwargs_and_time_limit_of_the_config_reach_gymnasium"),
    "max_episode_steps": ShownBy(
        "tests/envs/test_factory.py::test_kwargs_and_time_limit_of_the_config_reach_gymnasium"
    ),
    "render_mode": ShownBy("tests/envs/test_factory.py::test_the_render_mode_of_the_config_reaches_gymnasium"),
    "wrappers": ShownBy("tests/envs/test_factory.py::test_wrappers_of_the_config_lie_around_the_env_innermost_first"),
    "api": ShownBy("tests/envs/test_petting_zoo.py::test_all_moves_at_once"),
    "flatten": ShownBy("tests/envs/test_petting_zoo.py::test_each_player_sees_the_board_from_its_own_side"),
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
    "env": ENV,
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


def declared() -> Iterator[tuple[str, str, type[Any], str]]:
    for registry in REGISTRIES.values():
        if registry.name not in REGISTRY_KEYS:
            continue
        for name in registry.names():
            cls = registry.get(name)
            if cls.__module__.startswith("ding_like"):
                for key, _ in leaves(class_defaults(cls)):
                    if key != "type":
                        yield registry.name, name, cls, key


ALL = list(declared())


@pytest.mark.parametrize(("registry", "name", "cls", "key"), ALL, ids=[f"{r}-{n}-{k}" for r, n, _, k in ALL])
def test_a_key_has_an_effect_or_is_said_to_have_none(
    registry: str, name: str, cls: Any, key: str, tmp_path: Path
) -> None:
    if key in getattr(cls, "without_effect", {}):
        return  # that it has none is seen below
    proof = SPECIAL.get((registry, name, key), REGISTRY_KEYS[registry].get(key))
    assert proof is not None, f"'{key}' of {cls.__name__}: show what it does, or declare it in without_effect"
    if isinstance(proof, ShownBy) or (registry, name) in NOT_USED:
        return
    needed = {other: value for other, value in BESIDE.get((registry, name), {}).items() if other != key}
    use, beside = USES[registry], _tree({**needed, **proof.beside})

    before = scenarios.outcome(use, cls, {}, beside, tmp_path / "before")
    after = scenarios.outcome(use, cls, _tree({key: proof.value}), beside, tmp_path / "after")

    assert before == scenarios.outcome(use, cls, {}, beside, tmp_path / "again"), "the use is not repeatable"
    assert before != after


def idle() -> Iterator[tuple[str, str, type[Any], str]]:
    for registry, name, cls, key in ALL:
        if key in getattr(cls, "without_effect", {}) and registry in USES and (registry, name) not in NOT_USED:
            yield registry, name, cls, key


OTHER_VALUES = {bool: True, int: 7, float: 0.5, str: "env_step", type(None): "elsewhere"}


@pytest.mark.parametrize(("registry", "name", "cls", "key"), list(idle()))
def test_a_key_that_is_said_to_have_no_effect_has_none(
    registry: str, name: str, cls: Any, key: str, tmp_path: Path
) -> None:
    default = dict(leaves(class_defaults(cls)))[key]
    changed = _tree({key: OTHER_VALUES[type(default)]})

    before = scenarios.outcome(USES[registry], cls, {}, {}, tmp_path / "before")

    assert scenarios.outcome(USES[registry], cls, changed, {}, tmp_path / "after") == before


def test_keys_without_effect_are_keys() -> None:
    for registry, name, cls, _ in ALL:
        unknown = set(getattr(cls, "without_effect", {})) - {key for key, _ in leaves(class_defaults(cls))}
        if registry != "serial_evaluator":
            assert not unknown, f"{registry} {name} has no {unknown}"
    commander = REGISTRIES["commander"].get("naive").config
    assert {path.rpartition(".")[2] for path in COMMANDER} <= set(commander)


def test_a_test_that_is_named_exists_and_sets_the_key() -> None:
    for keys in REGISTRY_KEYS.values():
        for key, proof in keys.items():
            if isinstance(proof, ShownBy):
                file, _, test = proof.test.partition("::")
                text = (ROOT / file).read_text()
                assert f"def {test}(" in text, f"{proof.test} is gone; show otherwise what '{key}' does"
                assert key.rpartition(".")[2].replace("window_seconds", "window") in text, f"{file} never sets '{key}'"


def test_no_proof_is_left_of_a_key_that_is_gone() -> None:
    known = {(registry, key) for registry, _, _, key in ALL}

    assert [
        (registry, key) for registry, keys in REGISTRY_KEYS.items() for key in keys if (registry, key) not in known
    ] == []


def _tree(paths: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in paths.items():
        set_path(tree, path, value)
    return tree
