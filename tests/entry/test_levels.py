"""`ding collect --levels`: data sets of several levels of skill, from a finished run or a config."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import deep_merge
from ding_like.data.data_files import read_data
from ding_like.entry import collect_levels, serial_pipeline
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError
from ding_like.pipeline.record import resume_store
from ding_like.utils.checkpoint import load_state
from tests.entry.test_stages import CREATE, DQN
from tests.entry.typed import status_of

pytestmark = pytest.mark.usefixtures("no_pictures")

STEPS = 120
FAST = {"learn": {"learner": {"hook": {"save_ckpt_after_iter": 20}}}, "eval": {"evaluator": {"eval_freq": 20}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the run that plays, and return its folder."""
    folder = tmp_path_factory.mktemp("levels") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
        serial_pipeline((deep_merge(DQN, {"policy": FAST}), CREATE), max_env_step=400, exp_name=str(folder))
    return folder


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def collect(run: Path, *levels: str, **given: Any) -> Any:
    return collect_levels(run, levels, **{"num_steps": STEPS, "out": "data", **given})


def test_each_level_is_a_file_of_so_many_steps_that_is_described(run: Path) -> None:
    names = "random,medium,medium-replay,medium-expert,expert"
    ding(["collect", str(run), "--levels", names, "--steps", str(STEPS), "--out", "data"])

    described = json.loads(Path("data/levels.json").read_text())
    assert list(described) == names.split(",")
    for level, info in described.items():
        data = read_data(f"data/{level}.safetensors")
        assert info["sha256"] == hashlib.sha256(Path(data.source).read_bytes()).hexdigest()
        assert (data.info["env_id"], data.info["level"], data.info["seed"]) == ("CartPole-v1", level, 0)
        assert data.info["reference"]["episodes"] >= 20 and data.info["reference"]["random"] > 8
        returns = data.info["returns"]
        assert (returns["episodes"], returns["mean"]) == (data.num_episodes, pytest.approx(data.returns.mean()))
        assert info["steps"] == len(data)
        ended = data.columns["terminated"] | data.columns["truncated"]
        assert np.array_equal(np.flatnonzero(ended), data.ends)
        assert level == "medium-replay" or len(data) == STEPS
        assert np.array_equal(data.columns["next_obs"][:-1][~ended[:-1]], data.columns["obs"][1:][~ended[:-1]])
    best = run / "ckpt/ckpt_best.pth.tar"
    assert described["expert"]["checkpoint"] == {
        "file": best.name,
        "sha256": hashlib.sha256(best.read_bytes()).hexdigest(),
    }
    assert described["medium"]["checkpoint"]["file"].startswith("iteration_")


def test_medium_expert_is_half_of_each(run: Path) -> None:
    made = collect(run, "medium", "expert", "medium-expert")

    both, half = made["medium-expert"].columns, STEPS // 2
    for name in ("obs", "action", "next_obs", "reward", "terminated"):
        assert np.array_equal(both[name][:half], made["medium"].columns[name][:half])
        assert np.array_equal(both[name][half:], made["expert"].columns[name][:half])
    assert both["terminated"][half - 1] or both["truncated"][half - 1]


def test_medium_replay_is_what_the_run_had_collected_until_then(run: Path) -> None:
    made = collect(run, "medium-replay", num_steps=10_000)["medium-replay"]

    rows = load_state(run / f"ckpt/resume/{resume_store(str(run)).steps()[0]}/buffer.pt")["data"]
    medium = load_state(run / "ckpt" / made.info["checkpoint"]["file"])
    number = medium["last_step"]
    assert len(made) == made.info["collected_steps"] == number
    expected = {(int(rows["episode_id"][at]), int(rows["step"][at])): rows["obs"][at].tolist() for at in range(number)}
    found = zip(made.columns["episode_id"].tolist(), made.columns["step"].tolist(), strict=True)
    assert {key: made.columns["obs"][at].tolist() for at, key in enumerate(found)} == expected
    last = collect(run, "medium-replay", num_steps=5, out="last")["medium-replay"]
    assert sorted(last.columns["obs"].tolist()) == sorted(rows["obs"][number - 5 : number].tolist())


