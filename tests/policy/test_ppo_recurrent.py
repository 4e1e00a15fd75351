"""Recurrent PPO: stored state, values and log probabilities along lanes, minibatches of sequences, loss, runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy import Policy
from tests.contracts.policy_cases import CASES, LANES, act, make
from tests.policy.differences import assert_finite_differences, in_float64, moved_in_float64
from tests.policy.on_policy import moved, slow_loss

KINDS = ["ppo_recurrent", "ppo_recurrent gru several", "ppo_recurrent box"]


class Lanes:
    """Step lanes of a made-up env whose observations follow each other, so that rows of a lane tell their place."""

    def __init__(self, seed: int = 0, *, end: float = 0.12) -> None:
        self.rng, self.end = np.random.default_rng(seed), end
        self.first = np.ones(LANES, bool)
        self.episode = np.arange(LANES)
        self.obs = self._draw()

    def _draw(self) -> np.ndarray:
        return self.rng.normal(size=(LANES, 3)).astype(np.float32)

    def play(self, policy: Policy, steps: int) -> Rollout:
        rollout = Rollout(LANES)
        for _ in range(steps):
            ended = self.rng.random((2, LANES)) < self.end / 2
            after, done = self._draw(), ended.any(axis=0)
            columns = act(
                policy.collect_mode.actor, self.obs, LANES, seed=int(self.rng.integers(1 << 30)), is_first=self.first
            )
            rollout.append(
                {
                    "obs": self.obs,
                    **columns,
                    "next_obs": after,
                    "lane": np.arange(LANES),
                    "episode_id": self.episode.copy(),
                    "reward": self.rng.normal(size=LANES).astype(np.float32),
                    "terminated": ended[0],
                    "truncated": ended[1] & ~ended[0],
                }
            )
            self.first = done
            self.episode += LANES * done
            self.obs = np.where(done[:, None], self._draw(), after)
        return rollout


def batch_of(policy: Policy, steps: int = 20, *, seed: int = 0) -> TransitionBatch:
    return policy.segment(Lanes(seed).play(policy, steps))[0].own_memory()


def episodes_of(batch: TransitionBatch) -> list[np.ndarray]:
    """Return the rows of each lane's stretch of one episode, in order of time."""
    keys = list(zip(batch["lane"].tolist(), batch["episode_id"].tolist(), strict=True))
    return [np.array([row for row, other in enumerate(keys) if other == key]) for key in sorted(set(keys))]


@torch.no_grad()
def walk(policy: Any, batch: TransitionBatch, rows: np.ndarray, state: dict[str, torch.Tensor]) -> Any:
    """Yield (row, output, value, value of next_obs, state before) step by step from a state, one observation a time."""
    model = policy.get_attribute("model")
    for row in rows:
        before = state
        output, value, state = model.actor_critic(torch.from_numpy(batch["obs"][row])[None, None], before)
        _, after, _ = model.actor_critic(torch.from_numpy(batch["next_obs"][row])[None, None], state)
        yield row, output[0], value.item(), after.item(), before


def zero_state(policy: Any) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(1, *value.shape) for name, value in policy.get_attribute("model").initial_state.items()}


# ---- acting and rows


@pytest.mark.parametrize("name", KINDS)
def test_stored_state_values_and_log_probabilities_are_those_computed_again_from_the_episodes_start(name: str) -> None:
    policy: Any = make(CASES[name])
    batch = batch_of(policy)

    ends = 0
    for rows in episodes_of(batch):
        for row, output, value, _, before in walk(policy, batch, rows, zero_state(policy)):
            for key, column in before.items():
                np.testing.assert_allclose(batch[f"state/{key}"][row], column[0], atol=1e-6)
            action = torch.from_numpy(batch[policy._family.column][row : row + 1])
            log_prob, _ = policy._family.log_prob_and_entropy(output, action)
            assert batch["log_prob"][row] == pytest.approx(log_prob.item(), abs=1e-5)
            assert batch["value"][row] == pytest.approx(value, abs=1e-5)
        ends += int(batch["terminated"][rows[-1]] | batch["truncated"][rows[-1]])
    assert ends >= 4


def test_advantages_equal_a_slow_walk_with_the_state_behind_a_truncated_step() -> None:
    policy: Any = make(CASES["ppo_recurrent"], collect=dict(gae_lambda=0.7))
    batch = batch_of(policy)

    kinds = set()
    for rows in episodes_of(batch):
        steps = list(walk(policy, batch, rows, zero_state(policy)))
        running = 0.0
        for row, _, value, after, _ in reversed(steps):
            future = 0.0 if batch["terminated"][row] else after
            running = batch["reward"][row] + 0.99 * future - value + 0.99 * 0.7 * running
            assert batch["advantage"][row] == pytest.approx(running, abs=1e-5)
        kinds.add((bool(batch["terminated"][rows[-1]]), bool(batch["truncated"][rows[-1]])))
    assert kinds == {(True, False), (False, True), (False, False)}


