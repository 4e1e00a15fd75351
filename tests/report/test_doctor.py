"""`ding doctor` finds what is planted in configs and runs, names its fix, and is silent about healthy ones."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.entry import serial_pipeline
from ding_like.entry.modes import shipped_configs
from ding_like.entry.training import load_config
from ding_like.envs.check import Finding
from ding_like.errors import ConfigError
from ding_like.report.doctor import environment
from ding_like.report.doctor.config import Subject, check_config, time_limit
from ding_like.report.doctor.environment import check_environment, extras
from ding_like.report.doctor.run import check_run
from ding_like.utils.metrics import MetricsSink
from tests.entry.typed import status_of
from tests.report.run_folder import RESULT, write_seeds

pytestmark = pytest.mark.usefixtures("in_tmp")


def compiled(name: str, overrides: tuple[str, ...] = (), **settings: Any) -> Mapping[str, Any]:
    return load_config(str(shipped_configs()[name]), seed=0, overrides=overrides, quiet=True, **settings)


def findings_of(name: str, overrides: tuple[str, ...], env_step: float) -> list[Finding]:
    return check_config(Subject(compiled(name, overrides, save=False), env_step))


# --- configs

DQN, PPO = "cartpole_dqn", "cartpole_ppo"
# name -> (config, overrides, env steps, topic, level, a part of what is seen, a part of the fix)
CONFIGS: dict[str, tuple[str, tuple[str, ...], float, str, str, str, str]] = {
    "a budget within the random phase": (
        *(DQN, (), 400, "no update", "fault", "400 env steps end in the random phase", "--env-step 5000"),
    ),
    "a batch that the budget never fills": (
        *(DQN, ("policy.learn.batch_size=4096", "policy.random_collect_size=0"), 2000),
        *("no update", "fault", "fewer rows than policy.learn.batch_size=4,096", "--env-step 40960"),
    ),
    "a budget of two collections": (
        *(PPO, ("policy.collect.n_sample=2048",), 4096),
        *("few updates", "warning", "4,096 env steps are 2.0 collections of 2,048 rows", "policy.collect.n_sample=204"),
    ),
    "most of the run at random": (
        *(DQN, ("policy.random_collect_size=15000",), 20_000),
        *("random phase", "warning", "15,000 of 20,000 env steps", "policy.random_collect_size=1000"),
    ),
    "an evaluation after the end": (
        *(DQN, ("policy.eval.evaluator.eval_freq=100000",), 20_000),
        *("evaluation", "warning", "every 100,000 updates, but the run has about 19,500", "eval_freq=1950"),
    ),
    "an epsilon that stays high": (
        *(DQN, ("policy.other.eps.decay=1000000",), 20_000),
        *("exploration", "warning", "epsilon is still 0.98 after 20,000 env steps", "policy.other.eps.decay=4000"),
    ),
    "an exponential epsilon that stays high": (
        *(DQN, ("policy.other.eps.decay=1000000", "policy.other.eps.type=exp"), 20_000),
        *("exploration", "warning", "epsilon is still 0.98", "policy.other.eps.decay=4000"),
    ),
    "a learning rate of 1": (
        *(DQN, ("policy.learn.learning_rate=1.0",), math.inf),
        *("learning rate", "warning", "policy.learn.learning_rate is 1", "policy.learn.learning_rate=1e-3"),
    ),
    "a learning rate of almost 0": (
        *(DQN, ("policy.learn.learning_rate=1e-9",), math.inf),
        *("learning rate", "warning", "the networks hardly move", "policy.learn.learning_rate=1e-3"),
    ),
    "a schedule that ends early": (
        *(PPO, ("policy.learn.schedule.env_steps=1000", "policy.learn.schedule.lr_end=0"), 50_000),
        *("learning rate", "warning", "is 0 from env step 1,000 of 50,000", "policy.learn.schedule.env_steps=50000"),
    ),
    "gradients cut to nothing": (
        *(DQN, ("policy.learn.grad_clip_norm=1e-8",), math.inf),
        *("gradient", "warning", "cut to almost nothing", "policy.learn.grad_clip_norm=0.5"),
    ),
    "a discount of 0": (
        *(DQN, ("policy.discount_factor=0", "policy.nstep=1"), math.inf),
        *("discount", "warning", "rewards more than 1 steps away hardly count", "policy.discount_factor=0.99"),
    ),
    "no discount where nothing ends an episode": (
        *("cliffwalking_dqn", ("policy.discount_factor=1", "env.env_id=CliffWalking-v1", "env.max_episode_steps=None")),
        *(math.inf, "discount", "warning", "values have no bound", "env.max_episode_steps=1000"),
    ),
    "a return of more steps than an episode": (
        *("pendulum_d4pg", ("policy.nstep=500",), math.inf),
        *("n-step return", "warning", "policy.nstep is 500, and an episode has 200", "policy.nstep=3"),
    ),
    "a return whose value counts for nothing": (
        *(DQN, ("policy.nstep=30", "policy.discount_factor=0.8"), math.inf),
        *("n-step return", "warning", "the value behind them weighs 0.1%", "policy.nstep=3"),
    ),
    "a target network that is never copied": (
        *(DQN, ("policy.learn.target_update_freq=1000000",), 20_000),
        *("target network", "warning", "copied every 1,000,000 updates", "policy.learn.target_update_freq=390"),
    ),
    "a buffer smaller than a collection": (
        *(DQN, ("policy.collect.n_sample=2000", "policy.other.replay_buffer.replay_buffer_size=1000")),
        *(math.inf, "buffer", "warning", "one collection brings 2,000 rows", "replay_buffer_size=40000"),
    ),
    "a buffer smaller than the random phase": (
        *(DQN, ("policy.random_collect_size=5000", "policy.other.replay_buffer.replay_buffer_size=1000")),
        *(math.inf, "buffer", "warning", "the first rows are dropped", "replay_buffer_size=50000"),
    ),
    "rows that are hardly used": (
        *(DQN, ("policy.collect.n_sample=8000", "policy.learn.update_per_collect=1"), math.inf),
        *("replay ratio", "warning", "a row is sampled 0.016 times", "policy.learn.update_per_collect=62"),
    ),
    "rows that are used too often": (
        *(DQN, ("policy.learn.update_per_collect=10000",), math.inf),
        *("replay ratio", "warning", "a row is sampled 160,000 times", "policy.learn.update_per_collect=1"),
    ),
    "more envs than rows": (
        *(DQN, ("env.collector_env_num=64",), math.inf),
        *("envs", "warning", "64 envs take a step each", "env.collector_env_num=8"),
    ),
    "an entropy that outweighs rewards": (
        *(PPO, ("policy.learn.entropy_weight=5.0",), math.inf),
        *("entropy", "warning", "random actions pay more than rewards", "policy.learn.entropy_weight=0.01"),
    ),
}


@pytest.mark.parametrize("planted", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_fault_planted_in_a_config_is_found(
    planted: tuple[str, tuple[str, ...], float, str, str, str, str],
) -> None:
    name, overrides, env_step, topic, level, seen, fix = planted

    (found,) = (each for each in findings_of(name, overrides, env_step) if each.topic == topic)

    assert (found.level, seen in found.seen, fix in found.fix) == (level, True, True), found


HEALTHY = [
    *((DQN, 20_000), (PPO, 50_000), ("pendulum_sac", 20_000), ("pendulum_td3", 20_000), ("cartpole_r2d2", 20_000)),
    *(("cartpole_bc", math.inf), ("cartpole_impala", 60_000), ("lunarlander_dqn", 150_000), ("hopper_ppo", 1_000_000)),
]


@pytest.mark.parametrize(("name", "env_step"), HEALTHY)
def test_nothing_is_found_in_a_healthy_config(name: str, env_step: float) -> None:
    assert findings_of(name, (), env_step) == []


@pytest.mark.parametrize(
    ("name", "overrides", "env_step"),
    [
        (DQN, ("policy.learn.learning_rate=0.02",), 20_000),
        (DQN, ("policy.learn.learning_rate=1e-6",), 20_000),
        (DQN, ("policy.learn.grad_clip_norm=0.01",), 20_000),
        (DQN, ("policy.discount_factor=0.6",), 20_000),
        (DQN, ("policy.discount_factor=0.9", "policy.nstep=10"), 20_000),
        (DQN, ("policy.other.eps.decay=30000",), 20_000),
        (DQN, ("policy.random_collect_size=9000",), 20_000),
        (DQN, ("policy.collect.n_sample=64", "policy.learn.update_per_collect=1"), 50_000),
        (DQN, ("env.collector_env_num=16",), 20_000),
        (PPO, ("policy.learn.entropy_weight=0.1",), 20_000),
        (PPO, (), 2_048),
        ("cliffwalking_dqn", ("policy.discount_factor=1",), math.inf),
    ],
)
def test_unusual_values_that_work_are_no_finding(name: str, overrides: tuple[str, ...], env_step: float) -> None:
    assert [each for each in findings_of(name, overrides, env_step) if each.level != "note"] == []


@pytest.mark.parametrize(
    ("overrides", "seen"),
    [
        (("policy.other.eps.end=0.6",), "epsilon ends at 0.6"),
        (("env.n_evaluator_episode=1", "env.evaluator_env_num=1"), "by the mean of 1 episodes"),
    ],
)
def test_what_may_be_meant_is_a_note(overrides: tuple[str, ...], seen: str) -> None:
    (found,) = findings_of(DQN, overrides, math.inf)

    assert found.level == "note" and seen in found.seen


@pytest.mark.slow
def test_no_shipped_config_has_a_fault_or_a_warning() -> None:
    odd = []
    for name in shipped_configs():
        try:
            found = findings_of(name, (), math.inf)
        except ConfigError as error:  # an env whose package is not installed
            assert "pip install" in str(error), f"{name}: {error}"
            continue
        odd += [(name, each) for each in found if each.level != "note"]

    assert not odd


def test_a_time_limit_is_that_of_the_section_or_of_gymnasium() -> None:
    assert time_limit({"env_id": "CartPole-v1", "max_episode_steps": 30}) == 30
    assert time_limit({"env_id": "CartPole-v1"}) == 500
    assert time_limit({"env_id": "CliffWalking-v1"}) == math.inf
    assert math.isnan(time_limit({"env_id": "Mine-v0"}))


# --- runs

Values = Mapping[str, float]
# (source, name) -> its value in report i of 20; None takes it out.
Planted = dict[tuple[str, str], Callable[[int], float] | None]


def reports(i: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what the parts of a healthy run report at one of twenty points."""
    returns = {
        "reward_mean": 20.0 + 20 * i,
        "reward_std": 5.0,
        "reward_min": 10.0 + 20 * i,
        "reward_max": 30.0 + 20 * i,
    }
    lengths = {"episode_count": 5, "avg_envstep_per_episode": 20.0 + 20 * i}
    yield "evaluator", {**returns, **lengths, "evaluate_time": 0.1}
    totals = {"total_episode_count": 10.0 * i + 10, "total_dropped_episode_count": 0.0}
    yield "collector", {**returns, **lengths, **totals}
    yield "learner", {"total_loss_avg": 1.0 + 0.1 * (i % 3), "q_value_avg": 2.0 * i, "entropy_avg": 0.69 - 0.02 * i}