def test_medium_is_the_checkpoint_nearest_to_a_third_of_the_way(run: Path) -> None:
    made = collect(run, "medium")["medium"]

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    value = {line["env_step"]: line["reward_mean"] for line in lines if line["source"] == "evaluator"}
    reference = made.info["reference"]
    target = reference["random"] + (reference["expert"] - reference["random"]) / 3

    def distance(file: Path) -> float:
        step = load_state(file)["last_step"]
        return abs(value[min(value, key=lambda each: abs(each - step))] - target)

    files = list((run / "ckpt").glob("iteration_*.pth.tar"))
    assert distance(run / "ckpt" / made.info["checkpoint"]["file"]) == min(map(distance, files))


def test_equal_seeds_play_equal_steps_and_levels_do_not_depend_on_each_other(run: Path) -> None:
    first = collect(run, "random", "expert", seed=3, out="a")
    again = collect(run, "expert", seed=3, out="b")
    other = collect(run, "expert", seed=4, out="c")

    assert np.array_equal(first["expert"].columns["obs"], again["expert"].columns["obs"])
    assert not np.array_equal(first["expert"].columns["obs"], other["expert"].columns["obs"])


def test_levels_of_another_call_stay_described(run: Path) -> None:
    collect(run, "random")
    collect(run, "expert")

    assert list(json.loads(Path("data/levels.json").read_text())) == ["random", "expert"]


def test_random_actions_are_even(run: Path) -> None:
    action = collect(run, "random", num_steps=2000)["random"].columns["action"]

    assert 0.45 < action.mean() < 0.55


def test_a_config_is_trained_first_with_checkpoints_at_evaluations(run: Path) -> None:
    main = deep_merge(DQN, {"policy": {"eval": {"evaluator": {"eval_freq": 20}}}})
    Path("dqn.py").write_text(f"main_config = {main!r}\ncreate_config = {CREATE!r}\n")

    arguments = ["collect", "-c", "dqn.py", "--levels", "random,medium", "--steps", "60", "--out", "data"]
    assert status_of(*arguments, "--env-step", "200") == 0

    saved = {path.name for path in Path("data/run/ckpt").glob("iteration_*.pth.tar")}
    assert {"iteration_20.pth.tar", "iteration_40.pth.tar"} <= saved
    assert len(read_data("data/medium.safetensors")) == 60
    assert status_of(*arguments, "--env-step", "200") == 1  # a run is there


def spoilt(run: Path, change: Any) -> Path:
    shutil.copytree(run, "spoilt")
    change(Path("spoilt"))
    return Path("spoilt")


def test_a_run_without_its_buffer_or_checkpoints_is_one_error(run: Path) -> None:
    without = spoilt(run, lambda folder: shutil.rmtree(folder / "ckpt/resume"))
    with pytest.raises(ConfigError, match="has no replay buffer of steps saved, .*or leave medium-replay out"):
        collect(without, "medium-replay")
    for file in list(Path("spoilt/ckpt").glob("iteration_*"))[1:]:
        file.unlink()
    with pytest.raises(Exception, match="has 1 checkpoints iteration_.*save_ckpt_after_iter"):
        collect(without, "medium")


def test_a_buffer_that_was_overwritten_is_one_error() -> None:
    small = deep_merge(DQN, {"policy": {**FAST, "other": {"replay_buffer": {"replay_buffer_size": 100}}}})
    serial_pipeline((small, CREATE), max_env_step=200, exp_name="small")

    with pytest.raises(ConfigError, match=r"the last 100 of 2\d\d steps.*replay_buffer_size=2\d\d"):
        collect(Path("small"), "medium-replay")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--levels", "novice", "--steps", "9", "--out", "data"], "--levels has ['novice']; there are random, medium,"),
        (["--levels", "expert", "--out", "data"], "--levels needs --steps N, --out FOLDER, and either EXP"),
        (["--levels", "expert", "--steps", "9", "--out", "data", "-n", "3"], "leave --episodes and --ckpt out"),
        (["--levels", "expert", "--steps", "9", "--out", "data", "--env-step", "9"], "this run has been trained"),
        (["--steps", "9"], "--steps goes with --levels"),
    ],
)
def test_what_is_wrong_is_one_message(
    run: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        ding(["collect", str(run), *arguments])

    assert words in capsys.readouterr().err