def test_a_lane_goes_on_from_its_state_in_the_next_rollout() -> None:
    policy: Any = make(CASES["ppo_recurrent"])
    lanes = Lanes(end=0.0)
    first = policy.segment(lanes.play(policy, 7))[0].own_memory()
    second = policy.segment(lanes.play(policy, 7))[0].own_memory()

    both = TransitionBatch.concat([first, second])

    for rows in episodes_of(both):
        assert len(rows) == 14
        for row, _, value, _, before in walk(policy, both, rows, zero_state(policy)):
            np.testing.assert_allclose(both["state/h"][row], before["h"][0], atol=1e-6)
            assert both["value"][row] == pytest.approx(value, abs=1e-5)


# ---- minibatches


def test_minibatches_are_whole_sequences_of_one_episode_in_order_and_every_row_comes_once_an_epoch() -> None:
    policy = make(CASES["ppo_recurrent"], learn=dict(epoch_per_collect=2, batch_size=16))
    batch = batch_of(policy)
    place = {obs.tobytes(): row for row, obs in enumerate(batch["obs"])}
    episode = {row: number for number, rows in enumerate(episodes_of(batch)) for row in rows}

    seen: list[int] = []
    sizes = []
    for minibatch in policy.learn_mode.minibatches(batch, np.random.default_rng(0)):
        rows = np.array([place[obs.tobytes()] for obs in minibatch["obs"]])
        for number in range(minibatch["sequence"].max() + 1):
            mine = rows[minibatch["sequence"] == number]
            assert len({episode[row] for row in mine}) == 1 and len(mine) <= 5
            assert (np.diff(mine) == LANES).all(), "steps of a lane that follow each other"
            assert minibatch["time"][minibatch["sequence"] == number].tolist() == list(range(len(mine)))
        for name in ("action", "log_prob", "advantage", "return_", "state/h"):
            np.testing.assert_array_equal(minibatch[name], batch[name][rows])
        seen += rows.tolist()
        sizes.append(len(rows))

    assert sorted(seen) == sorted([*range(len(batch))] * 2)
    assert len(sizes) == 10 and max(sizes) <= 16 + 5


def test_equal_lanes_of_two_segments_are_told_apart_by_their_numbers() -> None:
    policy = make(CASES["ppo_recurrent"], learn=dict(epoch_per_collect=1, batch_size=400))
    one, two = batch_of(policy, seed=1), batch_of(make(CASES["ppo_recurrent"]), seed=2)
    # As a learner of mode parallel numbers them: each segment's lanes are its own.
    both = TransitionBatch.concat([one, two.with_columns(lane=two["lane"] + LANES, episode_id=two["episode_id"])])

    (minibatch,) = policy.learn_mode.minibatches(both, np.random.default_rng(0))
    info, _ = policy.learn_mode.grad(minibatch)

    assert len(minibatch) == len(one) + len(two)
    assert float(info["approx_kl"]) == pytest.approx(0.0, abs=1e-6)


# ---- the loss


@pytest.mark.parametrize("name", KINDS)
def test_loss_equals_a_slow_walk_over_each_sequence_alone(name: str) -> None:
    policy = make(CASES[name], learn=dict(entropy_weight=0.1, batch_size=30))
    batch = batch_of(policy)
    moved(policy)

    for minibatch in policy.learn_mode.minibatches(batch, np.random.default_rng(0)):
        info, _ = policy.learn_mode.grad(minibatch)

        assert 0 < float(info["clip_fraction"])
        assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, minibatch), rel=2e-6, abs=1e-6)


def test_in_float64_the_loss_equals_a_slow_walk_and_its_gradient_finite_differences() -> None:
    case = CASES["ppo_recurrent gru several"]
    source = make(case, learn=dict(entropy_weight=0.1, epoch_per_collect=1, batch_size=400))
    batch, policy = batch_of(source), moved_in_float64(source)
    (rows,) = (in_float64(rows) for rows in source.learn_mode.minibatches(batch, np.random.default_rng(0)))

    info, _ = policy.grad(rows)

    assert float(info["total_loss"]) == pytest.approx(slow_loss(policy, rows), rel=1e-6)
    assert_finite_differences(policy._params, lambda: float(policy.grad(rows)[0]["total_loss"]))


def test_values_count_in_the_unit_of_the_returns() -> None:
    plain, scaled = make(CASES["ppo_recurrent"]), make(CASES["ppo_recurrent"], learn=dict(value_norm=True))
    scaled._returns.now.update(np.array([0.0, 8.0]))

    first, second = batch_of(plain), batch_of(scaled)

    np.testing.assert_allclose(second["value"], 4 * first["value"], rtol=1e-5)


# ---- config


# ---- learning what must be remembered
