import shlex

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding_like.report.run_console import Limits
from ding_like.report.summary import closing_lines, describe_space, opening_lines
from tests.report.run_folder import RESULT, training_and_evaluation, write_run

SPACES = EasyDict(
    observation_space=gymnasium.spaces.Box(-1, 1, (4,), np.float32),
    action_space=gymnasium.spaces.Discrete(2),
    num_lanes=8,
)


def open_with(folder, overrides=(), *, env=None, env_fn=None, max_env_step=100_000, **policy) -> list[str]:
    env = {"type": "gymnasium", "env_id": "CartPole-v1", **(env or {})}
    cfg = dict(exp_name=str(folder), seed=3, env=dict(**env, manager=dict(type="base")))
    cfg["policy"] = dict(type="dqn", cuda=False, **policy)
    model = {"layer": {"weight": torch.zeros(100, 17), "bias": torch.zeros(100)}}
    return opening_lines(
        EasyDict(cfg),
        collector_env=SPACES,
        evaluator_env=SPACES,
        policy=EasyDict(eval_mode=EasyDict(state_dict=lambda: {"model": model})),
        limits=Limits(max_env_step, stop_value=475),
        overrides=overrides,
        env_fn=env_fn,
    )


def test_opening_has_versions_experiment_env_policy_and_end(tmp_path):
    (tmp_path / "config_diff.txt").write_text("key default value\na 1 2\nb 1 2\n")

    versions, experiment, env, policy, until = open_with(tmp_path)

    assert f"torch {torch.__version__}" in versions and f"gymnasium {gymnasium.__version__}" in versions
    assert experiment.startswith(f"experiment  {tmp_path}/  2 settings are not the defaults")
    assert "CartPole-v1  obs Box(4,) float32  act Discrete(2)  8 to collect, 8 to evaluate (base)" in env
    assert "dqn on cpu  1.8k parameters  seed 3" in policy
    assert until.split(maxsplit=1)[1] == "eval >= 475 or 100,000 env steps"


def test_opening_names_the_overrides(tmp_path):
    for overrides, line in [
        (["a=1"], "overrides   a=1"),
        (["a=1", "b=2", "c=3", "d=4", "e=5"], "overrides   a=1  b=2  c=3  and 2 more"),
    ]:
        assert open_with(tmp_path, overrides)[2] == line


def test_opening_names_the_env_that_trains(tmp_path):
    def make_my_env(cfg): ...

    of_class = open_with(tmp_path, env={"type": "tests.agent.films:Lamp"})[2]
    of_function = open_with(tmp_path, env_fn=make_my_env)[2]

    assert "tests.agent.films:Lamp (env_id 'CartPole-v1' is not used)  obs" in of_class
    assert "make_my_env() of env_setting  obs" in of_function and "CartPole" not in of_function


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (300, "300 env steps end in the random phase (policy.random_collect_size=500)"),
        (500, "end in the random phase"),
        (501, None),
    ],
)
def test_opening_warns_of_a_budget_within_the_random_phase(tmp_path, budget, words):
    last = open_with(tmp_path, max_env_step=budget, random_collect_size=500, learn={"batch_size": 64})[-1]

    assert words in last and "Give more than 500" in last if words else last.startswith("until")


def test_opening_warns_of_a_budget_below_a_batch(tmp_path):
    policy = dict(learn={"batch_size": 64}, collect={"n_sample": 8})

    assert "fewer rows than policy.learn.batch_size=64" in open_with(tmp_path, max_env_step=56, **policy)[-1]
    assert open_with(tmp_path, max_env_step=57, **policy)[-1].startswith("until")
    assert open_with(tmp_path, max_env_step=56, on_policy=True, **policy)[-1].startswith("until")


def test_spaces_are_described_in_a_word():
    for space, text in [
        (gymnasium.spaces.Discrete(3), "Discrete(3)"),
        (gymnasium.spaces.MultiBinary(4), "MultiBinary(4,) int8"),
        (gymnasium.spaces.Dict(image=SPACES.observation_space), "Dict(image)"),
    ]:
        assert describe_space(space) == text


def test_closing_has_verdict_files_and_next_commands(tmp_path):
    write_run(tmp_path, training_and_evaluation(), result=RESULT)
    (tmp_path / "curve.png").touch()

    verdict, took, wrote, files, *following = closing_lines(tmp_path)

    assert verdict == ("solved  the last model returns 480 [460, 500] (95% CI of 2 fresh episodes, stop value 475)")
    assert took == "took    8,000 env steps, 7,000 updates, 20.0 s (5% of it evaluation)"
    assert wrote == f"wrote   {tmp_path}/"
    assert files.split() == ["curve.png", "metrics.jsonl", "total_config.py"]
    assert f"ding enjoy {tmp_path}" in following[0] and f"{tmp_path}/total_config.py -s 1 -s 2" in following[1]


def test_the_verdict_is_solved_only_if_the_last_model_reaches_the_goal(tmp_path):
    for changes, word in [({"stop": False}, "done"), ({"eval_value": 400.0}, "stopped"), ({}, "solved")]:
        write_run(tmp_path, [], result={**RESULT, **changes})

        assert closing_lines(tmp_path)[0].split()[0] == word


def test_run_without_a_goal_names_none(tmp_path):
    write_run(tmp_path, [], result={**RESULT, "stop": False}, stop_value=1e10)

    assert "stop value" not in closing_lines(tmp_path)[0]


def test_paths_with_spaces_are_quoted_in_what_to_type_next(tmp_path):
    folder = write_run(tmp_path / "my run", [], result=RESULT)

    *_, wrote, _, first, second = closing_lines(folder)

    assert wrote == f"wrote   {folder}/"
    assert shlex.split(first)[1:] == ["ding", "enjoy", str(folder), "ding", "plot", str(folder)]
    assert shlex.split(second)[3:5] == ["-c", f"{folder}/total_config.py"]
