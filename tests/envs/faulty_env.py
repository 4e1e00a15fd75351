"""Envs that break in ways that only a process of their own survives, at ordered moments or at given rates."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs import make_env
from ding_like.envs.wrappers import wrap
from tests.envs.scripted_env import ScriptedEnv
from tests.worker.collector.scripted_game import ScriptedGame


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    threading.Event().wait()


def hang_with_the_interpreter() -> None:
    """Hang as a C extension does: no other thread of this interpreter runs any more."""
    ctypes.PyDLL(None).pause()


DEADLY = {
    "segfault": segfault,
    "hang": hang,
    "hang_with_the_interpreter": hang_with_the_interpreter,
    "exit": lambda: os._exit(3),
}


class DeadlyEnv(ScriptedEnv):
    """Follow a script whose `faults` may also be those of `DEADLY`; with `no_two_alike` no instance repeats another."""

    def __init__(self, env_id: int = 0, *, no_two_alike: bool = False, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self._mark = float(os.getpid()) if no_two_alike else 0.0

    def _fault(self) -> str | None:
        fault = super()._fault()
        if fault in DEADLY:
            DEADLY[fault]()
        return fault

    def _obs(self, fault: str | None) -> Any:
        return super()._obs(fault) + self._mark


class ProbeEnv(gymnasium.Env[Any, Any]):
    """Observe [seed of the last seeded reset, steps since, options of the last reset, process id, is torch here].

    In `info` a step says what it was given and what was asked for as `info` of the constructor.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float64)

    def __init__(self, *, action_space: Any = None, length: int = 4, info: Any = None) -> None:
        self.action_space = action_space or spaces.Discrete(2)
        self._length = length
        self._info = info
        self._seed = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._steps = seed, 0
        self._t = 0
        self._options = (options or {}).get("level", 0)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        self._steps += 1
        info = {} if self._info is None else {"asked": self._info, "action": action}
        return self._obs(), float(np.sum(action)), self._t >= self._length, False, info

    def _obs(self) -> Any:
        return np.array([self._seed % 2**20, self._steps, self._options, os.getpid(), "torch" in sys.modules])


class GateEnv(gymnasium.Env[Any, Any]):
    """Env whose steps wait for a byte of the FIFO at `gate`; without one they return at once. Observes its steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, gate: str | None = None) -> None:
        self._gate = gate

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._gate is not None:
            with open(self._gate) as gate:
                gate.read()
        self._t += 1
        return np.array([self._t]), 1.0, False, False, {}


class UnmakeableEnv(gymnasium.Env[Any, Any]):
    """Break, or hang, in the constructor."""

    def __init__(self, how: str = "raise") -> None:
        if how == "raise":
            raise FileNotFoundError("no simulator here")
        DEADLY[how]()


class UnreliableEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Break an env at `rates` per step or reset, and each kind once by schedule; note each fault in `folder`.

    Kinds: "raise_in_step", "raise_in_reset", "hang", "segfault". `schedule` maps a kind to (lane, calls): it strikes
    that lane's env once it has been called so often. The draws depend on `seed`, the lane, and how many envs the lane
    has had before.
    """

    def __init__(
        self,
        env: Any,
        *,
        lane: int,
        seed: int,
        rates: dict[str, float],
        schedule: dict[str, tuple[int, int]],
        folder: str,
    ) -> None:
        super().__init__(env)
        self._lane = lane
        self._rates = rates
        self._schedule = schedule
        self._folder = Path(folder)
        self._calls = 0
        instance = next(n for n in range(10**9) if self._is_first(f"{lane}.env{n}"))
        self._rng = np.random.default_rng([seed, lane, instance])

    def reset(self, **kwargs: Any) -> Any:
        self._maybe_break(("raise_in_reset",))
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self._maybe_break(("raise_in_step", "hang", "segfault"))
        return super().step(action)

    def _maybe_break(self, kinds: tuple[str, ...]) -> None:
        self._calls += 1
        for kind in kinds:
            lane, calls = self._schedule.get(kind, (-1, 0))
            is_due = lane == self._lane and self._calls >= calls and self._is_first(f"scheduled.{kind}")
            if is_due or self._rng.random() < self._rates.get(kind, 0.0):
                self._break(kind, by_schedule=is_due)

    def _break(self, kind: str, *, by_schedule: bool) -> None:
        with open(self._folder / f"{self._lane}.jsonl", "a") as file:
            file.write(json.dumps(dict(kind=kind, lane=self._lane, calls=self._calls, scheduled=by_schedule)) + "\n")
        if kind in DEADLY:
            DEADLY[kind]()
        raise RuntimeError(f"injected: {kind}")

    def _is_first(self, name: str) -> bool:
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def make_unreliable(cfg: Any) -> Any:
    """Make the env of a config; one with an entry `unreliable` breaks as its keyword arguments say."""
    env = make_env(cfg)
    return UnreliableEnv(env, **cfg["unreliable"]) if "unreliable" in cfg else env


class NormalisedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A scripted env behind `obs_norm`, at the top of a module, as a process of its own needs it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(wrap(DeadlyEnv(**kwargs), [dict(type="obs_norm")]))


class DeadlyToAskEnv(ScriptedEnv):
    """Count how often it was asked for its state and, with the process, die of the third time; but once only."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = Path(mark)
        self._calls = 0

    def state_dict(self) -> dict[str, Any]:
        self._calls += 1
        if self._calls == 3 and not self._mark.exists():
            self._mark.touch()
            segfault()
        return {"calls": self._calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._calls = 0


class SetStateEnv(ScriptedEnv):
    def state_dict(self) -> dict[str, Any]:
        return {"seen": {3}}


class FaultyGame(ScriptedGame):
    """Go wrong once, in the middle of an episode; the marker says that it was done."""

    def __init__(self, game: int, *, in_turn: bool, fault: str, marker: str) -> None:
        super().__init__(game, in_turn=in_turn, lengths=(4, 5, 6))
        self._fault, self._marker = fault, Path(marker)

    def step(self, actions: Any) -> Any:
        is_time = self._episode[0] == 1 and self._move == 2 and not self._marker.exists()
        if is_time:
            self._marker.touch()
        if is_time and self._fault == "hang":
            time.sleep(600.0)
        if is_time and self._fault == "die":
            os._exit(3)
        if is_time and self._fault == "raise":
            raise RuntimeError("the game broke")
        step = super().step(actions)
        if is_time:
            for each in step.obs:
                each[0] = np.nan
        return step


class WrongGame:
    def __init__(self) -> None:
        raise ValueError("there is no such game")


class HangingGame(ScriptedGame):
    def __init__(self) -> None:
        super().__init__(0)

    def step(self, actions: Any) -> Any:
        time.sleep(600.0)
