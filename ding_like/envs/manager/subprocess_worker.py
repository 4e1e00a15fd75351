"""Be one env in a process of its own: read commands from a pipe, leave results in shared memory. Imports no torch."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable, Mapping
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ding_like.envs.seed_style import as_gymnasium
from ding_like.envs.spaces import ActionLayout, ObsLayout, Space
from ding_like.types import Array, Obs

# Commands, one byte each; all but STEP and CLOSE are followed by JSON and raw bytes, each after its length.
STEP, RESET, REPLAY, REMAKE, CLOSE = b"s", b"r", b"p", b"m", b"c"
# Replies: OK alone, or one of the others followed by a length and JSON.
OK, TOLD, FAILED = b"k", b"i", b"e"

_LENGTH = struct.Struct("<I")


class Block(NamedTuple):
    """Say how arrays of all lanes lie in one block of shared memory."""

    arrays: dict[str, tuple[int, tuple[int, ...], str]]  # name -> (offset, shape, dtype)
    size: int

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Block:
        """Lay arrays of these shapes and dtypes one after another."""
        placed, offset = {}, 0
        for name, array in arrays.items():
            placed[name] = (offset, array.shape, array.dtype.str)
            # 64: each array begins on a cache line of its own.
            offset += -(-array.nbytes // 64) * 64
        return cls(placed, max(offset, 1))

    def views(self, memory: shared_memory.SharedMemory) -> dict[str, Array]:
        """Return the arrays in a block of memory."""
        return {
            name: np.ndarray(shape, dtype, memory.buf, offset) for name, (offset, shape, dtype) in self.arrays.items()
        }


def obs_of(views: Mapping[str, Array], prefix: str) -> Obs:
    """Return the arrays named `prefix` or `prefix/key` as an observation."""
    if prefix in views:
        return views[prefix]
    return {name[len(prefix) + 1 :]: view for name, view in views.items() if name.startswith(f"{prefix}/")}


def send(pipe: int, kind: bytes, payload: Mapping[str, Any] | None = None, raw: bytes = b"") -> None:
    """Write a message; without a payload it is one byte."""
    if payload is None:
        os.write(pipe, kind)
        return
    body = json.dumps(payload, default=_plain).encode()
    data = memoryview(kind + _LENGTH.pack(len(body)) + body + _LENGTH.pack(len(raw)) + raw)
    while data:
        data = data[os.write(pipe, data) :]


def receive_payload(pipe: int) -> tuple[dict[str, Any], bytes]:
    """Read what follows the kind of a message that has a payload. Raises EOFError if the other side is gone."""
    body = _read(pipe, _LENGTH.unpack(_read(pipe, _LENGTH.size))[0])
    raw = _read(pipe, _LENGTH.unpack(_read(pipe, _LENGTH.size))[0])
    return json.loads(body), raw


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(pipe, size - len(data))
        if not part:
            raise EOFError("the other side of the pipe is gone")
        data += part
    return data


def _plain(value: Any) -> Any:
    """Return numpy values as JSON takes them; anything else as its text."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return repr(value)


def run(
    env_fn: Callable[[], Any],
    lane: int,
    spaces: tuple[Space, Space],
    memory_name: str,
    block: Block,
    requests: Connection,
    replies: Connection,
) -> None:
    """Serve one env until the parent closes it or is gone."""
    # Ctrl-C goes to the whole group of processes; the parent decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = shared_memory.SharedMemory(name=memory_name)
    worker = _Worker(env_fn, lane, spaces, block.views(memory))
    commands: dict[bytes, Callable[[dict[str, Any], bytes], dict[str, Any] | None]] = {
        RESET: worker.reset,
        REPLAY: worker.replay,
        REMAKE: worker.make,
    }
    request, reply = requests.fileno(), replies.fileno()
    try:
        while (command := os.read(request, 1)) not in (CLOSE, b""):
            try:
                told = worker.step() if command == STEP else commands[command](*receive_payload(request))
            except Exception as error:  # an env may raise anything; the parent counts it and makes the env anew
                send(reply, FAILED, {"error": type(error).__name__, "message": str(error)})
            else:
                send(reply, OK if told is None else TOLD, told)
    except (EOFError, BrokenPipeError):
        pass  # the parent is gone: so is the reason to be
    finally:
        worker.close()
        worker.views.clear()
        memory.close()


class _Worker:
    def __init__(
        self, env_fn: Callable[[], Any], lane: int, spaces: tuple[Space, Space], views: dict[str, Array]
    ) -> None:
        self._env_fn = env_fn
        self._lane = lane
        self._spaces = spaces
        self._layout, self._actions = ObsLayout(spaces[0]), ActionLayout(spaces[1])
        self.views = views
        self._write_obs = self._layout.writer(obs_of(views, "obs"))
        self._write_next_obs = self._layout.writer(obs_of(views, "next_obs"))
        self._env: gymnasium.Env[Any, Any] | None = None

    def make(self, payload: dict[str, Any], raw: bytes) -> None:
        """Make the env, in place of a broken one."""
        self.close()
        env = as_gymnasium(self._env_fn())
        if (env.observation_space, env.action_space) != self._spaces:
            raise ValueError(
                f"its spaces are {env.observation_space} and {env.action_space}, env 0 has {self._spaces[0]} and "
                f"{self._spaces[1]}; all envs of a manager need the same"
            )
        self._env = env

    def _made(self) -> gymnasium.Env[Any, Any]:
        assert self._env is not None, "the parent makes the env before it uses it"
        return self._env

    def step(self) -> dict[str, Any] | None:
        lane, views = self._lane, self.views
        action = self._actions.split(views["action"][lane : lane + 1])[0]
        started = time.perf_counter()
        obs, reward, terminated, truncated, info = self._made().step(action)
        views["busy_s"][lane] += time.perf_counter() - started
        self._write_next_obs(lane, obs)
        self._write_obs(lane, obs)
        views["reward"][lane] = reward
        views["ended"][lane] = (terminated, truncated)
        return {"info": info} if info else None

    def reset(self, payload: dict[str, Any], raw: bytes) -> None:
        started = time.perf_counter()
        obs, _ = self._made().reset(seed=payload["seed"], options=payload["options"])
        self.views["busy_s"][self._lane] += time.perf_counter() - started
        if fault := self._layout.fault(obs):
            raise ValueError(f"its first observation {fault}")
        self._write_obs(self._lane, obs)

    def replay(self, payload: dict[str, Any], raw: bytes) -> None:
        """Reset with a seed and play actions again; the last observation ends up in `obs`."""
        self.reset(payload, b"")
        env = self._made()
        for action in self._actions.split(np.frombuffer(raw, payload["dtype"]).reshape(payload["shape"])):
            obs, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                obs, _ = env.reset(options=payload["options"])
            self._write_obs(self._lane, obs)

    def close(self) -> None:
        if self._env is not None:
            env, self._env = self._env, None
            env.close()
