"""What every reward model promises: a pure estimate, exact resume, and one slot in every way to run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import load_columns
from ding_like.entry import cli
from ding_like.utils.checkpoint import load_state
from ding_like.utils.registries import REWARD_MODEL_REGISTRY
from tests.contracts.reward_cases import (
    FOLDER,
    batch_of,
    build,
    kind_needs_expert,
    make_demonstrations,
    same_bits,
    section,
)

KINDS = [kind for kind in REWARD_MODEL_REGISTRY.names() if kind not in ("ngu",)]  # whose rows are sequences
ROOT = Path(__file__).parents[2]
POLICIES: dict[str, dict[str, Any]] = {
    "dqn": dict(random_collect_size=100, learn=dict(update_per_collect=2, batch_size=16), collect=dict(n_sample=8)),
    "ppo": dict(learn=dict(epoch_per_collect=2, batch_size=16), collect=dict(n_sample=64)),
}
RECORDING = dict(learn=dict(learner=dict(type="tests.contracts.reward_cases:RecordingLearner")))
MODES = {
    "serial": [],
    "two learners": ["--learners", "2"],
    "parallel": [],
    "ray": ["--workers", "1"],
    "seed": [],
}


@pytest.fixture(scope="module")
def data_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_demonstrations(tmp_path_factory.mktemp("expert") / "expert.safetensors")


def copied(batch: TransitionBatch) -> dict[str, Any]:
    return {name: column.copy() for name, column in batch.columns.items()}


@pytest.mark.parametrize("steps", [0, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_a_new_batch_with_other_rewards_alone(kind: str, steps: int, data_path: str) -> None:
    model, batch = build(kind, data_path), batch_of(8, steps=steps)
    before = copied(batch)

    model.collect(batch)
    model.train()
    given = model.estimate(batch)

    assert given is not batch
    assert same_bits(dict(batch.columns), before), "the batch given was written into"
    assert given["reward"].shape == before["reward"].shape
    assert given["reward"].dtype == np.float32
    assert np.isfinite(given["reward"]).all()
    assert not np.array_equal(given["reward"], before["reward"])
    others = {name: column for name, column in given.columns.items() if name != "reward"}
    assert same_bits(others, {name: column for name, column in before.items() if name != "reward"})
    if steps:
        assert (given["reward"][1, steps // 2 :] == 0).all(), "steps beyond an episode have no reward"


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_resumes_to_the_last_bit(kind: str, data_path: str) -> None:
    straight, broken_off = build(kind, data_path), build(kind, data_path)

    def learn(model: Any, first: int, last: int) -> None:
        for number in range(first, last):
            model.collect(batch_of(16, seed=number))
            model.train()

    learn(straight, 0, 6)
    learn(broken_off, 0, 3)
    resumed = build(kind, data_path, seed=1)
    resumed.load_state_dict(broken_off.state_dict())
    learn(resumed, 3, 6)

    probe = batch_of(8, seed=99)
    assert np.array_equal(resumed.estimate(probe)["reward"], straight.estimate(probe)["reward"])
    assert same_bits(resumed.state_dict(), straight.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_from_the_batches_that_it_is_shown(kind: str, data_path: str) -> None:
    model = build(kind, data_path)
    model.collect(batch_of(32))
    before = copy.deepcopy(model.state_dict()["model"])

    info = model.train()

    assert set(info) <= set(model.monitored)
    assert "optimizer" not in model.state_dict() or not same_bits(model.state_dict()["model"], before)


def write_config(folder: Path, policy: str, reward_model: dict[str, Any], **more: Any) -> Path:
    env = dict(env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    small = dict(model=dict(encoder_hidden_size_list=[8]), eval=dict(evaluator=dict(eval_freq=1000)))
    main = dict(exp_name="run", env=env, policy=deep_merge(deep_merge(POLICIES[policy], small), more))
    create = dict(env=dict(type="gymnasium"), policy=dict(type=policy))
    path = folder / "config.py"
    path.write_text(f"main_config = {main | dict(reward_model=reward_model)!r}\ncreate_config = {create!r}\n")
    return path


def last_checkpoint(run: Path) -> Path:
    return max((run / "ckpt").glob("iteration_*.pth.tar"), key=lambda path: int(path.name.split("_")[1].split(".")[0]))


def ding(*arguments: str) -> None:
    try:
        cli.main(arguments)
    except SystemExit as stop:
        assert not stop.code


CASES = [*((mode, "dqn") for mode in MODES), *((mode, "ppo") for mode in MODES if mode != "seed")]


@pytest.mark.parametrize(
    ("mode", "policy"), [pytest.param(*case, marks=pytest.mark.ray if case[0] == "ray" else []) for case in CASES]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_row_has_the_same_reward_in_every_way_to_run(
    mode: str,
    policy: str,
    data_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if mode == "ray":
        request.getfixturevalue("ray_cluster")
    frozen = section("gail", data_path, update_per_collect=0)
    config = write_config(tmp_path, policy, frozen, **RECORDING)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes of mode parallel
    name = "serial" if mode == "two learners" else mode
    name = "serial_onpolicy" if policy == "ppo" and name == "serial" else name

    ding("-m", name, "-c", str(config), "-s", "0", "--env-step", "400", *MODES[mode])

    model, parts = build("gail", data_path, update_per_collect=0), sorted(tmp_path.glob("*_*.safetensors"))
    assert parts, "no batch went through the slot"
    for path in parts:
        columns = load_columns(path)
        expected = model.estimate(TransitionBatch({**columns, "reward": columns["env_reward"]}))["reward"]
        assert np.array_equal(columns["reward"], expected)
        assert not np.array_equal(columns["reward"], columns["env_reward"])
    saved = load_state(last_checkpoint(tmp_path / "run"))
    assert same_bits(saved["reward_model"]["model"], model.state_dict()["model"])


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_run_with_a_reward_model_resumes_as_if_it_had_not_been_broken_off(data_path: str, tmp_path: Path) -> None:
    write_config(tmp_path, "dqn", section("gail", data_path))

    ding("-m", "serial", "-c", "config.py", "-s", "0", "--env-step", "800", "--exp-name", "whole")
    ding("-m", "serial", "-c", "config.py", "-s", "0", "--env-step", "400")
    ding("--resume", "run", "--env-step", "800")

    whole, resumed = (load_state(last_checkpoint(Path(name))) for name in ("whole", "run"))
    assert same_bits(resumed["reward_model"], whole["reward_model"])
    assert same_bits(resumed["model"], whole["model"])


def test_a_model_that_needs_an_expert_says_how_to_get_its_data() -> None:
    needing = [kind for kind in KINDS if kind_needs_expert(kind)]
    assert "gail" in needing
    for kind in needing:
        model_cls = REWARD_MODEL_REGISTRY.get(kind)
        faults = dict(model_cls.check_config({**model_cls.default_config(), "data_path": ""}))
        assert faults["data_path"].startswith("is not set: give ")
