"""A run with a coordinator, collectors and a learner on this machine, from the command line down."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.keys import make_keys
from ding_like.comm.rest import messages as m
from ding_like.config import deep_merge
from ding_like.entry import parallel_pipeline
from ding_like.utils.checkpoint import load_state
from tests.entry.typed import status_of
from tests.pipeline.parallel.runs import configs

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
PPO = CONFIG.with_name("cartpole_ppo_config.py")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def ding(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ding_like.entry.cli", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Return a process of `ding` that says all on its stdout."""
    return subprocess.Popen(
        [sys.executable, "-m", "ding_like.entry.cli", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder.resolve():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended meanwhile, or is another user's
    return found


@pytest.mark.timeout(300)
def test_a_serial_config_trains_in_parallel(tmp_path: Path) -> None:
    run = ding(tmp_path, "-m", "parallel", "-c", str(CONFIG), "-s", "3", "--env-step", "1500", "--exp-name", "par")

    assert run.returncode == 0, run.stderr
    result = result_in(tmp_path / "par")
    assert 1500 <= result["env_step"] <= 1500 + 128
    # The config: 500 steps at random, then an update for each env step; what is on its way at the end is not learned.
    assert 0 <= result["env_step"] - 500 - result["train_iter"] <= 128
    assert len(result["eval_value_raw"]) == 20
    lines = [json.loads(line) for line in (tmp_path / "par/metrics.jsonl").read_text().splitlines()]
    assert {"evaluator", "collector"} <= {line["source"] for line in lines}
    last = [line for line in lines if line["source"] == "evaluator"][-1]
    assert last["reward_mean"] == pytest.approx(result["eval_value"]) and last["episode_count"] == 20
    assert (last["env_step"], last["train_iter"]) == (result["env_step"], result["last_iter"])
    best = load_state(tmp_path / "par/ckpt/ckpt_best.pth.tar")
    assert result["best_eval"] == pytest.approx(max(line["reward_mean"] for line in lines if "evaluate_time" in line))
    assert (best["last_iter"], best["last_step"]) in {(line["train_iter"], line["env_step"]) for line in lines}
    assert (result["mode"], result["seed"], result["env"]) == ("parallel", 3, "CartPole-v1")
    assert result["command"].startswith("python ") or result["command"].startswith("ding ")
    for name in ("curve.png", "ckpt/ckpt_best.pth.tar", "total_config.py", "coordinator.sqlite"):
        assert (tmp_path / "par" / name).is_file(), name
    assert processes_in(tmp_path) == []


@pytest.mark.timeout(300)
def test_ppo_trains_in_parallel_with_rows_of_the_newest_weights_only(tmp_path: Path) -> None:
    run = ding(tmp_path, "-m", "parallel", "-c", str(PPO), "-s", "1", "--env-step", "1200", "--exp-name", "par")

    assert run.returncode == 0, run.stderr
    result = result_in(tmp_path / "par")
    batches = result["train_iter"] / (10 * 4)  # 10 epochs of 4 minibatches
    assert batches == result["env_step"] // 256 and result["env_step"] >= 1200
    assert processes_in(tmp_path) == []


BROKEN = """
from dizoo_config import main_config, create_config
main_config["env"]["env_id"] = "broken_env:Broken-v0"
"""

BROKEN_ENV = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Broken(CartPoleEnv):
    def step(self, action):
        raise RuntimeError("the motor is on fire")
gymnasium.register("Broken-v0", Broken, max_episode_steps=500)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_breaks_a_worker_is_said_on_the_users_terminal(tmp_path: Path) -> None:
    (tmp_path / "dizoo_config.py").write_text(CONFIG.read_text())
    (tmp_path / "broken_env.py").write_text(BROKEN_ENV)
    (tmp_path / "broken_config.py").write_text(BROKEN)

    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE) as other:
        assert len(processes_in(tmp_path)) == 1, "what is there is seen"
        other.communicate(b"\n", timeout=60)

    run = ding(tmp_path, "-m", "parallel", "-c", "broken_config.py", "--exp-name", "par")

    assert run.returncode == 1
    assert "the motor is on fire" in run.stderr and "Traceback" not in run.stderr
    assert processes_in(tmp_path) == []


URL = ["--coordinator", "http://127.0.0.1:9", "--retry-s", "0.3"]
OVER = ["--exp-name", "over", "policy.learn.resume_training=True"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dist"], "-M collector --coordinator URL"),
        (["dist", "-M", "collector"], "-M collector --coordinator URL"),
        (["dist", "-M", "coordinator", "--key-file", "no.json"], "`ding keys no.json` makes"),
        (["dist", "-M", "coordinator", "--host", "0.0.0.0"], "--key-file"),
        (["dist", "-M", "coordinator", "--host", "nosuchhost.invalid"], "names the host 'nosuchhost.invalid'"),
        (["dist", "-M", "learner", *URL], "http://127.0.0.1:9 has not answered for 0.3 s: Connection refused"),
        (["dist", "-M", "coordinator", "--port", "USED"], "Address already in use. Give another --port"),
        (["parallel", *OVER], "ding --resume over"),
    ],
)
def test_what_cannot_run_is_one_message(
    arguments: list[str], words: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_tmp / "over").mkdir()
    (in_tmp / "over/coordinator.sqlite").touch()
    with socket.create_server(("127.0.0.1", 0)) as used:
        mode, *more = (str(used.getsockname()[1]) if each == "USED" else each for each in arguments)
        status = status_of("-m", mode, "-c", str(CONFIG), *more)

    error = capsys.readouterr().err
    assert status == 1 and words in error and "Traceback" not in error


