"""`ding -m ray`, from the command line down."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ding_like
from ding_like.comm.workers.failures import WorkerTracebackError
from ding_like.entry import cli, ray_pipeline, resume_pipeline
from ding_like.entry.ray_entry import RayMode
from ding_like.entry.training import RunArguments, clear_errors
from ding_like.errors import ConfigError, EnvError, TrainingError
from ding_like.pipeline.record import resume_store
from tests.entry.typed import status_of
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"
CONFIG = CARTPOLE / "cartpole_dqn_config.py"


pytestmark = pytest.mark.usefixtures("in_tmp")


def result_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return found


# --- what is wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "-1"], ["system.ray.collect.workers", "is -1; give 0 or more"]),
        (["system.ray.collect.worker=3"], ["unknown key; did you mean 'workers' (default 2)?"]),
        (["system.ray.colect.workers=3"], ["system.ray.colect", "did you mean 'collect'"]),
        (["system.rey.collect.workers=3"], ["system.rey", "not of mode ray, which reads system.ray alone"]),
        (["system.ray.collect.workers=3", "policy.batch=3"], ["policy.batch"]),
        (["system.=3"], ["is not an override"]),
        (["--learners", "2"], ["not of mode ray", "system.ray.grad.workers=N"]),
        (["--address", "nowhere"], ["give host:port of the Ray cluster", "'nowhere'"]),
        (["--address", "ray://127.0.0.1:10001"], ["ray:// (Ray Client) cannot be used"]),
        (["--address", "127.0.0.1:1"], ["nothing answers at 127.0.0.1:1", "RAY_AUTH_TOKEN_PATH"]),
        (["system.ray.collect.resources.num_gpus=8"], ["the workers do not fit", "no node has that"]),
        (["--load-path", "no.pth.tar"], ["no.pth.tar"]),
        (["create.league.type=one_vs_one", "create.env_manager.type=game"], ["policy.other.league"]),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_left(
    arguments: list[str], words: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))

    status = status_of("-m", "ray", "-c", str(CONFIG), *arguments)

    error = capsys.readouterr().err
    assert status == 1 and "Traceback" not in error
    for word in words:
        assert word in error
    assert [path.name for path in tmp_path.iterdir()] == ["token"], "no folder of a run that never began"


def test_the_options_of_mode_ray_are_refused_elsewhere(capsys: Any) -> None:
    for arguments, words in [
        (["serial", "--workers", "2"], "--workers is of mode ray, not of mode serial"),
        (["parallel", "--address", "127.0.0.1:6379"], "--address is of modes ray and seed, not of mode parallel"),
        (["eval", "--dry-run"], "seed and ranks, not of mode eval"),
        (["ranks", "--host", "127.0.0.1"], "--host is of modes seed and dist, not of mode ranks"),
        (["parallel", "--load-path", "FILE"], "--load-path is of modes serial,"),
    ]:
        assert status_of("-m", arguments[0], "-c", str(CONFIG), *arguments[1:]) == 1

        assert words in capsys.readouterr().err


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    assert status_of("-m", "ray", "-c", str(CONFIG)) == 1

    assert 'pip install "ding-like[ray]"' in capsys.readouterr().err


# --- dry runs


def test_a_dry_run_says_what_would_run_where_and_starts_nothing(tmp_path: Path, capsys: Any) -> None:
    status = status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "--workers", "3", "system.ray.grad.workers=2")

    said = capsys.readouterr().out
    assert status == 0 and not list(tmp_path.iterdir())
    assert "dqn on CartPole-v1, seed 0, as cartpole_dqn_seed0/" in said
    assert "3 workers for each gradient worker, of 8 envs each, asynchronous" in said
    assert "gradients   2 workers, synchronous, each with a replay buffer of its own; applied in this process" in said
    assert [line.split()[:3] for line in said.splitlines() if line.startswith(("collector", "gradient w"))] == [
        ["collector", "6", "1"],
        ["gradient", "worker", "2"],
    ]
    assert said.splitlines()[-1] == "fits"


def test_a_dry_run_of_what_does_not_fit_ends_with_status_1(capsys: Any) -> None:
    assert status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "system.ray.collect.resources.num_gpus=9") == 1

    said = capsys.readouterr().out
    assert "does not fit: 2 of 2 collectors (1 CPU, 9 GPU, 0.176 GiB memory each): no node has that" in said
    assert "Lower the number of workers (--workers" in said


def test_a_run_without_workers_needs_no_cluster(capsys: Any) -> None:
    assert status_of("-m", "ray", "-c", str(CONFIG), "--dry-run", "--workers", "0") == 0

    assert "no cluster: this process does it all" in capsys.readouterr().out


# --- runs, on the cluster of the tests


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_serial_config_trains_with_workers_and_leaves_the_files_of_a_serial_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ding_like")

    ray_pipeline(CONFIG, seed=3, max_env_step=1200, exp_name="exp")

    result = result_of("exp")
    assert result["env_step"] >= 1200 and result["train_iter"] > 0
    assert Path("exp/curve.png").read_bytes().startswith(b"\x89PNG")
    assert Path("exp/agent.gif").read_bytes().startswith(b"GIF8")
    assert Path("exp/ckpt/ckpt_best.pth.tar").is_file()
    assert list(Path("exp").rglob("events.out.tfevents.*")), "TensorBoard's file"
    assert Path("exp/metrics.jsonl").stat().st_size
    assert "collect     2 workers, of 8 envs each, asynchronous" in caplog.text
    assert "ding -m ray -c exp/total_config.py -s 1 -s 2" in caplog.text


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        (CARTPOLE / "cartpole_ppo_config.py", []),
        slow(CARTPOLE / "cartpole_impala_config.py", []),
        slow(CARTPOLE / "cartpole_r2d2_config.py", []),
        slow(CARTPOLE / "cartpole_dqn_per_config.py", ["system.ray.collect.comm=sync"]),
        slow(CARTPOLE / "cartpole_dqn_config.py", ["system.ray.grad.workers=2"]),
        slow(CARTPOLE / "cartpole_ppo_ray_config.py", []),
        slow(ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py", ["policy.random_collect_size=200"]),
        slow(ROOT / "dizoo/classic_control/pendulum/config/pendulum_sac_config.py", ["policy.random_collect_size=200"]),
    ],
    ids=lambda value: value.stem.removesuffix("_config") if isinstance(value, Path) else "",
)
def test_any_serial_config_runs_as_it_is(config: Path, overrides: list[str]) -> None:
    few = ["env.n_evaluator_episode=10", "env.evaluator_env_num=5"]

    ray_pipeline(config, max_env_step=1500, exp_name="exp", overrides=[*overrides, *few])

    result = result_of("exp")
    assert result["env_step"] >= 1500 and result["train_iter"] > 0


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_its_total_config_runs_again() -> None:
    overrides = ["system.ray.collect.comm=sync", "policy.learn.batch_size=32", "system.ray.weights.interval=2"]
    ray_pipeline(CONFIG, seed=3, max_env_step=400, exp_name="exp", overrides=overrides, workers=3)

    for name in ("total_config.py", "formatted_total_config.py"):
        again = RayMode.of(f"exp/{name}", RunArguments("ray", 3)).plan

        collect = again.settings.collect
        assert (collect.workers, collect.comm, again.settings.weights.interval) == (3, "sync", 2)
        assert (again.cfg.policy.learn.batch_size, again.cfg.seed) == (32, 3)
        assert "ding -m ray -c" in Path("exp", name).read_text().splitlines()[0]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_its_total_config_runs_again_without_collectors_unless_it_says_how_they_collect() -> None:
    arguments = RunArguments("ray", 0)
    for name, given in (("exp", []), ("told", ["system.ray.collect.comm=async"])):
        ray_pipeline(CONFIG, max_env_step=100, exp_name=name, overrides=given)

    assert RayMode.of("exp/total_config.py", arguments).plan.settings.collect.comm == "async"
    assert RayMode.of("exp/total_config.py", arguments, workers=0).plan.settings.collect.comm == "sync"
    assert RayMode.of("told/total_config.py", arguments, workers=0).plan.settings.collect.comm == "async"


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_goes_on_with_other_workers_from_exact_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ding_like")
    ray_pipeline(CONFIG, max_env_step=800, exp_name="exp")
    before = result_of("exp")

    monkeyed = resume_pipeline("exp", max_env_step=1600, workers=3)

    after = result_of("exp")
    assert monkeyed is not None and after["env_step"] >= 1600 > before["env_step"]
    assert f"resumed exp at env step {before['env_step']:,}, iteration {before['train_iter']:,}" in caplog.text
    assert "collectors: 3, where the run had 2" in caplog.text
    assert arguments_of("exp").system["ray"]["collect"]["workers"] == 3  # type: ignore[index]


def arguments_of(folder: str) -> RunArguments:
    """Return what the newest point of a run says that it was started with."""
    return RunArguments(**resume_store(folder).newest_meta()["arguments"])


def test_a_serial_run_has_no_workers_to_go_on_with() -> None:
    cli.main(["-m", "serial", "-c", str(CONFIG), "--env-step", "300", "--exp-name", "exp"])

    with pytest.raises(ConfigError, match="exp is a run of mode serial: --workers and --address are of mode ray"):
        resume_pipeline("exp", workers=3)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_with_a_point_to_go_on_from(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ding_like")

    def interrupt() -> None:
        metrics = Path("exp/metrics.jsonl").absolute()
        wait_until(lambda: metrics.is_file() and '"collector"' in metrics.read_text(), "a report of the collectors")
        os.kill(os.getpid(), number)

    user = threading.Thread(target=interrupt)
    user.start()
    with pytest.raises((SystemExit, KeyboardInterrupt)) as left:
        ray_pipeline(CONFIG, exp_name="exp", overrides=["env.stop_value=1000"])
    user.join()

    if number == signal.SIGTERM:
        assert left.value.code == 128 + number  # type: ignore[union-attr]
    assert "saved, go on with  ding --resume exp" in caplog.text
    assert arguments_of("exp").mode == "ray" and not Path("exp/result.json").exists()


# --- what a worker raises


TRACE = """Traceback (most recent call last):
  File "/opt/lib/site-packages/ray/worker.py", line 9, in run
  File "{package}/worker/collector/loop.py", line 12, in act
  File "/home/me/my_env.py", line 34, in step
  File "{package}/envs/manager/base.py", line 56, in step
RuntimeError: the motor is on fire
"""


@pytest.mark.parametrize("error", [EnvError("the motor is on fire"), RuntimeError("the motor is on fire")])
def test_an_error_of_a_worker_names_the_users_own_line(error: Exception) -> None:
    trace = TRACE.format(package=Path(ding_like.__file__).parent)
    error.__cause__ = WorkerTracebackError(f"in worker 'collector1':\n{trace}")

    with pytest.raises((EnvError, TrainingError)) as raised:
        with clear_errors():
            raise error

    assert isinstance(raised.value, EnvError if isinstance(error, EnvError) else TrainingError)
    text = str(raised.value)
    assert "the motor is on fire" in text
    assert text.endswith("raised in worker 'collector1', at /home/me/my_env.py, line 34, in step")


def test_an_error_of_the_driver_stays_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"), clear_errors():
        raise KeyError("mine")