def write_run(
    planted: Planted, *, name: str = DQN, overrides: tuple[str, ...] = (), result: Any = None, has_updates: bool = True
) -> Path:
    """Write the folder of a run of 20,000 env steps, with what is planted in it, by the program's own writers."""
    cfg = compiled(name, overrides, exp_name="exp", renew_dir=False)
    sink = MetricsSink(cfg["exp_name"], tensorboard=False)
    for i in range(20):
        for source, values in reports(i):
            for (_, key), make in ((place, make) for place, make in planted.items() if place[0] == source):
                if make is None:
                    values.pop(key)
                else:
                    values[key] = make(i)
            if values and (has_updates or source != "learner"):
                sink.write(source, values, env_step=1000 * (i + 1), train_iter=1000 * (i + 1) * has_updates)
    sink.close()
    if result is None:
        return Path("exp")
    ended = {**RESULT, "stop": False, "eval_value": 400.0, "eval_value_raw": [390.0, 410.0], "env_step": 20_000}
    ended |= {"train_iter": 20_000, "duration_s": 100.0, "eval_duration_s": 2.0, "mode": "serial", **result}
    Path("exp/result.json").write_text(json.dumps(ended))
    return Path("exp")


SPARSE: Planted = {("evaluator", key): lambda i: 0.0 for key in ("reward_mean", "reward_min", "reward_max")}
NO_RETURNS: Planted = {("collector", key): None for key, _ in dict(reports(0))["collector"].items()}
# name -> (planted, config, overrides, more of the result, topic, level, a part of what is seen, a part of the fix)
RUNS: dict[str, tuple[Planted, str, tuple[str, ...], dict[str, Any], str, str, str, str]] = {
    "a loss that is not a number": (
        *({("learner", "total_loss_avg"): lambda i: math.nan if i > 15 else 1.0 + i}, DQN, (), {}),
        *("not finite", "fault", "total_loss_avg is not finite in 4 of 20 reports", "policy.learn.grad_clip_norm=0.5"),
    ),
    "a loss that never changes": (
        *({("learner", "total_loss_avg"): lambda i: 0.25}, DQN, (), {}),
        *("constant loss", "fault", "total_loss was 0.25 in all 20 reports", "ding check-env ID"),
    ),
    "a return that never changes": (
        *(SPARSE, DQN, (), {"eval_value": 0.0, "eval_value_raw": [0.0, 0.0]}),
        *("return", "warning", "all 20 evaluations returned 0", "more exploration"),
    ),
    "a policy that never got better": (
        *({("evaluator", "reward_mean"): lambda i: 20.0 - 0.1 * i}, DQN, (), {}),
        *("return", "warning", "after 20,000 updates the return is 18.1, and was 20 untrained", "ding diff"),
    ),
    "a policy that was lost": (
        *({}, DQN, (), {"eval_value": 30.0, "eval_value_raw": [25.0, 35.0]}),
        *("return", "warning", "the last model returns 30; the best evaluation was 400", "ckpt/ckpt_best.pth.tar"),
    ),
    "values beyond any return": (
        *({("learner", "q_value_avg"): lambda i: 10.0**i}, DQN, (), {}),
        *("values", "warning", "and rewards allow about 410", "a smaller learning rate"),
    ),
    "an entropy that collapsed": (
        *({("learner", "entropy_avg"): lambda i: 0.69 * 0.1**i, **SPARSE}, PPO, (), {}),
        *("entropy", "warning", "entropy fell from 0.69 to", "policy.learn.entropy_weight=0.01"),
    ),
    "an entropy weight that grows": (
        *({("learner", "alpha_avg"): lambda i: 0.2 * 2.0**i}, DQN, (), {}),
        *("entropy", "warning", "grew from 0.2 to 1.05e+05", "policy.learn.target_entropy"),
    ),
    "updates that are too large": (
        *({("learner", "clip_fraction_avg"): lambda i: 0.8}, PPO, (), {}),
        *("large updates", "warning", "clip_fraction averages 0.8", "policy.learn.epoch_per_collect"),
    ),
    "lanes that never end": (
        *(NO_RETURNS, DQN, (), {}),
        *("episodes", "fault", "20,000 env steps in 8 lanes, and no episode has ended", "env.max_episode_steps=1000"),
    ),
    "episodes with numbers that are none": (
        *({("collector", "total_dropped_episode_count"): lambda i: 50.0 * i}, DQN, (), {}),
        *("episodes", "fault", "950 episodes were dropped", "ding check-env ID"),
    ),
    "old rows": (
        *({("collector", "PolicyLag"): lambda i: 5000.0}, DQN, (), {"mode": "ray"}),
        *("policy lag", "warning", "rows are 5,000 updates old", "max_policy_lag"),
    ),
    "rows of an earlier policy, on-policy": (
        *({("collector", "PolicyLag"): lambda i: 200.0}, PPO, (), {"mode": "ray"}),
        *("policy lag", "warning", "rows are 200 updates old", "max_policy_lag"),
    ),
    "rows that are dropped": (
        *({("collector", "dropped_rows"): lambda i: 900.0 * i}, DQN, (), {"mode": "ray"}),
        *("dropped rows", "warning", "17,100 rows were dropped unused", "more learners"),
    ),
    "updates that do not keep up": (
        *({}, DQN, ("policy.learn.update_per_collect=64",), {"mode": "parallel"}),
        *("updates", "warning", "of what the config asks for", "fewer collectors"),
    ),
    "a run that mostly evaluates": (
        *({}, DQN, (), {"eval_duration_s": 80.0}),
        *("evaluation time", "warning", "evaluations took 80 of 100 s, 80%", "policy.eval.evaluator.eval_freq=2500"),
    ),
    "an epsilon that has not fallen": (
        *({}, DQN, ("policy.other.eps.decay=1000000",), {}),
        *("exploration", "warning", "epsilon is still 0.98 after 20,000 env steps", "policy.other.eps.decay=4000"),
    ),
}


