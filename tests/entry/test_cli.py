from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.comm.keys import client_file, load_keys, load_seed_keys
from ding_like.config import deep_merge, read_config
from ding_like.entry import cli, serial_entry, serial_pipeline
from ding_like.entry.cli import main
from ding_like.entry.commands import check_env_command as command
from ding_like.entry.commands import env_factory
from ding_like.entry.serial_entry import joined, number_of_learners
from ding_like.entry.training import Plan, RunArguments
from ding_like.errors import ConfigError, EnvError, RegistryError
from tests.entry.typed import status_of as run
from tests.pipeline.learners.test_shares import compiled
from tests.report.run_folder import RESULT, training_and_evaluation, write_run

pytestmark = pytest.mark.usefixtures("in_tmp")

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"


def test_serial_mode_trains_and_overrides_apply(tmp_path):
    status = run(
        "-m", "serial", "-c", str(CONFIG), "-s", "3", "--env-step", "700", "--exp-name", "exp",
        "policy.learn.batch_size=32", "env.collector_env_num=4",
    )  # fmt: skip

    assert status == 0
    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert 700 <= result["env_step"] < 720
    diff = (tmp_path / "exp/config_diff.txt").read_text()
    assert "policy.learn.batch_size" in diff
    assert (tmp_path / "exp/curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "exp/agent.gif").read_bytes().startswith(b"GIF8")


def test_a_run_is_plotted_played_and_evaluated(capsys):
    run("-m", "serial", "-c", str(CONFIG), "--env-step", "600", "--exp-name", "exp")

    assert run("plot", "exp", "--out", "other.png") == 0 and Path("other.png").is_file()
    assert run("enjoy", "exp", "--out", "other.gif") == 0 and Path("other.gif").is_file()
    assert "returns" in capsys.readouterr().out
    assert run("plot", "nowhere") == 1

    model = ("--load-path", "exp/ckpt/ckpt_best.pth.tar")
    capsys.readouterr()
    status = run("-m", "eval", "-c", str(CONFIG), *model, "--replay-path", "films", "-s", "0", "-s", "1")

    assert status == 0
    assert Path("films/agent.gif").is_file()
    said = capsys.readouterr().out
    for seed in (0, 1):
        found = json.loads(Path(f"exp/ckpt/ckpt_best.eval_seed{seed}.json").read_text())
        low, high = found["interval95"]
        assert f"seed {seed}: mean return {found['eval_value']:.4g} [" in said
        assert f"(95% CI of {found['episodes']} episodes)" in said
        assert low <= found["eval_value"] <= high and len(found["eval_value_raw"]) == found["episodes"] == 20
        assert (found["seed"], found["mode"], found["env"]) == (seed, "eval", "CartPole-v1")
        assert found["checkpoint"] == "exp/ckpt/ckpt_best.pth.tar" and found["versions"]["torch"]

    Path("exp/ckpt/ckpt_best.eval_seed0.json").unlink()
    Path("exp/ckpt/ckpt_best.eval_seed0.json").mkdir()
    assert run("-m", "eval", "-c", str(CONFIG), *model, "-s", "0") == 0
    said = capsys.readouterr().out
    assert "seed 0: mean return " in said and "ckpt_best.eval_seed0.json is not written: " in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "serial_onpolicy", "-c", str(CONFIG)], ["'dqn' is off-policy", "ding -m serial"]),
        (["-m", "serial", "-c", str(CONFIG), "--load-path", "no.pth.tar"], ["no.pth.tar"]),
        (["-m", "serial", "-c", str(CONFIG), "create.policy.type=dqnn"], ["dqnn", "dqn"]),
        (["-m", "serial", "-c", str(CONFIG), "create.env.type=cartpoll"], ["cartpoll", "cartpole"]),
    ],
)
def test_what_is_wrong_is_one_message_and_a_non_zero_exit(arguments, words, capsys):
    status = run(*arguments)

    err = capsys.readouterr().err
    assert status == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert not list(Path.cwd().glob("*/ckpt")), "nothing was started"


