"""Do the same small project twice and write what it took.

The project: an env of one's own, an algorithm of one's own, trained, stopped half way and taken up again, loaded,
exported to ONNX, filmed, and compared with DQN over five random seeds, with pictures. `ours` uses this package from a
wheel, `sb3` uses Stable-Baselines3 and rl-zoo3, each as its documentation says, in a clean folder.

python -m benchmarks.first_hour --ours BIN --sb3 BIN [--out FILE.json]     # BIN: bin folders of virtual environments
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import provenance
from benchmarks.rounds import processor

HERE = Path(__file__).parent
STEPS = 8_000  # env steps of each run
_LIMIT_S = 1_200.0  # of one step of the project


class Step(NamedTuple):
    """Step of the project: what is typed, and the files that show that it worked."""

    name: str
    commands: Sequence[str]
    made: Sequence[str] = ()


_OURS = "ding -m serial -c point_config.py"
_ZOO = (
    "python train_soft.py --env Point-v0 --gym-packages point_env --conf-file hyperparams.py --eval-freq 500 "
    "--eval-episodes 20"
)
PROJECTS = {
    "ours": (
        Step("check the env", ["ding check-env point_env:Point-v0"]),
        Step(
            "train",
            [f"{_OURS} -s 0 --env-step {STEPS} --exp-name point"],
            ["point/curve.png", "point/agent.gif", "point/result.json"],
        ),
        Step(
            "stop half way and resume",
            [f"{_OURS} -s 0 --env-step {STEPS // 2} --exp-name resumed", f"ding --resume resumed --env-step {STEPS}"],
        ),
        Step("load, act, export", ["python use.py", "ding export point --to onnx"], ["point/agent.onnx"]),
        Step("film", ["ding enjoy point"], ["point/agent.gif"]),
        Step(
            "five seeds of two algorithms",
            [
                f"{_OURS} -s 0..4 -j 2 --env-step {STEPS} --exp-name soft",
                f"{_OURS} -s 0..4 -j 2 --env-step {STEPS} --exp-name plain create.policy.type=dqn",
            ],
            ["soft/curve.png", "plain/scores.md"],
        ),
        Step("compare", ["ding compare soft plain"], ["compare.png"]),
    ),
    "sb3": (
        Step(
            "check the env",
            [
                "python -c 'import gymnasium, point_env; from stable_baselines3.common.env_checker import check_env; "
                'check_env(gymnasium.make("Point-v0").unwrapped)\''
            ],
        ),
        Step("train", [f"{_ZOO} --algo soft_dqn --seed 0 -f logs"], ["logs/soft_dqn/Point-v0_1/Point-v0.zip"]),
        Step(
            "stop half way and resume",
            [
                f"{_ZOO} --algo soft_dqn --seed 0 -n {STEPS // 2} -f half --save-replay-buffer",
                f"{_ZOO} --algo soft_dqn --seed 0 -n {STEPS // 2} -f resumed -i half/soft_dqn/Point-v0_1/Point-v0.zip",
            ],
        ),
        Step("load, act, export", ["python use.py"], ["point.onnx"]),
        Step("film", ["python film.py"], ["agent.gif"]),
        Step(
            "five seeds of two algorithms",
            # The zoo numbers runs by the folders that it finds, so two at once need folders of their own.
            [
                " & ".join(
                    f"for seed in 0 1 2 3 4; do {_ZOO} --algo {algorithm} --seed $seed -f seeds; done"
                    for algorithm in ("dqn", "soft_dqn")
                )
                + "; wait"
            ],
        ),
        Step(
            "compare",
            [
                "python -m rl_zoo3.plots.all_plots -a dqn soft_dqn -e Point -f seeds -o results --no-display",
                "python -m rl_zoo3.plots.plot_from_file -i results.pkl --skip-timesteps --rliable --versus "
                "-o compare.png --format png",
            ],
        ),
    ),
}
# Prints how far the weights of the resumed run are from those of the straight one; not counted as typed.
_DIFFERENCE = {
    "ours": """
import pathlib, torch
def newest(run):
    files = pathlib.Path(run, "ckpt").glob("iteration_*.pth.tar")
    last = max(files, key=lambda path: int(path.name.split("_")[1].split(".")[0]))
    return torch.load(last, weights_only=True)["model"]
a, b = newest("point"), newest("resumed")
""",
    "sb3": """
import point_env
from soft_dqn import SoftDQN
a, b = (SoftDQN.load(f"{run}/soft_dqn/Point-v0_1/Point-v0.zip").policy.state_dict() for run in ("logs", "resumed"))
""",
}
_PRINT = "print(max((a[name] - b[name]).abs().max().item() for name in a))"


def code_lines(path: Path) -> int:
    """Return the lines of a Python file that hold code: none that is blank, a comment or a docstring."""
    text = path.read_text()
    without = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                without.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for n, line in lines if n not in without)


def do_project(name: str, binaries: Path, folder: Path) -> dict[str, Any]:
    """Do the project of one of the two in an empty folder, and return what it took."""
    files = {path.name: path for part in ("shared", name) for path in sorted((HERE / part).glob("*.py"))}
    for path in files.values():
        shutil.copy(path, folder)
    settings = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "PYTHONPATH": str(folder) if name == "sb3" else "",
    }
    steps = []
    for step in PROJECTS[name]:
        began = time.monotonic()
        for command in step.commands:
            _run(command, folder, settings)
        missing = [made for made in step.made if not (folder / made).is_file()]
        if missing:
            raise RuntimeError(f"{name}: the step '{step.name}' did not make {', '.join(missing)}.")
        steps.append({"step": step.name, "commands": len(step.commands), "s": round(time.monotonic() - began, 1)})
        print(name, steps[-1], flush=True)
    code = _DIFFERENCE[name] + _PRINT
    difference = float(_run(f"python -c {shlex.quote(code)}", folder, settings).split()[-1])
    return {
        "steps": steps,
        "files": {name: code_lines(path) for name, path in files.items()},
        "difference_after_resume": difference,
    }


def _run(command: str, folder: Path, settings: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings, capture_output=True, text=True, timeout=_LIMIT_S
    )
    if done.returncode:
        raise RuntimeError(f"{command}\nended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    """Do the project with both and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, required=True, help="bin folder with `ding`, installed from a wheel")
    parser.add_argument("--sb3", type=Path, required=True, help="bin folder with stable-baselines3 and rl-zoo3")
    parser.add_argument("--out", type=Path, default=Path("first_hour.json"))
    parser.add_argument("--keep", type=Path, help="keep what was made in this folder")
    parser.add_argument("--allow-dirty", action="store_true")
    asked = parser.parse_args()
    where_from = provenance(allow_dirty=asked.allow_dirty).to_plain()
    report: dict[str, Any] = {
        "env_steps": STEPS,
        "processor": processor(),
        "cpus": os.cpu_count(),
        **where_from,
        "date": time.strftime("%F"),
    }
    for name, binaries in (("ours", asked.ours), ("sb3", asked.sb3)):
        with tempfile.TemporaryDirectory() as folder:
            report[name] = do_project(name, binaries.resolve(), Path(folder))
            if asked.keep:
                shutil.copytree(folder, asked.keep / name)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
