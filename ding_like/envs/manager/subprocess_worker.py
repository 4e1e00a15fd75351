"""Memory that the env manager 'subprocess' shares with its worker processes, and what runs in each of them.

Commands come through one pipe, answers go through another; observations, rewards and actions stay in shared memory.
Nothing here imports torch.
"""

from __future__ import annotations

import functools
import mmap
import os
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np

from ding_like.data.obs import columns_to_obs, obs_to_columns
from ding_like.data.schema import Field, Schema
from ding_like.data.space_json import space_from_json, space_to_json
from ding_like.envs.factory import make_lane_env
from ding_like.envs.manager.lane import close_envs, first_obs_fault, play_again, recreate, reward_fault
from ding_like.envs.manager.process import check_arrives, describe_failure, serve
from ding_like.envs.spaces import ActionLayout, AnyEnv, ObsLayout
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.types import Array, EnvAction, Info, Json, Obs, Section, State

# Messages and env configs are trees of many types, hence Any throughout this file.

# What a process is doing with an env; each has a deadline of its own.
STEP, RESET, MAKE, ASK = range(4)
_NUM_KINDS = 4

# A cache line: rows of two processes in one line would slow both down.
_ALIGNMENT = 64


class Start(NamedTuple):
    """First message to a worker process; pickled, as the start arguments of a process are."""

    number: int  # of the process
    lanes: Sequence[int]
    num_lanes: int
    num_processes: int
    env_fns: Sequence[bytes]  # pickled one by one, so that a broken one can be named
    spaces: Sequence[Any] | None  # as described; None: make the envs and return their spaces
    is_first: bool  # of all processes of envs: gymnasium's warnings are alike in all of them, and shown by this one


class LaneMemory:
    """Shared columns, a row per lane; a process writes the rows of its lanes, and only while it carries out a command.

    `obs` is what to act on next, or, right after a step that ended an episode, its true last observation, and
    `first_obs` where the last reset or replay of a lane left it. An episode that ends `reseed_after` or more steps
    after the last seeded reset is followed by a reset with `next_seed`.
    """

    def __init__(self, file: int, layout: ObsLayout, actions: ActionLayout, *, num_lanes: int, num_processes: int):
        obs = Schema.of(obs_to_columns("obs", layout.allocate(0)))
        fields = {
            **obs,
            **{f"first_{name}": field for name, field in obs.items()},
            "action": Field(actions.shape, actions.dtype),
            "reward": Field((), np.dtype(np.float32)),
            "next_seed": Field((), np.dtype(np.int64)),
            "reseed_after": Field((), np.dtype(np.int64)),
            "doing": Field((8,), np.dtype(np.float64)),
        }
        rows = {name: num_processes if name == "doing" else num_lanes for name in fields}
        sizes = [rows[name] * int(np.prod(field.shape)) * field.dtype.itemsize for name, field in fields.items()]
        offsets = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]).tolist()
        os.ftruncate(file, offsets[-1])
        memory = mmap.mmap(file, offsets[-1])
        columns: dict[str, Array] = {
            name: np.ndarray((rows[name], *field.shape), field.dtype, memory, offset)
            for (name, field), offset in zip(fields.items(), offsets[:-1], strict=True)
        }
        self.obs: Obs = columns_to_obs("obs", columns)
        self.first_obs: Obs = columns_to_obs("first_obs", columns)
        self.action = columns["action"]
        self.reward = columns["reward"]
        self.next_seed = columns["next_seed"]
        self.reseed_after = columns["reseed_after"]
        self._doing = columns["doing"]

    def doing(self, process: int) -> Doing:
        """Return the activity record of a process."""
        return Doing(self._doing[process])


class Doing:
    """Activity record of a process: what it is doing with which lane since when, and how long it was busy in all."""

    def __init__(self, row: Array) -> None:
        # [begun at, 0 or 1 + 4 * lane + kind, busy seconds]; a memoryview takes half the time of an array here.
        self._row: Any = row.data  # Any: to the type checker, a memoryview holds ints

    def begin(self, lane: int, kind: int, now_s: float) -> None:
        """Record that work on a lane begins; what is written first is read last, so that the two belong together."""
        self._row[0] = now_s
        self._row[1] = 1 + _NUM_KINDS * lane + kind

    def end(self, busy_s: float = 0.0) -> None:
        """Record that a command was carried out, or that the process has ended."""
        self._row[1] = 0
        self._row[2] += busy_s

    @property
    def busy_s(self) -> float:
        return float(self._row[2])

    def read(self) -> tuple[float, int, int] | None:
        """Return (begun at, lane, kind), None if there is no work or it changes just now."""
        since, code = self._row[0], int(self._row[1])
        if not code or self._row[0] != since:
            return None
        return float(since), *divmod(code - 1, _NUM_KINDS)