def test_an_unknown_key_of_the_system_part_is_named(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_config.py").write_text(CONFIG.read_text() + "\nsystem_config = dict(coordinater=dict(), path_data='x')\n")

    assert status_of("-m", "parallel", "-c", "my_config.py") == 1 and "system.coordinater" in capsys.readouterr().err


DI_ENGINE_CONFIG = """
from easydict import EasyDict
main_config = EasyDict(dict(
    exp_name='par',
    env=dict(
        collector_env_num=2, collector_episode_num=2, evaluator_env_num=2, evaluator_episode_num=1, stop_value=195,
    ),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[32, 32]),
        learn=dict(batch_size=32, learner=dict(learner_num=1, send_policy_freq=1)),
        collect=dict(n_sample=16, collector=dict(collector_num=2, update_policy_second=3)),
        eval=dict(evaluator=dict(eval_freq=50)),
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.1, decay=1000),
            replay_buffer=dict(replay_buffer_size=10000),
            commander=dict(collector_task_space=2, learner_task_space=1, eval_interval=5),
        ),
    ),
))
create_config = EasyDict(dict(
    env=dict(type='cartpole', import_names=['dizoo.classic_control.cartpole.envs.cartpole_env']),
    env_manager=dict(type='base'),
    policy=dict(type='dqn_command'),
    learner=dict(type='base', import_names=['ding.worker.learner.base_learner']),
    collector=dict(type='zergling', import_names=['ding.worker.collector.zergling_parallel_collector']),
    commander=dict(type='solo', import_names=['ding.worker.coordinator.solo_parallel_commander']),
    comm_learner=dict(type='flask_fs', import_names=['ding.worker.learner.comm.flask_fs_learner']),
    comm_collector=dict(type='flask_fs', import_names=['ding.worker.collector.comm.flask_fs_collector']),
))
system_config = EasyDict(dict(
    coordinator=dict(operator_server=dict(collector_target_num=1), collector_task_timeout=30),
    path_data='./data', path_policy='./policy', communication_mode='auto', learner_gpu_num=0,
    learner0=dict(gpu_num=0), collector0=dict(host='auto', port='auto'),
))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_config_of_the_seeds_kind_trains_with_as_many_collectors_as_it_has_sections(tmp_path: Path) -> None:
    (tmp_path / "di_engine_config.py").write_text(DI_ENGINE_CONFIG)

    run = ding(tmp_path, "-m", "parallel", "-c", "di_engine_config.py", "--env-step", "400")

    assert run.returncode == 0, run.stderr
    assert result_in(tmp_path / "par")["train_iter"] > 0
    assert "1 learner, 1 collectors of 2 envs" in run.stdout
    assert list((tmp_path / "data").iterdir()) == [] and processes_in(tmp_path) == []


# --- rows that are sequences, and envs whose wrappers learn


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_with_normalised_observations_can_be_evaluated_from_its_checkpoint(tmp_path: Path) -> None:
    norm = "env.wrappers=[{'type': 'obs_norm'}, {'type': 'reward_norm'}]"

    run = ding(
        tmp_path, "-m", "parallel", "-c", str(PPO), "-s", "1", "--env-step", "1200", "--exp-name", "par", norm,
        "policy.eval.evaluator.eval_freq=40",
    )  # fmt: skip

    assert run.returncode == 0, run.stderr
    result = result_in(tmp_path / "par")
    assert result["env_step"] >= 1200 and processes_in(tmp_path) == []
    counts = []
    for path in [tmp_path / "par/ckpt/ckpt_best.pth.tar", *tmp_path.glob("par/ckpt/iteration_*.pth.tar")]:
        (lane,) = load_state(path)["env_wrappers"]["lanes"]
        assert [each["type"] for each in lane] == ["RewardNorm", "ObsNorm"]
        counts.append(lane[1]["state"]["count"])
    assert max(counts) >= result["env_step"] - 256 and max(counts) < 2 * result["env_step"]
    best = str(tmp_path / "par/ckpt/ckpt_best.pth.tar")
    said = ding(tmp_path, "-m", "eval", "-c", str(PPO), "-s", "1", "--load-path", best, norm)
    assert said.returncode == 0 and re.search(r"mean return [\d.]+", said.stderr + said.stdout), said.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rows_that_are_sequences_train_in_processes_of_their_own(tmp_path: Path) -> None:
    config = configs(
        "r2d2",
        nstep=3,
        burnin_step=2,
        learn_unroll_len=4,
        learn=dict(update_per_collect=2),
        collect=dict(n_sample=6),
        other=dict(replay_buffer=dict(replay_buffer_size=200)),
    )
    (tmp_path / "sequence_config.py").write_text(f"main_config, create_config = {config!r}")

    run = ding(
        tmp_path, "-m", "parallel", "-c", "sequence_config.py", "-s", "0", "--env-step", "1500", "--exp-name", "par"
    )

    assert run.returncode == 0, run.stderr
    result = result_in(tmp_path / "par")
    # 2 updates for 6 rows of 4 steps.
    assert 0 <= result["env_step"] * 2 // 24 - result["train_iter"] <= 64
    assert result["env_step"] >= 1500 and processes_in(tmp_path) == []


# --- games

GAMES: dict[str, Any] = dict(
    exp_name="games",
    env=dict(collector_env_num=8, evaluator_env_num=4, n_evaluator_episode=8),
    policy=dict(
        model=dict(encoder_hidden_size_list=[4]),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)
GAMES_CREATE: dict[str, Any] = dict(
    env=dict(type="matrix_game", import_names=["dizoo.league_demo.matrix_game"]),
    env_manager=dict(type="game"),
    policy=dict(type="a2c"),
)
LEAGUE = dict(games_per_job=64, naive_sp_player=dict(one_phase_step=5))


@pytest.mark.slow
def test_one_policy_plays_both_sides(in_tmp: Path) -> None:
    found = parallel_pipeline((GAMES, GAMES_CREATE, dict(num_collectors=1)), seed=0, max_env_step=1280)

    assert found.env_step >= 1280 and found.train_iter == found.env_step // 64
    assert set(found.eval_value_raw) <= {-2.0, -1.0, 0.0, 1.0, 2.0}


@pytest.mark.slow
def test_a_league_plays_and_its_snapshots_weights_are_kept(in_tmp: Path) -> None:
    main = deep_merge(GAMES, dict(policy=dict(other=dict(league=LEAGUE))))
    create = deep_merge(GAMES_CREATE, dict(league=dict(type="one_vs_one"), commander=dict(type="one_vs_one")))
    system = dict(num_collectors=2, path_data="data", path_policy="policy")

    parallel_pipeline((main, create, system), seed=0, max_env_step=3200)

    with sqlite3.connect("games/coordinator.sqlite") as db:
        (text,) = db.execute("SELECT value FROM item WHERE kind = 'run'").fetchone()
    db.close()
    commander = json.loads(text)["commander"]
    league, weights = commander["league"], commander["weights"]
    names = [each["player_id"] for each in league["historical"]]
    files = {path.name for path in Path("policy/policy").iterdir()}

    assert len(names) > 2 and list(weights) == names
    assert sum(league["finished_games"].values()) > 1000
    assert league["payoff"]["pairs"], "games against snapshots were counted"
    versions = [each["version"] for each in weights.values()]
    assert versions == sorted(versions) and versions[0] == 0
    assert all(any(f".{version}." in name or str(version) in name for name in files) for version in versions)


_SERVER = """
import sys
from ding_like.entry.parallel_entry import coordinator_app
app = coordinator_app(sys.argv[1], key_file="keys.json", exp_name="run")
versions = {"X-DL-Protocol": sys.argv[2]}
client = app.test_client()
statuses = [client.post("/v1/workers", headers=given, json={}).status_code for given in ({}, versions)]
print(client.get("/v1/hello", headers=versions).status_code, *statuses)
"""


def test_a_server_of_ones_own_is_given_the_coordinator_as_an_application(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys.json")
    command = [sys.executable, "-c", _SERVER, str(CONFIG), str(m.PROTOCOL)]

    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    # Hello, no protocol, no signature; the run prints from a thread of its own.
    assert "200 426 401" in done.stdout.splitlines()
    assert (tmp_path / "run/coordinator.sqlite").is_file()