def test_five_faults_of_a_config_are_one_error(tmp_path, capsys):
    text = CONFIG.read_text()
    text = text.replace("batch_size=128", "batchsize=128").replace("nstep=3", "nstep='3'")
    text = text.replace("discount_factor", "discount_facter").replace("stop_value", "stop_valeu")
    text = text.replace("collect=dict(n_sample=8)", "collect=dict(n_sample=8, n_episode=4)")
    (tmp_path / "bad_config.py").write_text(text)

    assert run("-m", "serial", "-c", "bad_config.py") == 1

    err = capsys.readouterr().err
    assert "5 problems in bad_config.py" in err
    for words in ("'batch_size'", "expected int, got str '3'", "'discount_factor'", "'stop_value'", "n_episode"):
        assert words in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "n" * 300],
        ["-m", "serial", "-c", str(CONFIG), "--exp-name", "n" * 300],
        ["plot", "exp", "-o", f"{'n' * 250}.png"],
    ],
    ids=["report", "exp-name", "plot"],
)
def test_a_name_that_is_too_long_is_one_error(arguments, capsys):
    write_run(Path("exp"), training_and_evaluation())

    assert run(*arguments) == 1

    assert "is too long: give names of 240 bytes or fewer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["-m", "serial", "--load-path"], ["-m", "eval", "--load-path"]], ids=["serial", "eval"]
)
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("foreign.pt", ["no 'model', the weights of a policy; it has 'weight', 'bias'", "torch.save({'model'"]),
        ("/dev/null", ["/dev/null is no ordinary file; expected a file that ding_like saved"]),
        ("empty.pt", ["empty.pt is torn or damaged (0 bytes)"]),
        (".", ["is a folder; give a file in it"]),
    ],
)
def test_a_file_that_is_no_checkpoint_is_one_error(command, file, words, capsys):
    torch.save(torch.nn.Linear(2, 2).state_dict(), "foreign.pt")
    Path("empty.pt").touch()

    assert run(*command, file, "-c", str(CONFIG)) == 1

    err = capsys.readouterr().err
    assert "Traceback" not in err and all(word in err for word in words)


EVIL = "exp\x1b]0;title\x07\x9b31m"


@pytest.mark.parametrize(
    "arguments", [["plot", EVIL], ["report", EVIL], ["compare", EVIL, f"other_{EVIL}"], ["plot", EVIL, "--metric", "m"],
                  ["enjoy", EVIL], ["report", EVIL, f"other_{EVIL}"], ["-m", "serial", EVIL], ["-q", EVIL]]
)  # fmt: skip
def test_control_characters_of_a_folder_reach_no_terminal(arguments, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)  # or click would take some away
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    for folder in (EVIL, f"other_{EVIL}"):
        write_run(Path(folder), training_and_evaluation(), result={**RESULT, "env": EVIL, "command": EVIL}, env_id=EVIL)

    run(*arguments)

    out, err = capsys.readouterr()
    assert r"exp\x1b]0;title\x07\x9b31m" in out + err
    assert not set(out + err) & set("\x1b\x07\x9b")


def test_debug_shows_the_traceback_and_a_query_lists_name_class_and_place(capsys):
    with pytest.raises(ConfigError):
        cli.main(["-m", "serial", "--debug"])
    assert run("-q", "policy") == 0

    out = capsys.readouterr().out
    assert "dqn" in out and "DQNPolicy" in out and "policy/dqn.py:" in out


