"""Write folders like those that runs leave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ding_like.report.experiment import SeedsPlan


def report(source: str, env_step: float, mean: float, *, std: float = 1.0, count: int = 4) -> dict[str, object]:
    """Return a line of metrics.jsonl as a collector or evaluator writes it."""
    values = {"reward_mean": mean, "reward_std": std, "reward_min": mean - 2 * std, "reward_max": mean + 2 * std}
    return {"source": source, "env_step": env_step, "train_iter": 0, "time_s": 0.1, "episode_count": count, **values}


RESULT = {
    "stop": True,
    "eval_value": 480.0,
    "eval_value_raw": [460.0, 500.0],
    "env_step": 8000,
    "train_iter": 7000,
    "duration_s": 20.0,
    "eval_duration_s": 1.0,
    "finish_time": "",
}


def write_run(
    folder: Path,
    lines: Iterable[dict[str, object]],
    *,
    seed: int = 0,
    stop_value: float = 475.0,
    result: dict[str, object] | None = None,
    policy: str = "dqn",
    env_id: str = "CartPole-v1",
) -> Path:
    """Write metrics, config and, if given, the result of a run; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    main = {"seed": seed, "env": {"env_id": env_id, "stop_value": stop_value}, "policy": {"type": policy}}
    (folder / "total_config.py").write_text(f"main_config = {main!r}\ncreate_config = {{}}\n")
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def training_and_evaluation(*, until: int = 4000, gain: float = 0.1) -> list[dict[str, object]]:
    """Return reports of a run whose return rises with its env steps."""
    steps = range(100, until + 1, 100)
    return [
        report(source, step, gain * step)
        for step in steps
        for source in (("collector", "evaluator") if step % 500 == 0 else ("collector",))
    ]


def write_seeds(
    folder: Path,
    scores: Mapping[int, float | None],
    *,
    more: Iterable[int] = (),
    stop_value: float = 475.0,
    env_step: int = 8000,
) -> Path:
    """Write an experiment of several seeds: the score of each, None of one that has not ended; return the folder.

    `more` are seeds that have not begun.
    """
    for seed, score in scores.items():
        result = None
        if score is not None:
            returns = [score - 1, score + 1]
            result = {**RESULT, "eval_value": score, "eval_value_raw": returns, "stop": False, "env_step": env_step}
        write_run(folder / f"seed{seed}", training_and_evaluation(), seed=seed, stop_value=stop_value, result=result)
    folder.mkdir(parents=True, exist_ok=True)
    seeds = (*scores, *more)
    command = f"ding -m serial -c my_config.py -s {','.join(map(str, seeds))}"
    SeedsPlan(seeds, "serial", command, "my_config.py", "00", (), ("--env-step", "8000"), 8000, 10**10).save(folder)
    return folder


RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_runs.json").read_text())


def scores_of(name: str) -> list[float]:
    return [run["result"]["eval_value"] for run in RECORDED[name]["runs"]]


def write_recorded(folder: Path, name: str) -> Path:
    """Write the folder of `dqn` or `ppo` with its five seeds and return it."""
    for run in RECORDED[name]["runs"]:
        lines = [
            {"source": "evaluator", **dict(zip(RECORDED["columns"], row, strict=True))} for row in run["evaluations"]
        ]
        write_run(
            folder / name / f"seed{run['seed']}",
            lines,
            seed=run["seed"],
            stop_value=1e9,
            result=run["result"],
            policy=name,
        )
    command = RECORDED[name]["command"]
    SeedsPlan(tuple(range(5)), "serial", command, "c.py", "00", (), (), 8000, 10**10).save(folder / name)
    return folder / name
