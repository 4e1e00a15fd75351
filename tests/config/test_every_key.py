"""Short uses of every kind of part, each ending in a text that tells what happened: equal texts, equal behaviour."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from ding_like.config import deep_merge
from ding_like.config.di_engine import COMMANDER
from ding_like.config.schema import class_defaults
from ding_like.config.tree import leaves, set_path
from ding_like.data.batch import TransitionBatch
from ding_like.errors import DingError
from ding_like.utils.registries import REGISTRIES
from tests.worker.collector.test_battle import manager_of, mode
from tests.worker.collector.test_sample import Rows
from tests.worker.evaluator.test_interaction import MODE
from tests.worker.evaluator.test_metric import Accuracy, batches
from tests.worker.learner.counting_policy import CountingPolicy, RecordingWriter
from tests.worker.replay_buffer.goal_env import LineEnv
from tests.worker.scripted_manager import ScriptedManager

Config = Mapping[str, Any]


def log_of(folder: Path) -> str:
    """Return all text logs without their times."""
    texts = [path.read_text() for path in sorted(folder.rglob("*.txt"))]
    return re.sub(r"[0-9:.]*\d+( s\b|:\d+)|\[.*?\]|per_sec [^,]*|in [\d.e-]+ s", "", "\n".join(texts))


def rows(number: int, *, size: int = 4) -> TransitionBatch:
    """Return the rows of `size` steps of one lane; every eighth ends an episode."""
    time = np.arange(number * size, (number + 1) * size)
    frames = np.stack([time, time + 1], axis=1).astype(np.float32)[:, :, None]
    return TransitionBatch(
        {
            "obs": frames,
            "next_obs": frames + 1,
            "hidden": time.astype(np.float32),
            "env_id": time * 0 + number % 2,
            "lane": time * 0 + number % 2,
            "episode_id": time // 8,
            "step": time % 8,
            "terminated": time % 8 == 7,
            "truncated": np.zeros(size, bool),
            "policy_version": time // 8,
            "reward": time.astype(np.float32),
        }
    )


def rows_with_goals(number: int) -> TransitionBatch:
    """Return `rows` whose observations are what was achieved, two numbers, and what was wanted, two more."""
    batch = rows(number)
    achieved = {name: batch[name][:, :, 0] for name in ("obs", "next_obs")}
    return batch.with_columns(**{name: np.hstack([column, column + 50]) for name, column in achieved.items()})


def use_buffer(cls: Any, cfg: Config, folder: Path) -> str:
    needed = {"make_env": lambda: LineEnv(flat=True)} if cls.needs_env else {}
    buffer = cls.for_pipeline(cfg, exp_name=str(folder), rng=np.random.default_rng(0), **needed)
    seen: list[str] = []
    try:
        for number in range(6):
            buffer.push(rows_with_goals(number) if cls.needs_env else rows(number), 0)
            size = 1 if cls.unit == "episode" else 3
            for _ in range(3):
                sample = buffer.sample(size, number)
                seen.append("nothing" if sample is None else _text(sample))
                if hasattr(buffer, "beta") and sample is not None:
                    seen.append(f"beta {buffer.beta}")
                    names = ("replay_buffer_idx", "replay_unique_id")
                    buffer.update({**{name: sample[name] for name in names}, "priority": _priority(sample)})
        seen.append(f"{buffer.count()} {buffer.num_bytes}")
    finally:
        buffer.close()
    return "\n".join(seen) + log_of(folder)


def _priority(sample: Any) -> Any:
    reward = np.abs(sample["reward"])
    return reward if reward.ndim == 1 else reward[:, 0]


def _text(sample: Any) -> str:
    columns = getattr(sample, "columns", None) or sample.batch.columns
    columns = {**columns, **getattr(sample, "per_window", {})}
    return f"{type(sample).__name__} " + " ".join(f"{name}={np.asarray(columns[name]).tolist()}" for name in columns)


class FaultyEnv(gymnasium.Env[Any, Any]):
    """Show seed and time; the second episode raises, the fourth gives a NaN."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        FaultyEnv.episodes += 1
        self._episode, self._seed, self._time = FaultyEnv.episodes, -1 if seed is None else seed % 1000, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._time += 1
        if self._time == 2 and self._episode == 4:
            raise RuntimeError("broken")
        reward = np.nan if self._time == 2 and self._episode == 8 else 1.0
        return self._obs(), reward, self._time == 3, False, {}

    def _obs(self) -> Any:
        return np.array([self._seed, self._time], np.float32)


def use_manager(cls: Any, cfg: Config, folder: Path) -> str:
    FaultyEnv.episodes = 0
    managers = [cls([FaultyEnv, FaultyEnv], cfg) for _ in range(2)]
    seen: list[Any] = []
    try:
        for manager in managers:
            manager.seed(0)
            manager.launch()
        for _ in range(16):
            lanes = managers[0].ready.nonzero()[0]
            answer = managers[0].step(lanes, np.zeros(len(lanes), np.int64))
            seen += [answer.lanes.tolist(), answer.next_obs.tolist(), answer.dropped.tolist(), managers[0].obs.tolist()]
        managers[1].load_state_dict(managers[0].state_dict())
        seen.append(managers[1].lanes_lost)
    finally:
        for manager in managers:
            manager.close()
    return repr(seen)