def test_help_and_import_load_no_torch():
    code = (
        "import sys, ding_like\n"
        "from ding_like.entry.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 0, done.stderr
    assert "ding -m serial -c" in done.stdout


@pytest.mark.parametrize(
    ("mode", "policy", "words"),
    [
        ("serial", "dqn", "collect     in 8 envs"),
        ("serial_onpolicy", "ppo", "collect     in 8 envs"),
        ("parallel", "dqn", "1 learner, 2 collectors of 8 envs"),
        ("ranks", "dqn", "0 learns, 1 to 2 collect"),
    ],
)
def test_a_dry_run_shows_the_run_and_writes_nothing(in_tmp, capsys, mode: str, policy: str, words: str) -> None:
    options = ["-m", mode, "-e", "cartpole", "-p", policy, "--env-step", "1000", "--exp-name", "exp", "--dry-run"]
    assert run(*options) == 0

    shown = capsys.readouterr().out
    assert words in shown and "exp/" in shown and "1,000 env steps" in shown and list(in_tmp.iterdir()) == []


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
        (
            "-m serial -e nothing -p qmix",
            "there are: ptz_pistonball_qmix, ptz_simple_spread_qmix, simple_spread_qmix, speaker_listener_qmix",
        ),
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
def test_an_option_that_click_refuses_names_the_one_here(option: str, words: str, capsys) -> None:
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


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("dizoo.image_classification.digits", "sklearn", "imageclassification"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("dizoo.robotics.config.fetchreach_her_sac_config", "gymnasium_robotics", "robotics"),
                ("dizoo.multi_agent.config.simple_spread_qmix_config", "mpe2", "mpe"),
            )
        ),
    ],
)
def test_a_missing_package_is_one_line_with_the_command(module: str, package: str, extra: str, tmp_path: Path) -> None:
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\", name={package!r})\n"
    (tmp_path / f"{package}.py").write_text(missing)

    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "OMP_NUM_THREADS": "1", "PATH": "/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f'pip install "ding-like[{extra}]"' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "batch_size", "random_collect_size", "expected"),
    [("cartpole_dqn_per", 43, 0, 1), ("cartpole_dqn", 47, 48, 0)],
)
def test_one_warning_says_that_a_buffer_fills(
    name, batch_size, random_collect_size, expected, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
    main, create = read_config(str(CONFIG.parent / f"{name}_config.py"))[:2]
    # A batch size of its own: a warning of another test would be taken for this one's.
    learn = dict(batch_size=batch_size, learning_rate=1e-3)
    policy = dict(learn=learn, random_collect_size=random_collect_size)
    main = deep_merge(main, dict(exp_name="exp", env=dict(n_evaluator_episode=1, evaluator_env_num=1), policy=policy))

    serial_pipeline((main, create), seed=0, max_env_step=64)

    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in said if "buffer" in line]) == expected, said


def keys(*arguments: str) -> int:
    """Return the exit status of `ding keys`."""
    try:
        main(["keys", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_without_curve_a_key_for_each_role_is_written(tmp_path: Path) -> None:
    assert keys(str(tmp_path / "keys.json")) == 0

    assert list(load_keys(tmp_path / "keys.json")) == ["collector", "learner", "admin"]


def test_with_curve_a_drivers_and_a_workers_file_are_written(tmp_path, capsys) -> None:
    path = tmp_path / "keys.json"

    assert keys("--curve", str(path)) == 0

    assert capsys.readouterr().out == f"wrote {path}\nwrote {tmp_path / 'keys.worker.json'}\n"
    assert load_seed_keys(path).clients == {"worker": load_seed_keys(tmp_path / "keys.worker.json").own.public}
    assert keys("--curve", str(path)) == 1
    assert "is there already" in capsys.readouterr().err


def test_clients_are_named_renewed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert keys("--curve", str(path), "--client", "a", "--client", "b") == 0
    old = load_seed_keys(path)

    assert keys("--curve", str(path), "--client", "a", "--remove", "b") == 0

    now = load_seed_keys(path)
    assert now.server == old.server and list(now.clients) == ["a"] and now.clients["a"] != old.clients["a"]
    assert load_seed_keys(client_file(path, "a")).own.public == now.clients["a"]
    assert not client_file(path, "b").exists()


def test_options_that_make_no_sense_are_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in [
        (["--client", "a"], "add --curve"),
        (["--remove", "a"], "add --curve"),
        (["--curve", "--per-role"], "choose one"),
        (["--curve", "--client", "a/b"], "names of clients"),
        (["--curve", "--remove", "a"], "cannot be read"),
    ]:
        assert keys(str(tmp_path / "keys.json"), *options) == 1

        assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def check(*arguments: str) -> int:
    """Return the exit status of `ding check-env ARGUMENTS`."""
    try:
        command(args=[*arguments, "--steps", "200"], standalone_mode=False)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_good_env_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.envs.bad_envs:GoodEnv") == 0

    assert capsys.readouterr().out.splitlines()[-1].startswith("no fault, no warning, ")


def test_a_gymnasium_id_is_checked_and_its_policies_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("CartPole-v1") == 0

    out = capsys.readouterr().out
    assert "Discrete actions are taken by" in out and "dqn" in out
    assert "steps a second" in out


def test_a_fault_is_printed_with_its_mend_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.envs.bad_envs:FourValues") == 1

    out = capsys.readouterr().out
    assert "  fault    step: it returned 4 values" in out
    assert "           expected  5 values: obs, reward, terminated, truncated, info" in out
    assert "           fix       return obs, float(reward), terminated, truncated, {}" in out
    assert out.splitlines()[-1] == "1 fault, no warning, 1 note"


def test_a_warning_alone_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.envs.bad_envs:Endless") == 0

    assert "no fault, 1 warning" in capsys.readouterr().out


def test_spaces_that_no_policy_takes_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.envs.bad_envs:OneNumber") == 0

    out = capsys.readouterr().out
    assert "warning  policies: no policy here takes the observation space Box" in out
    assert "FlattenObservation" in out


def test_key_value_pairs_are_the_envs_arguments_or_those_of_the_section() -> None:
    env = env_factory("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 7})()

    env.reset(seed=0)
    assert env.spec is not None and env.spec.max_episode_steps == 7
    assert env.step(0)[1] == 0.0, "a reward of Sutton and Barto's CartPole"
    env.close()


def test_a_registered_type_is_found_with_an_import() -> None:
    factory = env_factory("di_engine_style_walk", {"width": 5}, ["tests.envs.my_envs"])

    assert factory().env.cfg["width"] == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["CartPol-v1"], ConfigError, "did you mean 'CartPole-v1'"),
        (["cartpoll"], ConfigError, "a gymnasium id ends in its version"),
        (["tests.envs.bad_envs:GodEnv"], ConfigError, "did you mean 'GoodEnv'"),
        (["tests.nowhere:MyEnv"], ConfigError, "tests.nowhere"),
        (["CartPole-v1", "size"], ConfigError, "'size' is not an argument of the env; expected KEY=VALUE"),
        (["CartPole-v1", "size=3"], ConfigError, "size"),
        (["CartPole-v1", "--import", "nowhere"], ConfigError, "nowhere"),
        (["ALE/Pong-v5"], EnvError, "ding-like[atari]"),
    ],
)
def test_what_cannot_be_made_is_one_error(arguments, error, words, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)

    with pytest.raises(error) as caught:
        check(*arguments)

    assert not isinstance(caught.value, RegistryError)
    assert words in str(caught.value)


