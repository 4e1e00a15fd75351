"""Several seeds as one experiment: side by side, resumed as one, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ding_like.config.tree import block
from ding_like.entry.modes import checked_seeds, describe_seeds, parse_seeds
from ding_like.entry.studies import checked_jobs, resume_seeds, run_seeds
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.record import resume_store
from ding_like.report.experiment import read_experiment, read_plan
from ding_like.utils.files import FolderLock, retry
from tests.entry.typed import status_of
from tests.pipeline.test_serial import make_configs
from tests.report.run_folder import write_seeds

pytestmark = pytest.mark.usefixtures("in_tmp")

ROOT = Path(__file__).parents[2]


def write_config(name: str = "my_config.py", *, more: str = "", **resume: Any) -> str:
    main, create = make_configs()
    main["resume"] = dict(resume)
    Path(name).write_text(f"{more}main_config = {block(main)}\ncreate_config = {block(create)}\n")
    return name


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "time" not in k and "per_sec" not in k} for line in lines]


def result_of(folder: str | Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    return result


@pytest.mark.timeout(300)
def test_seeds_are_one_folder_with_curve_and_scores(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ding_like")

    status = status_of(
        "-m", "serial", "-c", write_config(), "-s", "0..1", "-j", "2", "--env-step", "300", "env.stop_value=1e8"
    )

    assert status == 0
    experiment = read_experiment("exp")
    assert [member.seed for member in experiment.ended] == [0, 1]
    for name in ("experiment.json", "scores.json", "scores.md", "curve.png", "log/seed0.txt", "log/seed1.txt"):
        assert (Path("exp") / name).stat().st_size > 0
    for seed in (0, 1):
        result = result_of(f"exp/seed{seed}")
        assert result["env_step"] >= 300 and result["seed"] == seed
        assert result["command"].startswith("ding -m serial -c my_config.py -s ")
        assert "env.stop_value" in Path(f"exp/seed{seed}/config_diff.txt").read_text()
    assert "mean " in caplog.text and "of 2 seeds" in caplog.text and "seed 1 ended: last model returns" in caplog.text
    assert not list(Path().glob("*_seed*")), "no siblings"


FAILING = """
import sys
if "-s" in sys.argv and sys.argv[sys.argv.index("-s") + 1] == "1":
    raise RuntimeError("this seed cannot be")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_seed_that_fails_leaves_the_others_alone_and_is_told_at_the_end(capsys: Any) -> None:
    config = write_config(more=FAILING)

    assert status_of("-m", "serial", "-c", config, "-s", "0..2", "-j", "1", "--env-step", "100") == 1

    err = capsys.readouterr().err
    assert "TrainingError: 1 of 3 seeds failed." in err and "seed 1 ended with status 1; exp/log/seed1.txt ends" in err
    assert "this seed cannot be" in err and "ding --resume exp" in err
    experiment = read_experiment("exp")
    assert [member.seed for member in experiment.ended] == [0, 2] and Path("exp/scores.md").is_file()
    # The named fix: with the cause mended, the one that has not ended begins.
    Path(config).write_text(Path(config).read_text().replace(FAILING, ""))
    before = result_of("exp/seed0")["finish_time"], os.stat("exp/seed0/result.json").st_mtime_ns
    assert status_of("--resume", "exp") == 0
    assert len(read_experiment("exp").ended) == 3
    assert (result_of("exp/seed0")["finish_time"], os.stat("exp/seed0/result.json").st_mtime_ns) == before


def test_faults_of_a_config_are_told_before_anything_starts(capsys: Any) -> None:
    assert (
        status_of("-m", "serial", "-c", write_config(), "-s", "0..2", "policy.nstpe=1", "policy.learn.batchsize=2") == 1
    )
    assert "2 problems" in capsys.readouterr().err

    assert status_of("-m", "serial_onpolicy", "-c", "my_config.py", "-s", "0..2") == 1
    assert "'dqn' is off-policy: run it with `ding -m serial`" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["my_config.py"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-s", "0..x"], "-s 0..x names no seeds"),
        (["-s", "0..1", "-j", "0"], "--jobs is 0"),
        (["-s", "0", "-j", "2"], "-j 2 is of several seeds: -s 0..4 -j 2"),
        (["-j", "2"], "-j 2 is of several seeds"),
        (["-s", "0..1", "--load-path", "nothing.pth.tar"], "nothing.pth.tar"),
    ],
)
def test_what_is_wrong_with_the_options_is_one_message(arguments: list[str], words: str, capsys: Any) -> None:
    assert status_of("-m", "serial", "-c", write_config(), *arguments) == 1

    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err and not Path("exp").exists()