@pytest.mark.parametrize("planted", RUNS.values(), ids=RUNS.keys())
def test_a_fault_planted_in_a_run_is_found(
    planted: tuple[Planted, str, tuple[str, ...], dict[str, Any], str, str, str, str],
) -> None:
    values, name, overrides, result, topic, level, seen, fix = planted
    folder = write_run(values, name=name, overrides=overrides, result=result)

    (found,) = (each for each in check_run(folder) if each.topic == topic)

    assert (found.level, seen in found.seen, fix in found.fix) == (level, True, True), found


@pytest.mark.parametrize("name", [DQN, PPO])
def test_nothing_is_found_in_a_healthy_run(name: str) -> None:
    assert check_run(write_run({}, name=name, result={})) == []


@pytest.mark.parametrize(
    ("planted", "name", "result"),
    [
        ({("learner", "q_value_avg"): lambda i: 90.0 * i}, DQN, {}),
        ({("learner", "entropy_avg"): lambda i: 0.02 if i else 0.69}, PPO, {}),
        ({("learner", "entropy_avg"): lambda i: 0.001 if i else 0.69}, PPO, {}),  # the return rises
        ({("learner", "alpha_avg"): lambda i: 1.0 + i}, DQN, {}),
        ({("learner", "clip_fraction_avg"): lambda i: 0.3}, PPO, {}),
        ({("learner", "approx_kl_avg"): lambda i: 0.1}, PPO, {}),
        ({("collector", "PolicyLag"): lambda i: 500.0}, DQN, {"mode": "ray"}),
        ({("collector", "PolicyLag"): lambda i: 60.0}, PPO, {"mode": "ray"}),
        ({("collector", "dropped_rows"): lambda i: 50.0 * i}, DQN, {"mode": "ray"}),
        ({}, DQN, {"eval_duration_s": 40.0}),
        ({}, DQN, {"eval_value": 300.0, "eval_value_raw": [290.0, 310.0]}),
        ({}, DQN, {"train_iter": 14_000, "mode": "parallel"}),
    ],
)
def test_an_unusual_run_that_learns_is_no_finding(planted: Planted, name: str, result: dict[str, Any]) -> None:
    assert check_run(write_run(planted, name=name, result=result)) == []


