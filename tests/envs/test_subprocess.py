"""What the manager of env processes promises beyond the contract, also where the process that started them ends."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import EnvFactory
from ding_like.envs.manager.base import BaseEnvManager
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from ding_like.errors import EnvError
from tests.envs.faulty_env import DeadlyEnv, GateEnv, ProbeEnv, UnmakeableEnv
from tests.envs.scripted_env import Recorder, ScriptedEnv, expected_transitions
from tests.leaks import child_processes
from tests.marked import processes_with, start_marked, wait_until_gone

Make = Callable[..., SubprocessEnvManager]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that makes a manager; all are closed at the end."""
    made: list[SubprocessEnvManager] = []

    def make_manager(env_fn: list[Callable[[], Any]], **cfg: Any) -> SubprocessEnvManager:
        made.append(SubprocessEnvManager(env_fn, cfg))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


@pytest.fixture
def gate(tmp_path: Path) -> str:
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def open_once(gate: str) -> None:
    """Let one step through: blocks until it waits at the gate."""
    with open(gate, "w") as file:
        file.write("go")


def deadly(num: int, faults: dict[int, dict[tuple[int, int], str]], folder: Path, **kwargs: Any) -> list[Any]:
    """Return envs of which those in `faults` have each of their faults once."""
    return [
        functools.partial(DeadlyEnv, lane, faults=faults.get(lane), fault_dir=str(folder), **kwargs)
        for lane in range(num)
    ]


def record(manager: Any, num: int) -> Recorder:
    recorder = Recorder(manager)
    manager.launch()
    while min(map(len, recorder.transitions)) < num:
        recorder.step()
    return recorder


def step(manager: Any, times: int = 1) -> None:
    for _ in range(times):
        manager.step(np.arange(manager.num_lanes), np.zeros(manager.num_lanes, np.int64))


