"""Hold the results of an evaluation, a fixed number of episodes per env."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import SupportsFloat, cast

import numpy as np
import numpy.typing as npt

from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.worker.collector.stop_rule import episode_shares


class VectorEvalMonitor:
    """Take the *first* episodes of each env until its quota is full, so that short episodes are not preferred.

    With n_episode episodes over env_num envs, each env gives n_episode // env_num, the first envs one more where that
    does not divide evenly. Raises ConfigError if there are fewer episodes than envs.
    """

    def __init__(self, env_num: int, n_episode: int) -> None:
        self._quota = episode_shares(n_episode, env_num)
        self._returns: list[list[float]] = [[] for _ in range(env_num)]
        self._info: list[list[Mapping[str, object]]] = [[] for _ in range(env_num)]
        self._open_frames: list[list[Array]] = [[] for _ in range(env_num)]  # of episodes under way
        self._videos: list[list[list[Array]]] = [[] for _ in range(env_num)]

    def is_finished(self) -> bool:
        """Tell whether every env has filled its quota."""
        return all(len(mine) == quota for mine, quota in zip(self._returns, self._quota, strict=True))

    def is_full(self) -> Array:
        """Return bool[E]: the envs whose quota is filled, which need not be stepped."""
        return np.array([len(mine) == quota for mine, quota in zip(self._returns, self._quota, strict=True)])

    def update_reward(self, env_id: int, reward: SupportsFloat) -> None:
        """Take the return of one finished episode, a number or an array of one; ignored once the quota is full."""
        if len(self._returns[env_id]) < self._quota[env_id]:
            self._returns[env_id].append(float(cast(SupportsFloat, _plain(reward))))
            self._videos[env_id].append(self._open_frames[env_id])
            self._open_frames[env_id] = []

    def update_info(self, env_id: int, info: Mapping[str, object]) -> None:
        """Take the info of one finished episode, tensors as numbers or lists; ignored once the quota is full."""
        if len(self._info[env_id]) < self._quota[env_id]:
            self._info[env_id].append({name: _plain(value) for name, value in info.items()})

    def update_video(self, imgs: Sequence[npt.ArrayLike] | Mapping[int, npt.ArrayLike]) -> None:
        """Take a picture [H, W, C] of each env's episode under way, in a list of all or by env id.

        Those of envs that are full are ignored. Raises ConfigError for an env that there is none of.
        """
        by_env = imgs if isinstance(imgs, Mapping) else dict(enumerate(imgs))
        unknown = [env_id for env_id in by_env if env_id not in range(len(self._quota))]
        if unknown:
            raise ConfigError(f"pictures are of envs {unknown}; this monitor has envs 0 to {len(self._quota) - 1}.")
        for env_id, image in by_env.items():
            if len(self._returns[env_id]) < self._quota[env_id]:
                self._open_frames[env_id].append(np.asarray(image, np.uint8))

    def get_video(self) -> Array:
        """Return the worst, the median and the best episode by return: uint8 [N, T, C, H, W], N up to 4.

        Of four or more episodes both medians are shown; a shorter episode ends with its last picture standing still.
        Raises ConfigError if no pictures were taken.
        """
        pairs = [
            (value, frames)
            for returns, videos in zip(self._returns, self._videos, strict=True)
            for value, frames in zip(returns, videos, strict=True)
            if frames
        ]
        if not pairs:
            raise ConfigError("there is no video: give update_video a picture of each env before its episode ends.")
        pairs.sort(key=lambda pair: pair[0])
        last = len(pairs) - 1
        chosen = sorted({0, last // 2, last} if last < 3 else {0, last // 2, (last + 1) // 2, last})
        videos = [pairs[index][1] for index in chosen]
        longest = max(map(len, videos))
        padded = np.stack([np.stack(frames + frames[-1:] * (longest - len(frames))) for frames in videos])
        return np.ascontiguousarray(padded.transpose(0, 1, 4, 2, 3))

    def get_latest_reward(self, env_id: int) -> float:
        """Return the return of the newest episode of one env."""
        return self._returns[env_id][-1]

    def get_current_episode(self) -> int:
        """Return how many episodes are in."""
        return sum(len(mine) for mine in self._returns)

    def get_episode_return(self) -> list[float]:
        """Return all returns, env by env."""
        return [value for mine in self._returns for value in mine]

    def get_episode_info(self) -> dict[str, object] | None:
        """Return lists of the infos by name, with `<name>_mean` for numbers; None if the envs gave none."""
        infos = [info for mine in self._info for info in mine]
        if not infos:
            return None
        merged: dict[str, object] = {}
        for name in infos[0]:
            values = [info[name] for info in infos if name in info]
            merged[name] = values
            if all(isinstance(value, numbers.Number) for value in values):
                merged[f"{name}_mean"] = float(np.mean(cast(list[float], values)))
        return merged


def _plain(value: object) -> object:
    """Return a tensor or an array as a number or a list of them, also in lists and dicts; anything else as it is."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        return value
    values: object = to_list()
    if isinstance(values, list) and len(values) == 1 and not isinstance(values[0], list):
        return values[0]  # envs say numbers as arrays [1], too
    return values