def use_collector(cls: Any, cfg: Config, folder: Path) -> str:
    is_battle = "1v1" in cfg["type"]
    manager: Any = manager_of(games=2) if is_battle else ScriptedManager([[2], [3]])
    policy: Any = [mode(), mode()] if is_battle else Rows().collect_mode
    writer = RecordingWriter()
    collector = cls(cfg, manager, policy, writer, exp_name=str(folder))
    try:
        found = [collector.collect(6, train_iter=number) for number in range(0, 60, 20)]
    finally:
        collector.close()
    return f"{[type(each[0] if is_battle else each).__name__ for each in found]} {found} {len(writer.lines)}"


def use_evaluator(cls: Any, cfg: Config, folder: Path) -> str:
    if cfg["type"] != "metric" and cfg["n_episode"] is None:
        cfg = {**cfg, "n_episode": 4}
    kwargs: dict[str, Any] = {"env": ScriptedManager([[2], [3]]), "policy": MODE}
    if cfg["type"] == "metric":
        kwargs = {"env": (batches((2, 2)), Accuracy()), "policy": MODE._replace(forward=lambda inputs: inputs)}
    if "1v1" in cfg["type"]:
        kwargs = {"env": manager_of(games=2), "policy": [mode(), mode()]}
    evaluator = cls(cfg, exp_name=str(folder), **kwargs)
    try:
        stop, found = evaluator.eval(train_iter=5)
        later = [evaluator.should_eval(number) for number in (5, 6, 60, 2000)]
    finally:
        evaluator.close()
    return f"{stop} {found} {later}"


def use_learner(cls: Any, cfg: Config, folder: Path) -> str:
    """Let the first and the second of two learners train six times each."""
    seen = []
    for rank in (0, 1):
        writer, policy, count = RecordingWriter(), CountingPolicy(), iter(range(6))
        learner = cls(cfg, policy.learn_mode, writer, (rank, 1), exp_name=str(folder / f"rank{rank}"))
        try:
            batch = rows(rank)
            learner.get_data = lambda size, count=count, batch=batch: (
                lambda: batch if next(count, None) is not None else None
            )
            learner.start()
            seen.append(f"{policy.updates} {writer.lines} {learner.monitor is None}")
        finally:
            learner.close()
    return f"{seen} {sorted(str(path.relative_to(folder)) for path in folder.rglob('*.pth.tar'))} {log_of(folder)}"


PLAYERS = ("naive_sp_player", "main_player", "main_exploiter", "league_exploiter")


def use_league(cls: Any, cfg: Config, folder: Path) -> str:
    """Let a league of all kinds of players play for a while."""
    cfg = {**cfg, "active_players": cfg["active_players"] or dict.fromkeys(PLAYERS, 1)}
    league = cls(cfg, rng=np.random.default_rng(0), save_checkpoint=lambda source, target: None)
    league.begin()
    seen: list[Any] = [league.games_per_job]
    for step in (4, 9, 12, 30):
        for player in league.active_players_ids:
            for wins in (1, 5, 9):
                found = league.get_job_info(player)
                results = ["wins"] * wins + ["losses"] * (10 - wins)
                league.finish_job({"player_id": found["player_id"], "result": results})
                seen.append([found["player_id"], found["checkpoint_path"]])
            league.update_active_player({"player_id": player, "train_iteration": step})
            past = league.judge_snapshot(player)
            seen += [None if past is None else past.player_id, league.is_to_reset(player)]
    return f"{seen} {league.payoff.state_dict()}"


def use_player(cls: Any, cfg: Config, folder: Path) -> str:
    league = REGISTRIES["league"].get("one_vs_one")
    return use_league(league, deep_merge(league.default_config(), {cfg["name"]: cfg["own"]}), folder)


def outcome(use: Any, cls: Any, cfg: Config, changes: Config, folder: Path) -> str:
    """Return what a use of a class with its defaults and these changes ends in; an error that it raises, too."""
    folder.mkdir()
    full = deep_merge(deep_merge(class_defaults(cls), changes), cfg)
    if use is use_player:
        full = {"name": cls.category, "own": full}
    try:
        found = str(use(cls, full, folder))
    except DingError as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub(r" at 0x[0-9a-f]+|train_time_avg'?:? [\de.-]+", "", found.replace(str(folder), ""))


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
    "env": {"env_id", "kwargs", "max_episode_steps", "render_mode", "wrappers", "api", "flatten", "team_reward"},
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
    "buffer": use_buffer,
    "env_manager": use_manager,
    "serial_collector": use_collector,
    "serial_evaluator": use_evaluator,
    "learner": use_learner,
    "league": use_league,
    "player": use_player,
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
            use = functools.partial(outcome, USES[registry], cls)
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
