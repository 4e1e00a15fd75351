"""D-REX: less noise is better, and episodes are played with the noise that their file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ding_like.data.demonstrations import Demonstrations
from ding_like.entry.ranked_data import collect_noisy
from ding_like.errors import ConfigError
from ding_like.policy.dagger import MixedActor
from ding_like.policy.di_engine_view import RandomActor
from ding_like.reward_model.base import Sizes
from tests.reward_model.ranked import LENGTHS, RANKS, demonstrations, make, saved
from tests.reward_model.test_trex import short_run

DEMOS = demonstrations(LENGTHS, RANKS, column="noise")


def test_less_noise_is_better(tmp_path: Path) -> None:
    model = make(saved(tmp_path, "noisy", DEMOS), kind="drex", pretrain_updates=300)
    model.train()
    reward = model.estimate(DEMOS.batch())["reward"]

    means = [reward[DEMOS.columns["noise"] == noise].mean() for noise in range(3)]
    assert means[0] > means[1] > means[2]


def test_the_ranks_of_the_noise_are_those_of_trex_in_reverse(tmp_path: Path) -> None:
    noise = DEMOS.columns["noise"]
    drex = make(saved(tmp_path, "noisy", DEMOS), kind="drex")
    trex = make(saved(tmp_path, "ranked", DEMOS, rank=2 - noise))
    for model in (drex, trex):
        model.train()

    assert np.array_equal(drex.estimate(DEMOS.batch())["reward"], trex.estimate(DEMOS.batch())["reward"])


def test_a_file_without_noise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no column 'noise'"):
        make(saved(tmp_path, "ranked", demonstrations(LENGTHS, RANKS)), kind="drex")


class Always:
    """Actor that always takes one action."""

    def __init__(self, action: Any) -> None:
        self._action = action

    def act(self, obs: Any, *, lanes: Any, **given: Any) -> dict[str, Any]:
        return {"action": np.stack([self._action] * len(lanes))}


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    ("space", "action"),
    [
        (gymnasium.spaces.Discrete(4), np.int64(2)),
        (gymnasium.spaces.Box(-1, 1, (2,)), np.float32([0.5, 0.5])),
    ],
)
def test_a_share_of_the_actions_is_random(noise: float, space: Any, action: Any) -> None:
    lanes = np.arange(4000)
    actor: Any = MixedActor(Always(action), RandomActor(space))  # type: ignore[arg-type]
    given = dict(lanes=lanes, is_first=lanes < 0, rng=np.random.default_rng(0))
    found = actor.act(np.zeros((4000, 3)), **given, beta=noise)["action"]
    changed = (found != action).reshape(4000, -1)

    # A random one of four is the same one time in four; of two numbers drawn both change.
    expected = noise * (0.75 if found.ndim == 1 else 1.0)
    assert changed.any(axis=1).mean() == pytest.approx(expected, abs=0.03)
    assert (changed.all(axis=1) == changed.any(axis=1)).all() and found.dtype == action.dtype


def test_a_checkpoint_plays_with_each_noise(tmp_path: Path) -> None:
    short_run(str(tmp_path / "source"), lambda env: env)
    config, checkpoint = str(tmp_path / "source/total_config.py"), tmp_path / "source/ckpt/iteration_40.pth.tar"
    path = tmp_path / "noisy.safetensors"
    collect_noisy(config, checkpoint, path, noises=[0.0, 1.0], n_episode=4)
    columns = Demonstrations.load(path).columns
    first = np.flatnonzero(columns["step"] == 0)

    assert columns["noise"][first].tolist() == [0.0] * 4 + [1.0] * 4
    assert columns["episode_id"][first].tolist() == list(range(8))
    assert columns["terminated"].sum() == 8
    make(str(path), kind="drex", sizes=Sizes(4, 2, True)).train()


@pytest.mark.parametrize("noises", [[0.5], [0.5, 0.5], [0.0, 1.5]])
def test_noises_that_make_no_ranking_are_refused(noises: list[float]) -> None:
    with pytest.raises(ConfigError, match="noises are"):
        collect_noisy("config.py", "one.pth.tar", "noisy.safetensors", noises=noises)
