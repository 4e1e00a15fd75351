"""`ding collect EXP`: whole episodes of a trained agent, step by step, in a file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ding_like
from ding_like.config import deep_merge
from ding_like.data.data_files import read_data
from ding_like.data.demonstrations import Demonstrations
from ding_like.entry import collect_demonstrations, collect_episodic_demo_data, serial_pipeline
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError
from tests.entry.test_stages import CREATE, DQN

pytestmark = pytest.mark.usefixtures("no_pictures")

CHECKPOINT = "run/ckpt/ckpt_best.pth.tar"


@pytest.fixture(autouse=True)
def _in_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the run that plays, and return its folder."""
    folder = tmp_path_factory.mktemp("collect") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
        serial_pipeline((DQN, CREATE), max_env_step=60, exp_name=str(folder))
    return folder


def test_the_file_has_the_steps_that_the_agent_took() -> None:
    ding(["collect", "run", "--episodes", "5"])

    found = Demonstrations.load("run/expert_data.safetensors")
    assert found.num_episodes == 5
    columns = found.columns
    agent = ding_like.load("run")
    assert columns["action"].tolist() == agent.act(columns["obs"]).tolist()
    for episode in range(5):
        mine = columns["episode_id"] == episode
        steps = int(mine.sum())
        assert columns["step"][mine].tolist() == list(range(steps))
        assert np.array_equal(columns["next_obs"][mine][:-1], columns["obs"][mine][1:])
        ended = columns["terminated"][mine] | columns["truncated"][mine]
        assert ended.tolist() == [False] * (steps - 1) + [True]
        assert found.returns[episode] == steps  # CartPole's reward is 1
    assert not columns["lane"].any()


def test_the_file_records_where_it_is_from() -> None:
    collect_demonstrations("run", num_episodes=3, out="a.safetensors", seed=7, info={"purpose": "a test"})

    info = Demonstrations.load("a.safetensors").info
    assert info["checkpoint"] == CHECKPOINT
    assert info["checkpoint_sha256"] == hashlib.sha256(Path(CHECKPOINT).read_bytes()).hexdigest()
    assert len(info["config_sha256"]) == 64
    assert (info["env_id"], info["policy"], info["seed"], info["purpose"]) == ("CartPole-v1", "dqn", 7, "a test")
    assert (info["wrappers"], info["wrapper_statistics"]) == ([], [])
    assert len(info["returns"]) == 3
    assert "torch" in info["versions"]


def test_equal_seeds_play_equal_episodes_and_each_env_plays_its_share() -> None:
    given: dict[str, Any] = {"num_episodes": 4, "out": "a.safetensors"}
    first, again, other = (collect_demonstrations("run", seed=seed, **given).columns for seed in (1, 1, 2))

    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["obs"][:5], other["obs"][:5])
    assert collect_demonstrations("run", num_episodes=1, out="a.safetensors").num_episodes == 1  # in two envs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "'nope' is not an experiment folder"),
        (["run", "-n", "0"], "'0' is not a whole number from 1"),
        (
            ["run", "--out", "demos.pkl"],
            ".hdf5 or minari:ID, not 'demos.pkl': give demos.safetensors",
        ),
        (["run", "--checkpoint", "worst"], "there is no checkpoint 'worst'"),
        (["run", "--seed", "-1"], "'-1' is not a whole number from 0"),
    ],
)
def test_what_is_wrong_is_one_message(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ding(["collect", *arguments])

    assert words in capsys.readouterr().err


def test_out_may_be_a_folder_and_checkpoints_are_those_of_the_run(tmp_path: Path) -> None:
    named = min(Path("run/ckpt").glob("iteration_*.pth.tar"))

    ding(["collect", "run", "-n", "2", "--out", str(tmp_path), "--ckpt", named.name])

    assert Demonstrations.load(tmp_path / "expert_data.safetensors").info["checkpoint"] == str(named)
    inside = collect_demonstrations(CHECKPOINT, num_episodes=2, out=tmp_path)
    assert inside.info["checkpoint"] == CHECKPOINT


@pytest.mark.parametrize("out", ["demos.hdf5", "minari:cartpole/expert-v0"])
def test_out_may_be_of_another_form(out: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))

    ding(["collect", str(run), "--episodes", "3", "--out", out])

    found = read_data(out)
    expected = collect_demonstrations(str(run), num_episodes=3, out="same.safetensors")
    assert all(np.array_equal(found.columns[name], expected.columns[name]) for name in found.columns)
    assert (found.num_episodes, found.info["env_id"]) == (3, "CartPole-v1")


def test_a_config_plays_with_the_weights_of_a_checkpoint(tmp_path: Path) -> None:
    of_config = collect_demonstrations(
        (DQN, CREATE), num_episodes=2, out=tmp_path / "a.safetensors", checkpoint=CHECKPOINT, seed=3
    )
    of_run = collect_demonstrations("run", num_episodes=2, out=tmp_path / "b.safetensors", seed=3)

    assert np.array_equal(of_config.columns["obs"], of_run.columns["obs"])
    with pytest.raises(ConfigError, match="a config names no weights: give the folder of its run"):
        collect_demonstrations((DQN, CREATE), out=tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="there is no run's folder to write to: give out="):
        collect_demonstrations((DQN, CREATE), checkpoint=CHECKPOINT)


def test_observations_are_those_that_the_policy_saw(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exp_name = str(tmp_path / "normed")
    serial_pipeline(
        (deep_merge(DQN, {"env": {"wrappers": [{"type": "obs_norm"}]}}), CREATE),
        0,
        None,
        None,
        20,
        60,
        exp_name=exp_name,
    )

    found = collect_demonstrations(exp_name, num_episodes=4)
    plain = collect_demonstrations("run", num_episodes=4, out=tmp_path / "plain.safetensors")

    assert found.info["wrappers"] == [{"type": "obs_norm"}]
    assert found.info["wrapper_statistics"] == ["ObsNorm"]
    assert "normalised by what ObsNorm of the expert's run learned" in caplog.text
    # CartPole begins within 0.05 of zero; by the deviations of its episodes that is several times as much.
    first = found.columns["step"] == 0
    assert (
        np.abs(found.columns["obs"][first]).max() > 2 * np.abs(plain.columns["obs"][plain.columns["step"] == 0]).max()
    )
    # The statistics stand still while the agent plays: the same observation is seen alike at any time.
    assert np.array_equal(found.columns["next_obs"][:-1][~first[1:]], found.columns["obs"][1:][~first[1:]])


def test_di_engines_function_writes_whole_episodes(tmp_path: Path) -> None:
    path = tmp_path / "expert"

    collect_episodic_demo_data((DQN, CREATE), 0, 3, path, state_dict_path=CHECKPOINT)

    assert Demonstrations.load(path).num_episodes == 3
    with pytest.raises(ConfigError, match="collect_episodic_demo_data got no weights; give state_dict_path="):
        collect_episodic_demo_data((DQN, CREATE), 0, 3, path)
    with pytest.raises(ConfigError, match="collect_count is 0"):
        collect_episodic_demo_data((DQN, CREATE), 0, 0, path, state_dict_path=CHECKPOINT)


def test_games_of_several_players_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.entry.demonstrations.is_game", lambda cfg: True)

    with pytest.raises(ConfigError, match="demonstrations are of one player"):
        collect_demonstrations("run", out=tmp_path)
