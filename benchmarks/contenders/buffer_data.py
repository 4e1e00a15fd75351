"""The rows that all contenders of the `buffer` benchmark store; imports numpy only and pins nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

Columns = dict[str, np.ndarray[Any, Any]]  # obs, next_obs, action, reward, done: the same five for everyone

SEQUENCE_STEPS = 40
NUM_LANES = 8
FRAME_STACK = 4
_FRAME = (84, 84)
_CARTPOLE_STEPS = 200  # of an episode
_ATARI_STEPS = 1000


def cartpole(rng: np.random.Generator, rows: int) -> Columns:
    """Return rows of the size of CartPole's."""
    obs = rng.standard_normal((rows + 1, 4)).astype(np.float32)
    return {"obs": obs[:-1].copy(), "next_obs": obs[1:].copy(), **_rest(rng, rows, _CARTPOLE_STEPS)}


def atari(rng: np.random.Generator, rows: int) -> Columns:
    """Return stacks [rows, 4, 84, 84] of noise; an episode begins with four times its first frame."""
    stacks, next_stacks = [], []
    for start in range(0, rows, _ATARI_STEPS):
        steps = min(_ATARI_STEPS, rows - start)
        frames = rng.integers(0, 256, (steps + 1, *_FRAME), np.uint8)
        frames = np.concatenate([np.repeat(frames[:1], FRAME_STACK - 1, axis=0), frames])
        windows = np.lib.stride_tricks.sliding_window_view(frames, FRAME_STACK, axis=0).transpose(0, 3, 1, 2)
        stacks.append(windows[:-1])
        next_stacks.append(windows[1:])
    return {"obs": np.concatenate(stacks), "next_obs": np.concatenate(next_stacks), **_rest(rng, rows, _ATARI_STEPS)}


def _rest(rng: np.random.Generator, rows: int, episode_steps: int) -> Columns:
    done = np.zeros(rows, bool)
    done[episode_steps - 1 :: episode_steps] = True
    done[-1] = True  # what is pushed over and over must not run on into its own beginning
    return {"action": rng.integers(0, 2, rows), "reward": np.ones(rows, np.float32), "done": done}


def cut(columns: Columns, size: int) -> list[Columns]:
    """Return consecutive parts of `size` rows; a rest at the end stays away."""
    rows = len(columns["reward"])
    return [
        {name: column[start : start + size] for name, column in columns.items()}
        for start in range(0, rows - size + 1, size)
    ]


def count_episodes(done: np.ndarray[Any, Any], first_episode: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Return of each row the number of its episode and of its step in it, int64[B] both."""
    rows = np.arange(len(done))
    starts = np.r_[0, np.flatnonzero(done[:-1]) + 1]
    episode = np.cumsum(np.r_[False, done[:-1]])
    return first_episode + episode, rows - starts[episode]
