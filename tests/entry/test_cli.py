import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ding_like.entry import cli
from tests.entry.typed import status_of as run
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
        (
            "foreign.pt",
            ["no 'model', the weights of a policy; it has 'weight', 'bias'", "torch.save({'model'"],
        ),
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


def test_debug_shows_the_traceback():
    from ding_like.errors import ConfigError

    with pytest.raises(ConfigError):
        cli.main(["-m", "serial", "--debug"])


def test_query_lists_name_class_and_place(capsys):
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
def test_a_dry_run_shows_the_run_and_writes_nothing(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], mode: str, policy: str, words: str
) -> None:
    options = ["-m", mode, "-e", "cartpole", "-p", policy, "--env-step", "1000", "--exp-name", "exp", "--dry-run"]
    assert run(*options) == 0

    shown = capsys.readouterr().out
    assert words in shown and "exp/" in shown and "1,000 env steps" in shown and list(in_tmp.iterdir()) == []
