import shutil

import pytest
from click.testing import CliRunner
from PIL import Image

from ding_like.entry import serial_pipeline
from ding_like.entry.results import enjoy
from ding_like.entry.results import enjoy_command as command
from ding_like.errors import CheckpointError, ConfigError
from ding_like.report.experiment import read_run
from tests.agent.films import Lamp


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Return the folder of a run of a few updates."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("runs")
        monkeypatch.chdir(folder)
        main = dict(
            exp_name="exp",
            env=dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2),
            policy=dict(
                model=dict(encoder_hidden_size_list=[16, 16]),
                random_collect_size=16,
                learn=dict(batch_size=16),
                collect=dict(n_sample=8),
            ),
        )
        create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
        serial_pipeline((main, create), seed=0, max_train_iter=2)
        return folder / "exp"


def num_frames(path) -> int:
    with Image.open(path) as image:
        return image.n_frames


def test_best_checkpoint_is_played_and_filmed(experiment):
    (experiment / "agent.gif").unlink(missing_ok=True)

    path, returns = enjoy(experiment)

    assert path == experiment / "agent.gif"
    assert len(returns) == 1 and num_frames(path) > 1


def test_command_plays_several_episodes_and_prints_returns_and_path(experiment, tmp_path):
    out = tmp_path / "new" / "a.gif"

    result = CliRunner().invoke(command, [str(experiment), "--ckpt", "last", "-n", "3", "--out", str(out)])

    first, second = result.output.splitlines()
    words = first.split()
    assert words[0] == "returns" and words[4] == "mean" and second == str(out)
    assert float(words[5]) == pytest.approx(sum(map(float, words[1:4])) / 3, rel=1e-3)
    assert out.is_file()


def test_command_says_which_episode_it_shows(experiment, tmp_path):
    result = CliRunner().invoke(command, [str(experiment), "--out", str(tmp_path / "a.gif")])

    words = result.output.split()
    assert words[0] == "returns" and result.output.splitlines()[0].split(maxsplit=2)[2].startswith("the median of 10")
    assert float(words[8]) <= float(words[1]) <= float(words[10])


def test_equal_seeds_play_equally(experiment, tmp_path):
    first, second = (enjoy(experiment, seed=5, num_episodes=2, out=tmp_path / "a.gif").returns for _ in range(2))

    assert first == second


def test_another_checkpoint_gets_a_film_of_its_own(experiment):
    path, _ = enjoy(experiment, "last")

    assert path == experiment / "agent_iteration_3.gif"


def test_env_of_ones_own_is_given_again(experiment, tmp_path):
    class FourLamps(Lamp):
        observation_space = Lamp.observation_space.__class__(-1, 1, (4,))

        def step(self, action):
            return (self.observation_space.sample(), *super().step(action)[1:])

        def reset(self, **kwargs):
            super().reset(**kwargs)
            return self.observation_space.sample(), {}

    setting = (lambda cfg: FourLamps(cfg.render_mode), [{}], [{}])

    assert enjoy(experiment, env_setting=setting, out=tmp_path / "a.gif").returns == [5.0]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("nope",), ConfigError, "'nope' is not an experiment folder"),
        (
            ("EXP", "nope.pth.tar"),
            CheckpointError,
            "no checkpoint 'nope.pth.tar'; which is 'best', 'last'",
        ),
    ],
)
def test_what_is_missing_is_one_clear_error(experiment, arguments, error, words):
    folder, *ckpt = (str(experiment) if argument == "EXP" else argument for argument in arguments)

    with pytest.raises(error, match=words):
        enjoy(folder, *ckpt)


def test_no_episodes_is_a_config_error(experiment):
    with pytest.raises(ConfigError, match="num_episodes is 0"):
        enjoy(experiment, num_episodes=0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("open('ran', 'w')\n", "not as a run saves it .*is code"),
        ("main_config['env'] = dict(type='my_absent_env:Env')\n", "not as a run saves it .*is code"),
        ("main_config = 3\n", "not as a run saves it .*are dicts"),
    ],
)
def test_what_a_folder_holds_is_not_run(experiment, tmp_path, monkeypatch, code, error):
    folder = tmp_path / "exp"
    shutil.copytree(experiment, folder)
    config = folder / "total_config.py"
    config.write_text(config.read_text() + code)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=error):
        enjoy(folder)
    with pytest.raises(ConfigError, match=error):
        read_run(folder)

    assert not (tmp_path / "ran").exists()


def test_own_envs_of_a_folder_must_be_allowed(experiment, tmp_path, monkeypatch):
    folder = tmp_path / "exp"
    shutil.copytree(experiment, folder)
    config = folder / "total_config.py"
    config.write_text(config.read_text().replace('"CartPole-v1"', '"my_enjoyed_envs:CartPole-v1"'))
    (tmp_path / "my_enjoyed_envs.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigError, match="not imported here: my_enjoyed_envs(.|\n)*--import my_enjoyed_envs"):
        enjoy(folder)

    assert not (tmp_path / "ran").exists()
    enjoy(folder, num_episodes=1, import_names=["my_enjoyed_envs"])
    assert (tmp_path / "ran").exists()
