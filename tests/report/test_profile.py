"""Stacks are sorted by what a thread does and whom it waits for; shares, idle cores and what limits a run follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding_like.report.profile import Profile, doing, group_cpu

MAIN = "_main (ding_like/entry/cli.py:262)"
COLLECTS = f"{MAIN};SampleSerialCollector.collect (ding_like/worker/collector/single.py:124)"
LEARNS = f"{MAIN};BaseLearner.train (ding_like/worker/learner.py:358)"
WAITS_HTTP = (
    "HttpCoordinator._exchange (ding_like/comm/rest/client.py:320);Session.send (requests/sessions.py:700);"
    "SocketIO.readinto (socket.py:706)"
)
RUN = "run (ding_like/model/numpy_networks.py:81)"
STEP = "BaseEnvManager.step (ding_like/envs/manager/base.py:577)"
WAIT = "Condition.wait (threading.py:331)"
SEND = "Session.send (requests/sessions.py:700)"
CASES = {
    f"{COLLECTS};RolloutLoop._act (ding_like/worker/collector/loop.py:263);{RUN}": "acting",
    f"{COLLECTS};{STEP};CartPoleEnv.step (gymnasium/envs/cartpole.py:9)": ("stepping envs"),
    f"{COLLECTS};{STEP};MyEnv.step (my_env.py:9)": "stepping envs",
    f"{COLLECTS};Rollout.append (ding_like/data/rollout.py:44)": "rows and buffer",
    f"{MAIN};ReplayBuffer.push (ding_like/worker/replay_buffer/buffer.py:425)": "rows and buffer",
    f"{LEARNS};ValueBasedPolicy.grad (ding_like/policy/value_based.py:223);{RUN}": ("learning"),
    f"{MAIN};play (ding_like/worker/evaluator.py:9);{STEP}": ("evaluating"),
    f"{MAIN};write_segment (ding_like/data/segment_file.py:20);dumps (json/__init__.py:2)": "encoding, files",
    f"{MAIN};HttpCoordinator._send (ding_like/comm/rest/client.py:3);{SEND}": "sending",
    f"{MAIN};MetricsSink.write (ding_like/utils/metrics.py:117)": "logs, pictures",
    f"{MAIN};_find_and_load (<frozen importlib._bootstrap>:1176);<module> (torch/__init__.py:12)": "starting",
    f"{MAIN};something (elsewhere.py:3)": "other",
    f"{MAIN};RestRowSink.order (ding_like/comm/rest/rows.py:500);{WAITS_HTTP}": "waits for orders",
    f"{MAIN};RestBatchSource.next (ding_like/comm/rest/rows.py:273);{WAIT}": "waits for batches",
    f"RestBatchSource._run (ding_like/comm/rest/rows.py:357);{WAIT}": "waits for the learner",
    f"{MAIN};InferenceClient.evaluate_model (ding_like/comm/zmq/inference.py:3);Socket.poll (zmq/sugar/socket.py:9)": (
        "waits for inference"
    ),
    f"{MAIN};WorkerSet.call (ding_like/pipeline/ray/worker_set.py:3);get_objects (ray/_private/worker.py:9)": (
        "waits for workers"
    ),
    f"{MAIN};SubprocessManager.step (ding_like/envs/manager/subprocess.py:3);select (selectors.py:9)": "waits for envs",
    "HttpServer._run (ding_like/comm/http_server.py:103);poll2 (waitress/wasyncore.py:213)": "waits for messages",
    f"{MAIN};Thread.join (threading.py:9)": "waits",
}


@pytest.mark.parametrize(("stack", "expected"), CASES.items(), ids=[*CASES.values()])
def test_a_stack_is_sorted_by_its_innermost_known_function(stack: str, expected: str) -> None:
    assert doing(stack.split(";")) == expected


def lines() -> list[str]:
    """Return samples of a run of a coordinator, a learner that learns 90 % and a collector that waits 60 %."""
    learner, collector = 'process 1:"ding";process 2:"ding";thread (2): MainThread', 'process 1:"ding";process 3:"ding"'
    stacks = {name: stack for stack, name in CASES.items()}
    return [
        f'process 1:"ding";thread (1): MainThread;{stacks["waits"]} 100',
        f'process 1:"ding";thread (7): waitress-3;{stacks["waits for messages"]} 100',
        f"{learner};{stacks['starting']} 100",
        f"{learner};{stacks['learning']} 90",
        f"{learner};{stacks['waits for batches']} 10",
        f"{collector};thread (3): MainThread;{stacks['stepping envs']} 30",
        f"{collector};thread (3): MainThread;{stacks['acting']} 10",
        f"{collector};thread (3): MainThread;{stacks['waits for orders']} 60",
    ]


def profile(cpu_s: dict[int, float]) -> Profile:
    return Profile.of(lines(), cpu_s=cpu_s, names={1: "main", 2: "learner", 3: "collector0"}, wall_s=10.0, cores=2)


def test_shares_are_of_each_thread_and_those_that_only_wait_are_counted() -> None:
    found = profile({1: 1.0, 2: 9.0, 3: 4.0})
    rows = dict(found.rows())

    assert [*rows] == ["learner", "collector0"]
    assert rows["learner"].shares() == {"learning": 0.45, "starting": 0.5, "waits for batches": 0.05}
    assert all(sum(time.shares().values()) == pytest.approx(1.0) for time in rows.values())
    assert found.idle_cores == pytest.approx(0.6)
    text = "\n".join(found.table())
    assert "collector0  waits for orders 60%  stepping envs 30%  acting 10%" in text
    assert "2 more threads, which wait" in text and "learner 9.0" in text


def test_a_command_line_with_a_semicolon_is_no_end_of_a_frame() -> None:
    spawned = 'process 1:"python";process 4:"python -c from multiprocessing.spawn import main; main(32)"'
    stacks = [f"{spawned};thread (4): {name};{LEARNS} 5" for name in ("MainThread", "other")]
    found = Profile.of(stacks, cpu_s={}, names={4: "actor"}, wall_s=1.0, cores=2)
    assert {label for label, _ in found.rows()} == {"actor", "actor other"}


def test_what_limits_a_run_is_named() -> None:
    found = profile({2: 9.0})
    assert "learns 90% of the time, collectors act and step envs 40%" in found.verdict()
    assert "the learner limits the run" in found.verdict()
    learner, collector = (time for _, time in found.rows())
    learner.samples["learning"] = 20
    learner.samples["waits for batches"] = 80
    assert "neither limits the run" in found.verdict()
    found.cpu_s = {2: 20.0}
    assert "all 2 cores are busy" in found.verdict()
    collector.samples["waits for orders"] = 5
    assert "collecting limits the run" in found.verdict()
    learner.samples.clear()
    assert "Nothing was learned" in found.verdict()


def test_figures_and_picture_are_written(tmp_path: Path) -> None:
    found = profile({1: 1.0, 2: 9.0})
    found.draw(tmp_path / "profile.png")
    plain = found.to_plain()
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert plain["threads"][0]["label"] == "learner" and plain["processes"]["2"]["cpu_s"] == 9.0


def test_the_last_reading_of_a_process_counts() -> None:
    assert group_cpu([(1, 0.5), (2, 1.0), (1, 2.5)]) == {1: 2.5, 2: 1.0}