def play(manager: Any, steps: int) -> list[Any]:
    """Step all lanes with changing actions and return all that came back, and what is acted on next."""
    found = []
    lanes = np.arange(manager.num_lanes)
    for count in range(steps):
        batch = manager.step(lanes, (lanes + count // 7) % 2)
        found.append([*(np.array(part).tolist() for part in batch[:5]), batch.dropped.tolist(), manager.obs.tolist()])
    return found


# Faults that end the process, and their messages.
FATAL = {
    "segfault": "its process died of SIGSEGV",
    "exit": "its process ended with exit code 3",
    "hang": "TimeoutError: a step took over 1 s",
    "hang_with_the_interpreter": "TimeoutError: a step took over 1 s",
}


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=pytest.mark.slow if fault in ("exit", "hang") else ()) for fault in FATAL]
)
def test_a_lost_process_costs_only_the_episode_that_broke_it(
    make: Make, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    env_fn = deadly(3, {1: {(1, 1): fault}}, tmp_path, script=((4, "terminated"), (6, "truncated")))

    recorder = record(make(env_fn, envs_per_process=3, step_timeout_s=1.0), 30)

    assert recorder.dropped == [1]
    for lane in (0, 2):
        expected = expected_transitions(env_fn[lane](), 30)
        assert recorder.transitions[lane][:30] == expected
    # A new env of lane 1 begins with the script's first episode.
    expected = expected_transitions(ScriptedEnv(1, script=((4, "terminated"), (6, "truncated"))), 20)
    steps = [(t.step, t.reward, t.terminated, t.truncated) for t in recorder.transitions[1]]
    assert steps[4:24] == [(t.step, t.reward, t.terminated, t.truncated) for t in expected]
    assert f"env 1 broke: {FATAL[fault]}" in caplog.text.replace("ChildProcessError: ", "")


@pytest.mark.parametrize("fault", ["hang", pytest.param("segfault", marks=pytest.mark.slow)])
def test_a_lost_process_in_a_reset_after_an_episode_drops_it_alone(make: Make, tmp_path: Path, fault: str) -> None:
    env_fn = deadly(2, {1: {(1, 0): fault}}, tmp_path, script=((3, "terminated"),))

    recorder = record(make(env_fn, envs_per_process=2, reset_timeout_s=1.0), 12)

    assert recorder.dropped == [1]
    assert recorder.transitions[0][:12] == expected_transitions(env_fn[0](), 12)


@pytest.mark.slow
def test_a_lost_process_in_the_first_reset_is_tried_again(make: Make, tmp_path: Path) -> None:
    env_fn = deadly(2, {1: {(0, 0): "segfault"}}, tmp_path)

    recorder = record(make(env_fn, envs_per_process=2), 12)

    assert recorder.dropped == []
    for lane in range(2):
        assert recorder.transitions[lane][:12] == expected_transitions(ScriptedEnv(lane), 12)


def test_lanes_that_come_out_differently_lose_their_episode_too(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env_fn = deadly(3, {1: {(0, 2): "segfault"}}, tmp_path, no_two_alike=True)

    # Lane 0 had taken its step when the process ended, lane 2 had not.
    recorder = record(make(env_fn, envs_per_process=3), 6)

    assert sorted(recorder.dropped) == [0, 1, 2]
    assert "env 0 could not be brought back" in caplog.text and "env 2 could not be brought back" in caplog.text


@pytest.mark.slow
def test_lanes_with_a_journal_over_the_cap_lose_their_episode_too(make: Make, tmp_path: Path) -> None:
    env_fn = deadly(2, {1: {(0, 3): "segfault"}}, tmp_path, script=((9, "terminated"),))

    recorder = record(make(env_fn, envs_per_process=2, resume_replay_steps=2), 9)

    assert sorted(recorder.dropped) == [0, 1]


@pytest.mark.slow
def test_an_env_that_breaks_while_it_is_brought_back_loses_its_episode(make: Make, tmp_path: Path) -> None:
    _, deadly_env = deadly(2, {1: {(0, 3): "segfault"}}, tmp_path)
    recorder = record(make([functools.partial(BreaksInReplay, str(tmp_path)), deadly_env], envs_per_process=2), 12)

    assert sorted(recorder.dropped) == [0, 1]


class BreaksInReplay(DeadlyEnv):
    """Break at the second step of the second env that is made."""

    def __init__(self, folder: str) -> None:
        super().__init__(0, script=((9, "terminated"),))
        mark = Path(folder) / "made"
        self._is_second = mark.exists() and mark.read_text() == "1"
        mark.write_text("2" if mark.exists() else "1")

    def step(self, action: Any) -> Any:
        if self._is_second and self.t == 1:
            raise ValueError("not again")
        return super().step(action)


def test_a_process_killed_between_steps_is_replaced(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    before = child_processes()
    manager = make([functools.partial(ScriptedEnv, lane) for lane in range(2)], envs_per_process=2)
    manager.launch()
    step(manager)
    (pid,) = child_processes() - before

    os.kill(pid, signal.SIGKILL)
    batch = manager.step(np.arange(2), np.zeros(2, np.int64))

    assert batch.lanes.tolist() == [] and batch.dropped.tolist() == [0, 1]
    assert "its process died of SIGKILL" in caplog.text
    assert manager.ready.all() and manager.obs[:, 2].tolist() == [0, 0]


@pytest.mark.slow
def test_processes_in_a_crash_loop_end_with_the_cause(make: Make) -> None:
    env_fn = [functools.partial(DeadlyEnv, lane, faults={(0, 1): "exit"} if lane else None) for lane in range(2)]
    manager = make(env_fn, envs_per_process=2)
    manager.launch()

    with pytest.raises(EnvError, match="env 1 broke: .*exit code 3.* 5 times without finishing an episode"):
        step(manager, 9)


def test_crashes_give_the_same_run_as_in_process(make: Make, tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        faults = {
            0: {(1, 2): "raise", (3, 0): "raise"},
            1: {(0, 3): "nan_obs", (2, 0): "nan_obs", (3, 1): "inf_reward"},
        }
        manager: Any = make(deadly(3, faults, folder)) if number else BaseEnvManager(deadly(3, faults, folder))
        manager.seed(3)
        manager.launch()
        runs.append((play(manager, 60), [lane["rng"] for lane in manager.state_dict()["lanes"]]))

    assert runs[0] == runs[1]


def test_a_run_goes_on_in_processes_as_it_would_have_in_process(make: Make) -> None:
    env_fn = [EnvFactory(dict(type="gymnasium", env_id="CartPole-v1")) for _ in range(3)]
    here, there = BaseEnvManager(env_fn, dict(reseed_after=50)), make(env_fn, reseed_after=50)
    here.seed(1)
    here.launch()
    play(here, 120)

    there.load_state_dict(here.state_dict())

    assert there.lanes_lost == []
    assert play(there, 120) == play(here, 120)
    again = BaseEnvManager(env_fn, dict(reseed_after=50))
    again.load_state_dict(there.state_dict())
    assert again.lanes_lost == []
    assert play(again, 60) == play(there, 60)


def test_an_env_lost_during_a_resume_begins_a_new_episode(make: Make, tmp_path: Path) -> None:
    here = BaseEnvManager([functools.partial(ScriptedEnv, lane, script=((9, "terminated"),)) for lane in range(2)])
    here.launch()
    step(here, 4)
    env_fn = deadly(2, {1: {(0, 3): "segfault"}}, tmp_path, script=((9, "terminated"),))
    there = make(env_fn, envs_per_process=2)

    there.load_state_dict(here.state_dict())

    assert there.lanes_lost == [1]
    assert there.obs[:, 2].tolist() == [4, 0] and there.ready.all()


def test_env_processes_load_no_torch_and_are_not_this_process(make: Make) -> None:
    import torch  # noqa: F401  # as in a process that trains

    manager = make([ProbeEnv] * 2, envs_per_process=1)

    manager.launch()

    assert manager.obs[:, 4].tolist() == [0, 0]
    assert len({os.getpid(), *manager.obs[:, 3].tolist()}) == 3


def test_infos_arrive_as_they_were_said_and_otherwise_as_their_repr(make: Make) -> None:
    said = {"a": np.arange(3), "b": (1, None), "c": [float("inf"), "x"], "d": {4: np.float32(2.5)}, "e": b"\0"}
    manager = make([functools.partial(ProbeEnv, info=info) for info in (said, {3}, "x" * 300_000)])
    manager.launch()

    info = manager.step(np.arange(3), np.ones(3, np.int64)).info
    first, second, third = (info[lane] for lane in range(3))  # by number: they come as the processes answer

    assert first["action"] == 1 and type(first["action"]) is np.int64
    assert first["asked"]["a"].dtype == np.int64 and first["asked"]["a"].tolist() == [0, 1, 2]
    assert first["asked"]["b"] == (1, None) and first["asked"]["c"] == [float("inf"), "x"]
    assert first["asked"]["d"] == {4: 2.5} and first["asked"]["e"] == b"\0"
    assert second["asked"] == "{3}" and len(third["asked"]) == 300_000


def test_reset_options_that_cannot_be_sent_are_an_env_error(make: Make) -> None:
    manager = make([ProbeEnv])
    manager.launch()

    with pytest.raises(EnvError, match="options hold <object.*manager type 'base'"):
        manager.reset(options={0: {"level": object()}})


def test_a_slow_lane_does_not_hold_up_a_step_that_waits_for_one(make: Make, gate: str) -> None:
    manager = make([functools.partial(GateEnv, gate), GateEnv], wait_num=1)
    manager.launch()

    first = manager.step(np.arange(2), np.zeros(2, np.int64))
    second = manager.step(np.array([1]), np.zeros(1, np.int64))
    is_ready = manager.ready.tolist()
    open_once(gate)
    third = manager.step(np.zeros(0, np.int64), np.zeros(0, np.int64))

    assert [batch.lanes.tolist() for batch in (first, second, third)] == [[1], [1], [0]]
    assert [batch.next_obs.tolist() for batch in (first, second, third)] == [[[1]], [[2]], [[1]]]
    assert is_ready == [False, True] and manager.ready.all()
    assert not manager.lane_seeds


def test_a_step_returns_after_its_timeout_with_those_that_answered(make: Make, gate: str) -> None:
    manager = make([functools.partial(GateEnv, gate), GateEnv], envs_per_process=1)
    manager.launch()

    first = manager.step(np.arange(2), np.zeros(2, np.int64), timeout_s=1.0)
    is_ready = manager.ready.tolist()
    open_once(gate)
    second = manager.step(np.zeros(0, np.int64), np.zeros(0, np.int64))

    assert first.lanes.tolist() == [1] and second.lanes.tolist() == [0]
    assert is_ready == [False, True] and first.dropped.tolist() == second.dropped.tolist() == []


def test_a_lane_that_has_not_answered_cannot_be_stepped(make: Make, gate: str) -> None:
    manager = make([functools.partial(GateEnv, gate), GateEnv], wait_num=1)
    manager.launch()
    step(manager)

    with pytest.raises(EnvError, match=r"lanes \[0\] are not ready"):
        step(manager)
    open_once(gate)


def test_a_reset_breaks_off_a_step_that_is_under_way(make: Make, gate: str) -> None:
    manager = make([functools.partial(GateEnv, gate), GateEnv], wait_num=1, step_timeout_s=1.0)
    manager.launch()
    step(manager)

    # The env never passes the gate: its process has to be replaced before the reset can be carried out.
    manager.reset(np.array([0]))

    assert manager.ready.all() and manager.obs.tolist() == [[0], [1]]


def test_an_answer_that_came_during_a_reset_is_kept_for_the_next_step(make: Make, gate: str) -> None:
    manager = make([functools.partial(GateEnv, gate), GateEnv, GateEnv], wait_num=1)
    manager.launch()
    manager.step(np.array([0, 1]), np.zeros(2, np.int64))
    open_once(gate)

    manager.reset(np.array([1]))
    is_ready = manager.ready[1:].tolist()
    batch = manager.step(np.zeros(0, np.int64), np.zeros(0, np.int64))

    assert is_ready == [True, True]
    assert batch.lanes.tolist() == [0] and batch.next_obs.tolist() == [[1]]


def test_env_processes_leave_signals_to_the_manager(make: Make) -> None:
    before = child_processes()
    manager = make([ScriptedEnv] * 2)
    manager.launch()

    for pid in child_processes() - before:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    batch = manager.step(np.arange(2), np.zeros(2, np.int64))

    assert batch.lanes.tolist() == [0, 1]


def test_envs_that_cannot_be_pickled_are_an_env_error(make: Make) -> None:
    lock = threading.Lock()

    with pytest.raises(EnvError, match="env 1 .*cannot be pickled.*top of a module.*manager type 'base'"):
        make([ScriptedEnv, lambda: ScriptedEnv() if lock else None])


def test_envs_may_be_made_by_lambdas_and_closures(make: Make) -> None:
    def with_options(number: int) -> Callable[[], ScriptedEnv]:
        class Numbered(ScriptedEnv):
            def reset(self, **kwargs: Any) -> Any:
                obs, info = super().reset(**kwargs)
                return np.full_like(obs, number), info

        return lambda: Numbered()

    manager = make([with_options(3), with_options(5)])
    manager.launch()

    assert manager.obs[:, 0].tolist() == [3, 5]


def test_an_env_that_cannot_be_made_is_an_env_error_with_the_cause(make: Make) -> None:
    with pytest.raises(EnvError, match=r"cannot be made: FileNotFoundError: no simulator") as caught:
        make([UnmakeableEnv])

    assert "in __init__" in str(caught.value.__cause__)


class ProbeEnvWith(ProbeEnv):
    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.observation_space = observation_space


def test_an_env_that_hangs_when_made_and_our_own_errors_are_one_clear_error(make: Make) -> None:
    with pytest.raises(EnvError, match="starting its process took over 0.6 s"):
        make([functools.partial(UnmakeableEnv, "hang")], launch_timeout_s=0.6)
    with pytest.raises(EnvError, match="^observation space .* does not fit"):
        make([functools.partial(ProbeEnvWith, spaces.Text(3))])


def test_a_manager_that_nobody_closed_leaves_nothing_behind() -> None:
    before = child_processes()
    manager = SubprocessEnvManager([ScriptedEnv])
    manager.launch()

    del manager
    gc.collect()

    assert child_processes() == before


def test_a_hung_env_is_killed_when_the_manager_closes(make: Make, gate: str, caplog: pytest.LogCaptureFixture) -> None:
    before = child_processes()
    manager = make([functools.partial(GateEnv, gate)], close_timeout_s=0.2)
    manager.launch()
    manager.step(np.arange(1), np.zeros(1, np.int64), timeout_s=0.0)

    manager.close()

    assert child_processes() == before
    assert "1 env processes did not close in 0.2 s and were killed" in caplog.text


@pytest.mark.slow
def test_it_says_when_stepping_in_process_would_be_faster(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    manager = make([ScriptedEnv] * 2, envs_per_process=1)
    manager.launch()

    step(manager, 2000)

    said = [record.message for record in caplog.records if "'base' would be about" in record.message]
    assert len(said) == 1
    assert "x faster here: one step of an env takes" in said[0]


RUN = """
import functools, sys
import numpy as np
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from tests.envs.faulty_env import DeadlyEnv

faults = {(0, 20): sys.argv[1]} if len(sys.argv) > 1 else {}
env_fn = [functools.partial(DeadlyEnv, lane, faults=faults, script=((10**9, "terminated"),)) for lane in range(3)]
with SubprocessEnvManager(env_fn, dict(envs_per_process=2)) as manager:
    manager.launch()
    print("running", flush=True)
    while True:
        manager.step(np.arange(3), np.zeros(3, np.int64))
"""


def wait_for_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "hang", "hang_with_the_interpreter"])
def test_env_processes_end_with_a_manager_that_is_killed_even_if_they_hang(mark: str, fault: str | None) -> None:
    with start_marked(mark, "-c", RUN, *([fault] if fault else [])) as process:
        wait_for_line(process)
        assert len(processes_with(mark)) == 3

        process.kill()
        process.communicate()

    assert wait_until_gone(mark) == set()


@pytest.mark.slow
def test_ctrl_c_ends_a_run_and_its_env_processes(mark: str) -> None:
    with start_marked(mark, "-c", RUN) as process:
        wait_for_line(process)

        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert "KeyboardInterrupt" in said
    assert wait_until_gone(mark) == set()


# A script as people write them: no guard, imports at the top that env processes have no use for, envs of its own.
SCRIPT = """
import functools
import ding_like.policy  # imports torch
import numpy as np
from ding_like.envs import SyncSubprocessEnvManager
from ding_like.envs.manager.subprocess import SubprocessEnvManager
from tests.envs.faulty_env import ProbeEnv

print("started")
class MyEnv(ProbeEnv):
    pass

manager = SubprocessEnvManager([MyEnv] * 2)
manager.launch()
print("torch in env processes:", manager.obs[:, 4].tolist())
manager.close()
manager = SyncSubprocessEnvManager([lambda: MyEnv()] * 2)
manager.launch()
print(sorted(manager.step({0: 1, 1: 0})))
manager.close()
"""


@pytest.mark.slow
def test_a_script_needs_no_guard_and_neither_it_nor_its_imports_run_in_env_processes(mark: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with start_marked(mark, "train.py", cwd=tmp_path) as process:
        said, faults = process.communicate(timeout=60)

    assert said.split("\n") == ["started", "torch in env processes: [0.0, 0.0]", "[0, 1]", ""], faults