def test_a_run_from_a_data_set_that_hardly_evaluates_is_found() -> None:
    cfg = compiled("cartpole_bc", ("policy.eval.evaluator.eval_freq=5000",), exp_name="exp", renew_dir=False)
    sink = MetricsSink(cfg["exp_name"], tensorboard=False)
    for train_iter in (0, 1560):
        sink.write("evaluator", dict(reports(3))["evaluator"], env_step=0, train_iter=train_iter)
    sink.close()
    ended = {**RESULT, "stop": False, "env_step": 0, "train_iter": 1560, "mode": "serial_bc"}
    Path("exp/result.json").write_text(json.dumps(ended))

    (found,) = check_run("exp")

    assert (found.level, found.topic, found.fix) == ("warning", "evaluation", "policy.eval.evaluator.eval_freq=156")
    assert found.seen == "2 evaluations in 1,560 updates: one follows every 5,000"


def test_a_run_without_an_update_is_found() -> None:
    (found, *_) = check_run(write_run({}, result={"train_iter": 0}, has_updates=False))

    assert (found.level, found.topic) == ("fault", "no update") and "20,000 env steps, and no update" in found.seen
    assert "5,000 env steps" in found.fix


def test_a_run_that_goes_on_is_not_held_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run({}, overrides=("policy.other.eps.decay=1000000",))

    assert check_run(folder) == []
    wrote_s = (folder / "metrics.jsonl").stat().st_mtime
    monkeypatch.setattr("time.time", lambda: wrote_s + 3600.0)
    (found,) = check_run(folder)
    assert (found.level, found.topic) == ("note", "state") and "ding --resume exp" in found.fix


