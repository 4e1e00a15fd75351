"""The pages that lead by the hand: every block runs in the order in which it stands, and prints what the page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ding_like
from ding_like.config import read_config
from tests.docs.walk import is_shown, own_modules, walk

DOCS = Path(__file__).parents[2] / "docs"
SHORT_HOUR = {"--env-step 10000": "--env-step 600", "3000": "600", "4000": "700", "-n 2": "-n 1"}
ANSWER_TO_ANOTHER_MODEL = (
    "ConfigError: WideNet.q(obs) gave [5, 3] for obs of shape [5, 4]; DQNPolicy expects q(obs) -> [B, A], here [5, 2]."
)
# Page -> what is shortened, and what it must leave behind.
WALKED: dict[str, tuple[dict[str, str], list[str]]] = {
    "first_hour.md": (
        {**SHORT_HOUR, "0..4 -j 2": "0", "--trials 10 -j 2": "--trials 1 -j 1"},
        ["slower/result.json", "point/agent.pt", "plain/report.html", "compare.png", "study/best_config.py"],
    ),
    "own_algorithm.md": (
        {"--env-step 10000": "--env-step 400", "--resume mellow": "--resume mellow --env-step 700"},
        ["mellow/result.json", "slow_q/result.json"],
    ),
    "concepts.md": ({}, []),
    "own_env.md": ({"--env-step 10000": "--env-step 1500"}, ["thermostat/result.json", "thermostat/agent.gif"]),
    "own_model.md": ({"--env-step 10000": "--env-step 800", ANSWER_TO_ANOTHER_MODEL: ""}, ["wide/result.json"]),
    "own_hook.md": ({}, ["halved/result.json"]),
    "own_buffer.md": ({}, ["recent/result.json"]),
    "own_loop.md": ({"max_env_step=20_000": "max_env_step=400"}, ["my_loop/metrics.jsonl", "my_loop/curve.png"]),
    "evaluation.md": ({}, ["judged/ckpt/ckpt_best.eval_seed7.json"]),
    "learning_rate.md": ({}, ["falling/result.json", "by_hook/result.json"]),
    "normalisation.md": ({}, ["normal/agent.gif"]),
    "from_sb3.md": ({"env_step=20_000": "env_step=400, exp_name='dqn'"}, ["dqn/result.json"]),
    "from_cleanrl.md": ({"20000": "600 --exp-name dqn"}, ["dqn/result.json"]),
    "from_rllib.md": ({"10000": "400"}, ["ppo/result.json"]),
}
IN_THE_SUITE = ("first_hour.md", "own_algorithm.md", "concepts.md")


@pytest.mark.parametrize(
    "name", [name if name in IN_THE_SUITE else pytest.param(name, marks=pytest.mark.slow) for name in WALKED]
)
@pytest.mark.timeout(300)
def test_every_block_of_the_page_runs_to_what_it_shows(name: str, in_tmp: Path) -> None:
    replaced, files = WALKED[name]

    with own_modules():
        walked = list(walk(DOCS / name, replaced=replaced))

    assert len(walked) >= 2
    assert [file for file in files if not (in_tmp / file).is_file()] == []
    for result in in_tmp.glob("*/result.json"):
        found = json.loads(result.read_text())
        assert found["env_step"] > 0 and (found["train_iter"] > 0 or name.startswith("from_"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_hour_with_its_seeds(in_tmp: Path) -> None:
    with own_modules():
        list(walk(DOCS / "first_hour.md", replaced={**SHORT_HOUR, "0..4": "0,1", "--trials 10": "--trials 2"}))

    assert [(in_tmp / f"plain/seed{seed}/result.json").is_file() for seed in range(2)] == [True, True]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_env_of_the_page_is_learned_as_the_page_runs_it(in_tmp: Path) -> None:
    with own_modules():
        list(walk(DOCS / "own_env.md", replaced={}))

    assert json.loads(Path("thermostat/result.json").read_text())["eval_value"] > 60


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_blocks_of_the_page_on_use_run(in_tmp: Path) -> None:
    few = dict(evaluator_env_num=2, n_evaluator_episode=2)
    ding_like.train("dqn", "CartPole-v1", env_step=600, env=few, exp_name="my_exp")
    names: dict[str, Any] = {}

    list(walk(DOCS / "use.md", replaced={}, names=names))

    assert names["action"] in (0, 1) and names["actions"].shape == (3,) and names["obs"].shape == (3, 4)
    run = names["run"]
    cfg = read_config(run.folder / "total_config.py").main_config
    assert run.folder == Path("two_lines") and run.result.env_step >= 2_000
    assert cfg["policy"]["learn"]["batch_size"] == 128 and cfg["policy"]["discount_factor"] == 0.99
    assert run.agent.wrappers == ["ObsNorm"] and ding_like.Run("cartpole_dqn_seed0").is_finished


def test_an_output_that_differs_is_noticed() -> None:
    assert is_shown("one ... 3\nfour", "zero\none  2 3\nother\nfour\n")
    assert not is_shown("one ... 3\nfour", "four\none 2 3\n")
    assert not is_shown("one 3", "one 2")