class EnvWorker:
    """Owner of the envs of some lanes: makes, resets, steps and replays them on command.

    A command is None, which steps all lanes, or `{"do": kind, "lanes": [[lane, *arguments], ...]}`. The answer has a
    dict for each lane with something to report, and is None without any: most steps report nothing. Its entries are
    `ended` (terminated, truncated), `info`, `failed` (an exception, or the name of what is not finite), `unbegun` (the
    same, of the reset that began an episode), `wrappers` (their states just before a seeded reset), `states` (the same
    when asked) and `fault` (a broken rule: trying again is of no use).
    """

    def __init__(self, start: Start, memory_file: int) -> None:
        os.set_inheritable(memory_file, False)
        if not start.is_first:
            warnings.filterwarnings("ignore", module=r"gymnasium\.")
        self._lanes = list(start.lanes)
        self._make = {
            lane: functools.partial(_make_env, pickled)
            for lane, pickled in zip(self._lanes, start.env_fns, strict=True)
        }
        self._envs: dict[int, AnyEnv] = {}
        self._options: dict[int, dict[str, Any] | None] = dict.fromkeys(self._lanes)
        self._since_seeded = dict.fromkeys(self._lanes, 0)  # steps since the last seeded reset
        self._reports: dict[int, dict[str, Any]] = {}
        self._spaces = start.spaces
        if start.spaces is None:
            self._envs = {lane: make() for lane, make in self._make.items()}
            envs = self._envs.values()
            first = self._envs[self._lanes[0]]
            self._layout, self._actions = ObsLayout(first.observation_space), ActionLayout(first.action_space)
            self._spaces = [[space_to_json(env.observation_space), space_to_json(env.action_space)] for env in envs]
        else:
            observation_space, action_space = map(space_from_json, start.spaces)
            self._layout, self._actions = ObsLayout(observation_space), ActionLayout(action_space)
        numbers = {"num_lanes": start.num_lanes, "num_processes": start.num_processes}
        self._memory = LaneMemory(memory_file, self._layout, self._actions, **numbers)
        self._doing = self._memory.doing(start.number)
        self._write = self._layout.writer(self._memory.obs)
        self._write_first = self._layout.writer(self._memory.first_obs)
        own = slice(self._lanes[0], self._lanes[-1] + 1)
        self._own_obs = _part(self._memory.obs, own)
        self._own_rewards = self._memory.reward[own]

    def made(self) -> Section:
        """Return the spaces of the envs and the states of their wrappers."""
        return {"spaces": self._spaces, "wrappers": {lane: self._wrapper_states(lane) for lane in self._envs}}

    def carry_out(self, command: Json) -> Json:
        """Carry out one command and return the answer; None if there is nothing to report."""
        started = time.monotonic()
        self._reports = {}
        if command is None:
            self._step(self._lanes)
        elif command["do"] == "step":
            self._step([lane for (lane,) in command["lanes"]])
        else:
            methods: dict[str, Callable[..., None]] = {
                "begin": self._begin_episode,
                "replay": self._replay,
                "ask": self._answer,
            }
            for lane, *arguments in command["lanes"]:
                try:
                    methods[command["do"]](lane, *arguments)
                except Exception as error:  # an env or a wrapper may raise anything; the manager decides what follows
                    name = "unbegun" if command["do"] == "begin" else "failed"
                    self._report(lane, name, describe_failure(error))
        self._doing.end(time.monotonic() - started)
        return self._reports or None

    def _report(self, lane: int, name: str, value: object) -> None:
        self._reports.setdefault(lane, {})[name] = value

    def _step(self, lanes: Sequence[int]) -> None:
        memory, begin, clock = self._memory, self._doing.begin, time.monotonic
        taken = self._actions.split(memory.action[lanes])  # a copy: envs may keep what they are given
        for lane, action in zip(lanes, taken, strict=True):
            begin(lane, STEP, clock())
            self._since_seeded[lane] += 1
            obs = None
            try:
                obs, reward, terminated, truncated, info = self._envs[lane].step(action)
                self._write(lane, obs)
                if fault := reward_fault(reward):
                    self._report(lane, "fault", fault)
                    return
                memory.reward[lane] = reward
            except Exception as error:  # an env may raise anything; the manager has it recreated
                self._report(lane, "failed", describe_failure(self._layout.explained(error, obs)))
                continue
            if info:
                self._report(lane, "info", info)
            if terminated or truncated:
                self._report(lane, "ended", (bool(terminated), bool(truncated)))
                self._begin_after_episode(lane)
        if not (self._layout.all_finite(self._own_obs) and np.isfinite(self._own_rewards).all()):
            self._find_nonfinite(lanes)

    def _find_nonfinite(self, lanes: Sequence[int]) -> None:
        finite_obs = self._layout.finite_rows(self._own_obs)
        for lane in lanes:
            if "failed" not in self._reports.get(lane, {}):
                if not np.isfinite(self._memory.reward[lane]):
                    self._report(lane, "failed", "reward")
                elif not finite_obs[lane - self._lanes[0]]:
                    self._report(lane, "failed", "observation")

    def _begin_after_episode(self, lane: int) -> None:
        """Reset a lane by the rule of `Lane.seed_after_episode`, without asking the manager."""
        is_seeded = self._since_seeded[lane] >= self._memory.reseed_after[lane]
        try:
            self._begin(lane, int(self._memory.next_seed[lane]) if is_seeded else None)
        except Exception as error:  # an env may raise anything; the manager has it recreated
            self._report(lane, "unbegun", describe_failure(error))

    def _begin_episode(
        self, lane: int, options: Info | None, wrappers: list[State], seed: int, make_anew: bool
    ) -> None:
        """Reset a lane; a recreated env gets the states of its predecessor's wrappers, or else `wrappers`."""
        self._options[lane] = options
        if make_anew or lane not in self._envs:
            self._make_anew(lane, wrappers)
        self._begin(lane, seed)

    def _begin(self, lane: int, seed: int | None) -> None:
        self._doing.begin(lane, RESET, time.monotonic())
        if seed is not None and (states := self._wrapper_states(lane)):
            self._report(lane, "wrappers", states)
        obs, _ = self._envs[lane].reset(seed=seed, options=self._options[lane])
        if fault := first_obs_fault(self._layout, lane, obs):
            self._report(lane, "fault", fault)
            return
        self._write_first(lane, obs)
        if not self._layout.all_finite(_part(self._memory.first_obs, slice(lane, lane + 1))):
            self._report(lane, "unbegun", "first observation")
        if seed is not None:
            self._since_seeded[lane] = 0

    def _make_anew(self, lane: int, wrappers: list[State]) -> None:
        self._doing.begin(lane, MAKE, time.monotonic())
        self._envs[lane] = recreate(self._make[lane], self._envs.pop(lane, None), wrappers)

    def _replay(self, lane: int, options: Info | None, wrappers: list[State], seed: int, actions: Any) -> None:
        """Bring a lane back to where it was: reset it with its seed and play its actions again."""
        self._options[lane] = options
        self._since_seeded[lane] = len(actions)

        def note(action: EnvAction) -> None:
            # A step that is played again may be followed by a reset, hence the deadline of a reset.
            self._doing.begin(lane, RESET, time.monotonic())

        if lane not in self._envs:
            self._make_anew(lane, wrappers)
        note(None)
        env, taken = self._envs[lane], self._actions.split(actions)
        load_wrapper_states(env, wrappers)
        self._write_first(lane, play_again(env, seed=seed, options=options, actions=taken, note=note))

    def _answer(self, lane: int, do: str, states: Sequence[Any]) -> None:
        """Return the states of a lane's wrappers, after they "load" theirs or "adopt" those of other lanes."""
        self._doing.begin(lane, ASK, time.monotonic())
        if do == "load":
            load_wrapper_states(self._envs[lane], states)
        elif do == "adopt":
            adopt_wrapper_states(self._envs[lane], states)
        self._report(lane, "states", self._wrapper_states(lane))

    def _wrapper_states(self, lane: int) -> list[State]:
        states = wrapper_states(self._envs[lane])
        check_arrives(states)
        return states

    def close(self) -> None:
        """Close every env."""
        close_envs(self._envs)


def _make_env(pickled: bytes) -> AnyEnv:
    return make_lane_env(ForkingPickler.loads(pickled))


def _part(obs: Obs, rows: slice) -> Obs:
    """Return a view of some rows."""
    return {key: array[rows] for key, array in obs.items()} if isinstance(obs, dict) else obs[rows]


def main(read_end: int, write_end: int, life: int, start_file: int, memory_file: int) -> None:
    """Serve the manager at the other end of the pipes until it closes them or dies."""
    serve(read_end, write_end, life, start_file, lambda start: EnvWorker(start, memory_file))