def test_a_run_whose_first_evaluation_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run({})
    (folder / "metrics.jsonl").unlink()
    began_s = (folder / "total_config.py").stat().st_mtime

    monkeypatch.setattr("time.time", lambda: began_s + 60.0)
    assert check_run(folder) == []
    monkeypatch.setattr("time.time", lambda: began_s + 3600.0)
    (found,) = check_run(folder)
    assert (found.level, found.topic) == ("warning", "no evaluation") and "env.max_episode_steps" in found.fix


def test_seeds_are_checked_each_by_itself() -> None:
    folder = write_seeds(Path("several"), {0: 480.0, 1: 490.0}, more=[2])
    (folder / "seed1/metrics.jsonl").write_text("".join(_line(i, loss="nan") for i in range(9)))

    found = check_run(folder)

    assert [(each.level, each.topic) for each in found if each.level != "warning"] == [
        ("fault", "seed 1, not finite"),
        ("note", "seed 2"),
    ]


def _line(i: int, *, loss: object) -> str:
    line = {"source": "learner", "env_step": i, "train_iter": i, "time_s": 0.0, "total_loss_avg": loss}
    return json.dumps(line) + "\n"


# --- the machine

Plant = Callable[[pytest.MonkeyPatch], object]


def _set(path: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(path, value)


def _refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "Operation not permitted")


