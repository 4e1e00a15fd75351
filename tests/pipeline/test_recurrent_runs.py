"""Recurrent value learning through its whole way: collector, rows, buffer, minibatch; and a run resumed exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import compile_config
from ding_like.pipeline.components import build_serial
from ding_like.utils.registries import ENV_REGISTRY

GAMMA, NSTEP, BURN_IN, STEPS = 0.9, 3, 2, 4


class CountingEnv(gymnasium.Env[Any, Any]):
    """Show (lane, episode, step) and reward step + 1; episodes of 1 to 15 steps end in turn by both ways."""

    made = 0

    def __init__(self, cfg: Any = None) -> None:
        self.observation_space = spaces.Box(-1, 1000, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._lane, self._episode = CountingEnv.made, -1
        CountingEnv.made += 1

    def _obs(self) -> Any:
        return np.float32([self._lane, self._episode, self._step])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        ends = self._step == length_of(self._lane, self._episode)
        return self._obs(), float(self._step), ends and terminates(self._episode), ends, {}


def length_of(lane: int, episode: int) -> int:
    return 1 + (7 * episode + 3 * lane) % 15


def terminates(episode: int) -> bool:
    return episode % 2 == 0


@pytest.fixture
def _counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CountingEnv, "made", 0)
    ENV_REGISTRY.register("counting_env_of_sequences")(CountingEnv)
    yield


def configs() -> Any:
    main = dict(
        exp_name="exp",
        env=dict(collector_env_num=3, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            discount_factor=GAMMA,
            nstep=NSTEP,
            burnin_step=BURN_IN,
            learn_unroll_len=STEPS,
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(batch_size=32),
            collect=dict(n_sample=24),
            other=dict(replay_buffer=dict(replay_buffer_size=500)),
        ),
    )
    create = dict(env=dict(type="counting_env_of_sequences"), env_manager=dict(type="base"), policy=dict(type="r2d2"))
    return main, create


def state_before(model: Any, lane: int, episode: int, step: int) -> dict[str, np.ndarray]:
    """Return the recurrent state before a step, computed from the episode's start."""
    state = {name: torch.from_numpy(value)[None] for name, value in model.initial_state.items()}
    if step:
        obs = torch.tensor([[lane, episode, t] for t in range(step)], dtype=torch.float32)[None]
        with torch.no_grad():
            state = model.run(obs, state)[1]
    return {name: column[0].numpy() for name, column in state.items()}


def check_row(row: Any, model: Any) -> list[tuple[int, int, int]]:
    """Compare a row of a minibatch with what the env did; return the steps that are learned from."""
    lane, episode, first = (int(n) for n in row["obs"][0])
    length, count = length_of(lane, episode), int(row["num_steps"])
    begins = first == 0
    assert count == min(BURN_IN + STEPS, length - first)
    assert row["obs"][: count + 1].tolist() == [[lane, episode, first + i] for i in range(count + 1)]
    assert not row["obs"][count + 1 :].any()
    learned = [i for i in range(count) if begins or i >= BURN_IN]
    assert np.flatnonzero(row["mask"]).tolist() == learned
    for i in learned:
        end = min(i + NSTEP, count)
        value = sum(GAMMA ** (k - i) * (first + k + 1) for k in range(i, end))
        assert row["reward"][i] == pytest.approx(value) and row["discount"][i] == pytest.approx(GAMMA ** (end - i))
        assert row["terminated"][i] == (first + end == length and terminates(episode))
    for name, column in state_before(model, lane, episode, first).items():
        np.testing.assert_allclose(row[f"state/{name}"], column, atol=1e-5)
    return [(lane, episode, first + i) for i in learned]


@pytest.mark.usefixtures("_counting")
def test_a_minibatch_holds_what_the_env_did_and_the_state_that_its_steps_lead_to() -> None:
    parts = build_serial(compile_config(*configs(), save=False), seed=0)
    try:
        for _ in range(6):
            rows = parts.collector.collect(policy_kwargs={"eps": 0.5})
            parts.replay_buffer.push(rows, cur_collector_envstep=parts.collector.envstep)
        seen: set[tuple[int, int, int]] = set()
        checked: set[tuple[float, ...]] = set()
        for _ in range(100):
            batch = parts.replay_buffer.sample(32, 0)
            assert batch["weight"].shape == (32,)
            for row in batch:
                if tuple(row["obs"][0]) not in checked:
                    checked.add(tuple(row["obs"][0]))
                    seen.update(check_row(row, parts.policy.get_attribute("model")))
        info, priority = parts.policy.learn_mode.grad(batch)
        assert priority is not None and priority.shape == (32,) and np.isfinite(float(info["total_loss"]))
    finally:
        parts.close()

    whole = {(lane, ep, step) for lane in range(3) for ep in range(4) for step in range(length_of(lane, ep))}
    assert whole <= seen, "every step of the first episodes is learned from"