@pytest.fixture
def below_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in dict(RANK="1", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="1").items():
        monkeypatch.setenv(name, value)


def test_a_run_has_one_learner_unless_more_are_asked_for() -> None:
    assert [number_of_learners(None), number_of_learners(4), number_of_learners(None, default=2)] == [1, 4, 2]


def test_torchrun_says_how_many_there_are(below_torchrun: None) -> None:
    assert number_of_learners(None) == number_of_learners(3) == 3 and not serial_entry.is_first()
    with pytest.raises(ConfigError, match="--learners is 2, but torchrun has started 3 processes"):
        number_of_learners(2)


def test_a_number_of_torchruns_that_is_none_is_named(below_torchrun: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="the environment's WORLD_SIZE is 'two'"):
        number_of_learners(None)


def test_half_of_torchruns_variables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match="has WORLD_SIZE=2 but not RANK, MASTER_ADDR, MASTER_PORT.*or unset WORLD_SIZE"
    ):
        number_of_learners(None)


def test_torchruns_learners_are_of_one_seed(below_torchrun: None, capsys: Any) -> None:
    assert run("-m", "serial", "-c", str(CONFIG), "-s", "0", "-s", "1") == 1
    assert "2 seeds are given: give one -s" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_more_learners_than_cores_are_refused(capsys, tmp_path, monkeypatch, mode: str) -> None:
    monkeypatch.setattr(serial_entry, "num_cores", lambda: 2)

    assert run("-m", mode, "-c", str(CONFIG), "--learners", "8") == 1
    said = capsys.readouterr().err
    assert "--learners is 8, and this machine has 2 CPU cores" in said and "Give --learners from 1 to 2" in said
    assert list(tmp_path.iterdir()) == []


def test_a_parallel_run_is_told_how_many_share_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    monkeypatch.setattr("ding_like.entry.parallel_entry.ParallelRun.run", lambda run: plans.append(run))

    assert run("-m", "parallel", "-c", str(CONFIG), "--learners", "2") == 0

    assert plans[0].system.num_learners == 2


def test_a_timeout_shorter_than_the_learners_beats_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learners.timeout_s\s+is 1, give at least 2"):
        with joined(Plan(compiled(learners=dict(timeout_s=1)), RunArguments("serial", 0, 10, 10, True, 2), None)):
            pass