class OtherClock:
    """The module time, with other functions, for the module that is tested alone."""

    def __init__(self, **changed: Callable[..., object]) -> None:
        vars(self).update(changed)

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def _clock(**changed: Callable[..., object]) -> Plant:
    return _set("ding_like.report.doctor.environment.time", OtherClock(**changed))


_RLIMIT = SimpleNamespace(
    RLIMIT_NOFILE=0, RLIMIT_NPROC=1, RLIM_INFINITY=-1, getrlimit=lambda kind: (64 if kind == 0 else -1, -1)
)
MACHINES: dict[str, tuple[Plant, str, str, str, str]] = {
    "more threads than cores": (
        *(lambda patch: patch.setenv("OMP_NUM_THREADS", "4096"), "threads", "warning"),
        *("OMP_NUM_THREADS is 4096", "export OMP_NUM_THREADS="),
    ),
    "a full disk": (
        *(_set("shutil.disk_usage", lambda path: SimpleNamespace(free=1e8)), "disk", "warning"),
        *("0.10 GB are free", "--exp-name"),
    ),
    "a folder of another user": (
        *(_set("os.access", lambda path, mode: False), "disk", "fault", "cannot be written", "cd to another folder"),
    ),
    "a small shared memory": (
        *(_set("shutil.disk_usage", lambda path: SimpleNamespace(free=6.4e7)), "shared memory", "warning"),
        *("64 MB free", "--shm-size=2g"),
    ),
    "no loopback": (
        *(_set("socket.create_server", _refuse), "ports", "fault", "Operation not permitted", "allow connections"),
    ),
    "few open files": (
        *(lambda patch: patch.setitem(__import__("sys").modules, "resource", _RLIMIT), "limits", "warning"),
        *("64 open files are allowed", "ulimit -n 4096"),
    ),
    "a clock of 1970": (
        *(lambda patch: _go_to_1970(patch), "clock", "warning", "the date of this machine", "timedatectl"),
    ),
    "a time zone of no place": (
        *(_clock(strftime=lambda form: "+1907" if form == "%z" else "x"), "clock", "warning"),
        *("the time zone is +1907", "unset TZ"),
    ),
    "a clock that jumps": (
        *(_clock(monotonic=partial(next, iter((0.0, 60.0)))), "clock", "warning"),
        *("the wall clock moved by -", "NTP"),
    ),
    "a coarse clock": (
        *(_clock(get_clock_info=lambda name: SimpleNamespace(resolution=0.1)), "clock", "warning"),
        *("ticks every 100 ms", "another clock source"),
    ),
    "a disk with another clock": (
        *(_set("os.fstat", lambda descriptor: SimpleNamespace(st_mtime=time.time() + 300)), "clock", "warning"),
        *("is dated +300.0 s from the clock", "NTP"),
    ),
    "no pictures": (
        *(_set("gymnasium.make", lambda *_, **__: _no_pygame()), "rendering", "note"),
        *("no module named pygame", 'pip install "ding-like[classic]"'),
    ),
}


def _go_to_1970(patch: pytest.MonkeyPatch) -> None:
    _clock(time=lambda: 100.0)(patch)
    patch.setattr("os.fstat", lambda descriptor: SimpleNamespace(st_mtime=100.0))


def _no_pygame() -> None:
    raise ImportError("no module named pygame")