@pytest.mark.parametrize("mode", ["dist", "ray", "seed"])
def test_what_is_of_one_seed_takes_one(mode: str, capsys: Any) -> None:
    more = {"dist": ["-M", "coordinator"], "ray": ["--dry-run"], "seed": ["--dry-run"]}[mode]

    assert status_of("-m", mode, "-c", write_config(), "-s", "0..2", *more) == 1
    assert "3 seeds are given, but" in capsys.readouterr().err


def test_other_modes_run_one_seed_after_another(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    limits: list[int] = []
    monkeypatch.setattr("ding_like.entry.studies.SeedRuns.run", lambda self, signals: limits.append(self._jobs))

    assert (
        status_of("-m", "ray", "-c", write_config(), "-s", "0..1", "--workers", "3", "system.ray.grad.workers=2") == 1
    )
    plan = read_plan(Path("exp"))

    assert limits == [1] and plan is not None
    assert plan.arguments == ("--workers", "3") and plan.overrides == ("system.ray.grad.workers=2",)
    assert status_of("-m", "seed", "-c", "my_config.py", "-s", "0..1", "-j", "2") == 1
    assert "-j 2 is of modes serial and serial_onpolicy" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_config_that_was_changed_meanwhile_is_not_what_later_seeds_run(caplog: pytest.LogCaptureFixture) -> None:
    config = write_config()
    run_seeds(config, [0, 1], 1, max_env_step=100)
    whole = metrics(Path("exp/seed1"))
    Path("exp/seed1").rename("elsewhere")
    text = Path(config).read_text()
    Path(config).write_text(text.replace('"nstep": 3', '"nstep": 1'))
    assert Path(config).read_text() != text

    resume_seeds("exp")

    assert "is not what it was when the experiment began: seed 1 runs exp/total_config.py" in caplog.text
    assert metrics(Path("exp/seed1")) == whole


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_other_limits_let_all_seeds_go_on() -> None:
    config = write_config()
    run_seeds(config, [0, 1], 2, max_env_step=100)
    run_seeds(config, [0], 1, max_env_step=300, exp_name="whole")

    experiment = resume_seeds("exp", max_env_step=300)

    assert [member.result["env_step"] >= 300 for member in experiment.members] == [True, True]
    assert metrics(Path("exp/seed0"))[-1] == metrics(Path("whole/seed0"))[-1]
    plan = read_plan(Path("exp"))
    assert plan is not None and plan.max_env_step == 300 and plan.arguments == ("--env-step", "300")


def test_a_folder_of_seeds_is_resumed_as_one_or_by_its_seeds(capsys: Any) -> None:
    with pytest.raises(ConfigError, match=r"'nope' is no folder of several seeds"):
        resume_seeds("nope")
    assert status_of("--resume", "nope", "-j", "2") == 1
    assert "-j is of experiments of several seeds" in capsys.readouterr().err


def test_an_experiment_that_runs_is_not_resumed_beside_itself(tmp_path: Path, capsys: Any) -> None:
    folder = write_seeds(tmp_path / "exp", {0: 1.0, 1: None})
    write_config()
    assert status_of("-m", "serial", "-c", "my_config.py", "--env-step", "50", "--exp-name", "one") == 0
    for name in ("total_config.py", "formatted_total_config.py"):
        (folder / name).write_text(Path("one", name).read_text())

    with FolderLock(folder):
        assert status_of("--resume", str(folder)) == 1

    assert f"{folder}/ is in use" in capsys.readouterr().err


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ding_like", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def await_points(*folders: str) -> None:
    """Wait until each run has saved a point to go on from."""

    def look() -> None:
        if not all(resume_store(folder).steps() for folder in folders):
            raise LookupError("not all have saved")

    retry(look, LookupError, timeout_s=90.0)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def await_ends(pids: list[int]) -> None:
    def look() -> None:
        if any(Path(f"/proc/{pid}").exists() for pid in pids):
            raise LookupError("still there")

    retry(look, LookupError, timeout_s=100.0)


LONG = ("--env-step", "4000")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two seeds that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_seeds(write_config(save_every_env_steps=200), [0, 1], 2, max_env_step=4000, exp_name="exp")
    return folder / "exp"


def is_equal(exp: Path, whole: Path) -> bool:
    return all(metrics(exp / f"seed{seed}") == metrics(whole / f"seed{seed}") for seed in (0, 1))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_parent_ends_the_seeds_which_go_on_exactly(number: signal.Signals, whole: Path) -> None:
    config = write_config(save_every_env_steps=200)
    with start("-m", "serial", "-c", config, "-s", "0..1", "-j", "2", *LONG) as parent:
        await_points("exp/seed0", "exp/seed1")
        children = children_of(parent.pid)
        parent.send_signal(number)
        said, _ = parent.communicate(timeout=280)

    await_ends(children)
    assert len(children) == 2 and parent.returncode != 0
    if number != signal.SIGKILL:
        assert "go on with  ding --resume exp" in said and "2 seeds save a point and leave" in said
    assert status_of("--resume", "exp", "-j", "2") == 0
    assert is_equal(Path("exp"), whole)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_seed_that_is_killed_is_told_of_and_goes_on_exactly(whole: Path) -> None:
    config = write_config(save_every_env_steps=200)
    with start("-m", "serial", "-c", config, "-s", "0..1", "-j", "1", *LONG) as parent:
        await_points("exp/seed0")
        (child,) = children_of(parent.pid)
        os.kill(child, signal.SIGKILL)
        said, _ = parent.communicate(timeout=200)

    assert parent.returncode == 1 and "1 of 2 seeds failed" in said and "seed 0 was killed by SIGKILL" in said
    assert [member.seed for member in read_experiment("exp").ended] == [1]
    assert status_of("--resume", "exp") == 0
    assert is_equal(Path("exp"), whole)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_seed_that_died_before_it_saved_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ding_like")
    run_seeds(write_config(), [0, 1], 1, max_env_step=100)
    for name in ("result.json", "ckpt"):
        Path(f"exp/seed1/{name}").rename(f"{name}.gone")

    resume_seeds("exp")

    (aside,) = Path("exp").glob("seed1_unfinished_*")
    assert (aside / "metrics.jsonl").is_file() and len(read_experiment("exp").ended) == 2
    assert f"it begins again, and what was there is in {aside}" in caplog.text


def test_seeds_that_failed_all_are_an_error_without_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    from ding_like.study.seeds import Failure

    def fail(self: Any, signals: Any) -> None:
        self.failures.append(Failure(0, "ended with status 1", Path("exp/log/seed0.txt"), ("words",)))

    monkeypatch.setattr("ding_like.entry.studies.SeedRuns.run", fail)

    with pytest.raises(TrainingError, match=r"1 of 1 seeds failed.*\n.*\n    words"):
        run_seeds(make_configs(), [0])
    assert not Path("exp/scores.json").exists()


# --- which seeds `-s` means, and how many run at a time


def test_ranges_lists_and_repeats_are_read() -> None:
    for texts, seeds in [
        (["3"], (3,)),
        (["0..4"], (0, 1, 2, 3, 4)),
        (["7..7"], (7,)),
        (["0,2,5"], (0, 2, 5)),
        (["5, 0..2"], (5, 0, 1, 2)),
        (["0", "1", "10..11"], (0, 1, 10, 11)),
    ]:
        assert parse_seeds(texts) == seeds


def test_what_names_no_seeds_is_one_error() -> None:
    for texts, words in [
        (["x"], "-s x names no seeds; expected a whole number, 0 or more"),
        (["-1"], "-s -1 names no seeds"),
        (["1.5"], "names no seeds"),
        ([""], "names no seeds"),
        (["0,,2"], "-s 0,,2 names no seeds"),
        (["0.."], "names no seeds"),
        (["4..0"], r"empty range: 4 is more than 0. Did you mean 0..4\?"),
        (["0..99999"], "100,000 seeds; at most 10,000"),
        (["0..3,2"], "seed 2 is given 2 times; give each seed once"),
        (["1", "1"], "seed 1 is given 2 times"),
        (["99999999999"], "seed 99999999999 is not from 0 to 2,147,483,647"),
    ]:
        with pytest.raises(ConfigError, match=words):
            parse_seeds(texts)


def test_python_gives_seeds_as_numbers() -> None:
    assert checked_seeds(range(3)) == (0, 1, 2)
    with pytest.raises(ConfigError, match="no seed is given"):
        checked_seeds([])
    with pytest.raises(ConfigError, match="seed -1 is not from 0"):
        checked_seeds([-1])


def test_seeds_are_described_as_they_are_typed() -> None:
    assert [describe_seeds(seeds) for seeds in ((0, 1, 2), (0, 1), (5, 0, 1))] == ["0..2", "0,1", "5,0,1"]


def test_as_many_run_at_a_time_as_the_cores_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))

    assert checked_jobs(None, "serial", 5) == 5
    assert checked_jobs(None, "serial", 20) == 8
    assert checked_jobs(None, "serial_onpolicy", 20, processes=3) == 2
    assert checked_jobs(None, "serial", 20, processes=30) == 1
    assert checked_jobs(16, "serial", 20) == 16, "who asks for more gets more"
    assert checked_jobs(None, "ray", 5) == 1


def test_numbers_of_seeds_at_a_time_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="-j is 0; give how many seeds run at a time, from 1"):
        checked_jobs(0, "serial", 5)
    with pytest.raises(ConfigError, match="-j 2 is of modes serial and serial_onpolicy.*Leave -j out"):
        checked_jobs(2, "ray", 5)
