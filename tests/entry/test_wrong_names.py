"""Wrong names on the command line are answered with the fault and what to give instead."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ding_like.entry.cli import main
from ding_like.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_tmp")
CONFIG = str(Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-m serial -e carpole -p dqn", "did you mean -e cartpole -p dqn"),
        ("-m serial -c nofile.py", "a shipped one: -e cartpole -p dqn"),
        ("--resume nodir", "There are: myexp. Give the exp_name of a run"),
        ("enjoy nodir", "There are: myexp. Give the exp_name of a run"),
        ("enjoy noconfig", "it has no total_config.py. There are: myexp. Give"),
        ("plot empty", "its run wrote nothing. There are: myexp, noconfig. Give the exp_name of a run"),
        ("report empty", "its run wrote nothing. There are: myexp, noconfig. Give the exp_name of a run"),
        (f"-m serial -c {CONFIG} -s 1 seed=3", "seed would have no effect, as the run's seed is given as 1"),
        ("-m serial -e cartpole -e pendulum -p dqn", "-e / --env is given 2 times; give it once"),
        ("enjoy myexp -o x.mp4", "a video is a .gif file, not 'x.mp4': give -o x.gif"),
        ("plot myexp/metrics.jsonl", "is a file: give the folder of its run, myexp"),
        ("compare nomatch*", "no folder matches 'nomatch*'. There are: myexp, noconfig."),
        ("tune --resume myexp", "It is a run, which goes on with ding --resume myexp"),
        ("serve myexp --reload-s nan", "reload_s is nan, expected seconds"),
        ("-m serial -e CartPole-v1 -p DQN", "did you mean -e cartpole -p dqn?"),
        ("-m serial -e nothing -p qmix", "there are: ptz_simple_spread_qmix, simple_spread_qmix, two_step_qmix"),
        (f"-m serial -c {CONFIG} -e cartpole -p c51", "-c FILE and -e ENV -p POLICY both name a config; give one"),
        (f"--resume myexp -c {CONFIG}", "--resume takes the run's own config"),
        *(
            (f"-m serial -e cartpole -p dqn policy.nstep{spaced}3", "Write policy.nstep=3.")
            for spaced in (" = ", " =", "= ", " ")
        ),
        ("-m serial -e cartpole -p dqn policy.other.eps.start=0.05 policy.other.eps.end=1.0", "Swap start and end"),
        ("-m serial -e cartpole -p dqn policy.exploration_config=1", "did you mean 'policy.other.eps'"),
        ("explain gamma", "Did you mean policy.discount_factor?"),
        (f"-m serial -c {CONFIG} --replay-path films", "--replay-path is of mode eval, not of mode serial"),
        (f"-m eval -c {CONFIG} --load-path x --replay-path myexp/metrics.jsonl", "is a file: give a folder"),
        ("serve myexp/metrics.jsonl", "is a file: give the folder of its run (its exp_name), and the file by"),
        (f"-m parallel -c {CONFIG} --workers 4", "Put system_config = dict(num_collectors=N) into the config file"),
        (f"train -c {CONFIG}", "To train: `ding -m serial -e cartpole -p dqn`"),
        (f"serial -c {CONFIG}", "For mode serial write -m serial."),
        (f"-m serial -c {CONFIG} policy.learn.learning_rate 3e-4", "Write policy.learn.learning_rate=3e-4."),
        (f"-m serial -c {CONFIG} --exp-name /dev/null/exp", "give a folder where you may write, with --exp-name"),
    ],
)
def test_the_answer_names_the_fix(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("myexp", "noconfig", "empty"):
        Path(folder).mkdir()
    for file in ("myexp/metrics.jsonl", "myexp/total_config.py", "noconfig/metrics.jsonl"):
        Path(file).touch()

    with pytest.raises(SystemExit) as stop:
        main(line.split())

    assert stop.value.code == 1 and words in " ".join(capsys.readouterr().err.split())


EXITS = """
import gymnasium


class Exits(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        exit()


main_config = dict(exp_name="exp", env=dict(collector_env_num=1, evaluator_env_num=1))
create_config = dict(env=dict(type="exits:Exits"), policy=dict(type="dqn"))
"""


def test_an_env_that_calls_exit_ends_no_run_well(capsys: pytest.CaptureFixture[str]) -> None:
    Path("exits.py").write_text(EXITS)

    with pytest.raises(SystemExit) as stop:
        main(["-m", "serial", "-c", "exits.py"])

    assert stop.value.code == 1 and "exits.py:10 calls exit()" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--total-timesteps 1000", "No such option '--total-timesteps'. Give --env-step N."),
        ("--n_envs=8", "Give env.collector_env_num=N."),
        ("--algo dqn", "Give -p POLICY."),
        ("--policy.learn.learning_rate=1", "Give it without dashes: policy.learn.learning_rate=VALUE."),
        ("--lr 3e-4", "Give policy.learn.learning_rate=X."),
        ("--envstep 100", "(Did you mean one of: '--env', '--env-step'?)"),
        ("--train-iter 2.5", "2.5 is not a whole number, such as 10000 or 1e4"),
        ("--env-step 10k", "expected a whole number, such as 10000 or 1e4"),
    ],
)
def test_an_option_that_click_refuses_names_the_one_here(
    option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(f"-m serial -e cartpole -p dqn {option}".split())

    assert stop.value.code == 2 and words in capsys.readouterr().err


def test_a_script_that_a_child_imports_is_told_of_the_guard() -> None:
    """As multiprocessing imports the main module of the parent in a spawned child."""
    Path("unguarded.py").write_text("import ding_like\n\nding_like.train('dqn', 'CartPole-v1', env_step=300)\n")

    with pytest.raises(ConfigError, match="line 3 of unguarded.py .* under  if __name__ == '__main__':"):
        runpy.run_path("unguarded.py", run_name="__mp_main__")


@pytest.mark.parametrize("mode", ["serial", "parallel", "seed", "ray"])
def test_returns_of_more_steps_than_the_run_are_refused(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", mode, "-e", "cartpole", "-p", "dqn", "--env-step", "1000", "policy.nstep=5000"]

    with pytest.raises(SystemExit):
        main(words)

    assert "policy.nstep is 5,000, more than the 1,000 env steps of the run" in capsys.readouterr().err