@pytest.mark.parametrize("planted", MACHINES.values(), ids=MACHINES.keys())
def test_a_fault_planted_in_the_machine_is_found(
    planted: tuple[Plant, str, str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, topic, level, seen, fix = planted
    monkeypatch.setattr(environment, "extras", dict)
    plant(monkeypatch)

    found = [each for each in check_environment().findings if each.topic == topic]

    monkeypatch.undo()
    assert [(each.level, seen in each.seen, fix in each.fix) for each in found] == [(level, True, True)], found


def test_each_extra_is_installed_or_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["a-package>=1; extra == 'one'", 'numpy>=1; extra == "two"', "numpy>=1", "x; extra == 'old-name'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs)

    facts = {each.topic: each.text for each in check_environment().facts}

    assert extras() == {"one": ["a-package"], "two": ["numpy"]}
    assert facts["extra one"] == 'lacks a-package: pip install "ding-like[one]"'
    assert facts["extra two"] == "installed (numpy)"


def test_a_port_can_be_bound_here() -> None:
    facts = {each.topic: each.text for each in check_environment().facts}

    assert facts["ports"].startswith("127.0.0.1:") and int(facts["disk"].split(".")[0].replace(",", "")) >= 0
    assert socket.gethostbyname("localhost")


# --- the command


def test_the_command_shows_findings_and_exits_by_them(capsys: pytest.CaptureFixture[str]) -> None:
    write_run({("learner", "total_loss_avg"): lambda i: math.inf}, result={})

    assert status_of("doctor", "exp") == 1
    shown = capsys.readouterr().out
    assert "fault    not finite: total_loss_avg is not finite in 20 of 20 reports" in shown
    assert "fix       a smaller learning rate" in shown and "1 fault" in shown
    assert status_of("doctor", "-e", "cartpole", "-p", "dqn", "--env-step", "2e4") == 0
    assert "no fault, no warning, no note" in capsys.readouterr().out


def test_the_command_checks_a_config_with_its_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    status = status_of("doctor", "-e", "cartpole", "-p", "dqn", "policy.learn.learning_rate=0", "policy.nstp=2")

    shown = capsys.readouterr().out
    assert status == 1 and "2 problems in cartpole_dqn_config.py" in shown and "did you mean 'nstep'" in shown


@pytest.mark.parametrize(
    ("override", "seen"),
    [
        ("policy.learn.learning_rate=0", "give a number above 0"),
        ("policy.other.eps.start=0.01", "exploration would grow. Swap start and end"),
        ("policy.other.replay_buffer.replay_buffer_size=100", "no batch could ever be sampled; give 128 or more"),
        ("policy.discount_factor=1.5", "give a number from 0 to 1"),
    ],
)
def test_what_every_run_refuses_is_a_fault(override: str, seen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("doctor", "-e", "cartpole", "-p", "dqn", override) == 1
    assert f"fault    config: 1 problem in {DQN}_config.py" in (shown := capsys.readouterr().out) and seen in shown


def test_tools_read_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("doctor", "-e", "cartpole", "-p", "dqn", "--env-step", "400", "--json") == 1

    report = json.loads(capsys.readouterr().out)
    assert report["findings"][0] | {"seen": "", "expected": ""} == {
        **{"level": "fault", "topic": "no update", "seen": "", "expected": ""},
        **{"fix": "give --env-step 5000", "count": 1},
    }


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("nowhere",), "'nowhere' is not an experiment folder"),
        (("a", "b"), "ding doctor EXP or ding doctor -c CONFIG"),
        (("exp", "-c", "x.py"), "ding doctor EXP or ding doctor -c CONFIG"),
        (("my_config.py",), "give -c my_config.py"),
        (("policy.nstep=3",), "give it with -c FILE, or -e ENV -p POLICY"),
        (("--env-step", "100"), "give it with -c FILE, or -e ENV -p POLICY"),
        (("-c", "nowhere.py"), "nowhere.py"),
        (("-e", "cartpole", "-p", "dqnn"), "there are: cartpole_a2c"),
        (("-e", "cartpole", "-p", "dqn", "--env-step", "-5"), "-5"),
    ],
)
def test_a_slip_is_named_with_its_fix(arguments: tuple[str, ...], fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("doctor", *arguments) == 1
    assert fix in capsys.readouterr().err


# --- a real run


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_nothing_is_found_in_a_run_that_learns() -> None:
    serial_pipeline(str(shipped_configs()[DQN]), seed=0, exp_name="exp")

    assert json.loads(Path("exp/result.json").read_text())["stop"] is True
    assert check_run("exp") == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_cannot_learn_is_found() -> None:
    overrides = ["policy.random_collect_size=3000"]
    serial_pipeline(str(shipped_configs()[DQN]), seed=0, exp_name="exp", max_env_step=2000, overrides=overrides)

    assert [(each.level, each.topic) for each in check_run("exp")][:1] == [("fault", "no update")]
