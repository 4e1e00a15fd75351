"""Run in a process of its own and step the envs of some lanes there; the other side is `subprocess_process`.

Commands come through one pipe, answers go through another; observations, rewards and actions stay in shared memory.
Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import functools
import logging
import os
import signal
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import spawn
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ding_like.envs.factory import make_lane_env
from ding_like.envs.manager.lane import play_again
from ding_like.envs.manager.subprocess_memory import ASK, MAKE, RESET, STEP, LaneMemory
from ding_like.envs.manager.subprocess_message import (
    Channel,
    check_arrives,
    describe_failure,
    describe_space,
    space_of,
)
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.types import Obs, State

logger = logging.getLogger(__name__)

# Messages and env configs are trees of many types, hence Any throughout this file.

# True while this process imports the script that started it: that script must not start processes then.
is_importing_main = False


class Start(NamedTuple):
    """Tell a process what it runs; pickled, as the start arguments of a process are."""

    number: int  # of the process
    lanes: Sequence[int]
    num_lanes: int
    num_processes: int
    env_fns: Sequence[bytes]  # pickled one by one, so that a broken one can be named
    spaces: Sequence[Any] | None  # as described; None: make the envs and say which spaces they have
    preparation: dict[str, Any]  # sys.path and the like, for multiprocessing.spawn.prepare
    is_first: bool  # of all processes of envs: what gymnasium warns of is alike in all of them, and said in this one


@dataclass
class Report:
    """Collect what a command reports beside its result; most steps report nothing."""

    ended: list[tuple[int, bool, bool]] = field(default_factory=list)  # lane, terminated, truncated
    infos: list[tuple[int, Any]] = field(default_factory=list)
    failed: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    nonfinite: list[tuple[int, str]] = field(default_factory=list)
    # Lanes whose new episode could not begin, though the last one ended well.
    unbegun: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    bad_beginnings: list[int] = field(default_factory=list)  # their first observation is not finite
    # What the wrappers of a lane remember: just before a seeded reset, or when asked.
    wrappers: list[tuple[int, list[State]]] = field(default_factory=list)
    fault: str | None = None  # what breaks the rules at every try

    def as_message(self) -> dict[str, Any] | None:
        return {name: value for name, value in vars(self).items() if value} or None


class EnvWorker:
    """Make, reset, step and replay the envs of some lanes, as commands say."""

    def __init__(self, start: Start, memory_file: int) -> None:
        self._lanes = list(start.lanes)
        self._make = {
            lane: functools.partial(_make_env, pickled)
            for lane, pickled in zip(self._lanes, start.env_fns, strict=True)
        }
        self._envs: dict[int, gymnasium.Env[Any, Any]] = {}
        self._options: dict[int, dict[str, Any] | None] = dict.fromkeys(self._lanes)
        self._since_seeded = dict.fromkeys(self._lanes, 0)  # steps since the last seeded reset
        self._spaces = start.spaces
        if start.spaces is None:
            self._envs = {lane: make() for lane, make in self._make.items()}
            envs = self._envs.values()
            first = self._envs[self._lanes[0]]
            self._layout, self._actions = ObsLayout(first.observation_space), ActionLayout(first.action_space)
            self._spaces = [[describe_space(env.observation_space), describe_space(env.action_space)] for env in envs]
        else:
            observation_space, action_space = map(space_of, start.spaces)
            self._layout, self._actions = ObsLayout(observation_space), ActionLayout(action_space)
        self._memory = LaneMemory(
            memory_file,
            self._layout,
            self._actions,
            num_lanes=start.num_lanes,
            num_processes=start.num_processes,
        )
        self._doing = self._memory.doing(start.number)
        self._write = self._layout.writer(self._memory.obs)
        self._write_first = self._layout.writer(self._memory.first_obs)
        own = slice(self._lanes[0], self._lanes[-1] + 1)
        self._own_obs = _part(self._memory.obs, own)
        self._own_rewards = self._memory.reward[own]

    def carry_out(self, command: Any) -> Any:
        """Carry out one command and return the answer; None says that there is nothing to say."""
        started = time.monotonic()
        report = Report()
        if command is None:
            self._step(self._lanes, report)
        elif command["do"] == "step":
            self._step(command["lanes"], report)
        elif command["do"] == "begin":
            for lane, seed, options, wrappers, make_anew in command["lanes"]:
                self._options[lane] = options
                self._begin_as_told(lane, seed, wrappers, make_anew, report)
        elif command["do"] == "replay":
            for lane, seed, options, wrappers, actions in command["lanes"]:
                self._options[lane] = options
                self._replay(lane, seed, wrappers, actions, report)
        else:
            self._answer(command["do"], command["lanes"], command["states"], report)
        self._doing.end(time.monotonic() - started)
        return report.as_message()

    def _step(self, lanes: Sequence[int], report: Report) -> None:
        memory, begin, clock = self._memory, self._doing.begin, time.monotonic
        taken = self._actions.split(memory.action[lanes])  # a copy: envs may keep what they are given
        for lane, action in zip(lanes, taken, strict=True):
            begin(lane, STEP, clock())
            self._since_seeded[lane] += 1
            obs = None
            try:
                obs, reward, terminated, truncated, info = self._envs[lane].step(action)
                self._write(lane, obs)
                if shape := getattr(reward, "shape", ()):
                    report.fault = f"rewards have shape {shape}, expected one number; return float(reward)."
                    return
                if reward is None or isinstance(reward, str):
                    report.fault = (
                        f"a reward is {type(reward).__name__} {reward!r}, expected one number: set it on "
                        "every path through step(), and return float(reward)."
                    )
                    return
                memory.reward[lane] = reward
            except Exception as error:  # an env may raise anything; the manager has it recreated
                report.failed.append((lane, describe_failure(self._layout.explained(error, obs))))
                continue
            if info:
                report.infos.append((lane, info))
            if terminated or truncated:
                report.ended.append((lane, bool(terminated), bool(truncated)))
                self._begin_after_episode(lane, report)
        if not (self._layout.all_finite(self._own_obs) and np.isfinite(self._own_rewards).all()):
            self._find_nonfinite(lanes, report)

    def _find_nonfinite(self, lanes: Sequence[int], report: Report) -> None:
        finite_obs = self._layout.finite_rows(self._own_obs)
        failed = {lane for lane, _ in report.failed}
        for lane in set(lanes) - failed:
            if not np.isfinite(self._memory.reward[lane]):
                report.nonfinite.append((lane, "reward"))
            elif not finite_obs[lane - self._lanes[0]]:
                report.nonfinite.append((lane, "observation"))

    def _begin_after_episode(self, lane: int, report: Report) -> None:
        """Reset a lane by the rule that `Lane.seed_after_episode` states, so that no one need be asked."""
        is_seeded = self._since_seeded[lane] >= self._memory.reseed_after[lane]
        try:
            self._begin(lane, int(self._memory.next_seed[lane]) if is_seeded else None, report)
        except Exception as error:  # an env may raise anything; the manager has it recreated
            report.unbegun.append((lane, describe_failure(error)))

    def _begin_as_told(
        self, lane: int, seed: int | None, wrappers: list[State], make_anew: bool, report: Report
    ) -> None:
        """Reset a lane; `wrappers` is for an env that is recreated where no old one knows better."""
        try:
            if make_anew or lane not in self._envs:
                self._make_anew(lane, wrappers)
            self._begin(lane, seed, report)
        except Exception as error:  # an env may raise anything; the manager has it recreated
            report.unbegun.append((lane, describe_failure(error)))

    def _begin(self, lane: int, seed: int | None, report: Report) -> None:
        self._doing.begin(lane, RESET, time.monotonic())
        if seed is not None and (states := self._wrapper_states(lane)):
            report.wrappers.append((lane, states))
        obs, _ = self._envs[lane].reset(seed=seed, options=self._options[lane])
        if fault := self._layout.fault(obs):
            report.fault = (
                f"the first observation of env {lane} {fault}. Fix the env or its space, in a wrapper "
                "self.observation_space."
            )
            return
        self._write_first(lane, obs)
        if not self._layout.all_finite(_part(self._memory.first_obs, slice(lane, lane + 1))):
            report.bad_beginnings.append(lane)
        if seed is not None:
            self._since_seeded[lane] = 0

    def _make_anew(self, lane: int, wrappers: list[State]) -> None:
        self._doing.begin(lane, MAKE, time.monotonic())
        broken = self._envs.pop(lane, None)
        if broken is not None:
            wrappers = wrapper_states(broken)
            try:
                broken.close()
            except Exception as error:  # close() of a broken env may raise anything; the env is replaced
                logger.debug("closing the broken env %d failed: %s", lane, error)
        env = self._make[lane]()
        load_wrapper_states(env, wrappers)
        self._envs[lane] = env

    def _replay(self, lane: int, seed: int, wrappers: list[State], actions: Any, report: Report) -> None:
        self._since_seeded[lane] = len(actions)

        def note(action: Any) -> None:
            # A step that is played again may be followed by a reset, hence the deadline of a reset.
            self._doing.begin(lane, RESET, time.monotonic())

        try:
            if lane not in self._envs:
                self._make_anew(lane, wrappers)
            note(None)
            env, taken = self._envs[lane], self._actions.split(actions)
            load_wrapper_states(env, wrappers)
            obs = play_again(env, seed=seed, options=self._options[lane], actions=taken, note=note)
            self._write_first(lane, obs)
        except Exception as error:  # an env may raise anything; the lane counts as lost
            report.failed.append((lane, describe_failure(error)))

    def _answer(self, do: str, lanes: Sequence[int], states: Sequence[Any], report: Report) -> None:
        """Have wrappers "load" the states of each lane, "adopt" those of other lanes or just "tell" their own."""
        for row, lane in enumerate(lanes):
            self._doing.begin(lane, ASK, time.monotonic())
            try:
                if do == "load":
                    load_wrapper_states(self._envs[lane], states[row])
                elif do == "adopt":
                    adopt_wrapper_states(self._envs[lane], states)
                report.wrappers.append((lane, self._wrapper_states(lane)))
            except Exception as error:  # a wrapper may raise anything; the manager raises it
                report.failed.append((lane, describe_failure(error)))

    def _wrapper_states(self, lane: int) -> list[State]:
        states = wrapper_states(self._envs[lane])
        check_arrives(states)
        return states

    def made(self) -> dict[str, Any]:
        """Return which spaces the envs have and what their wrappers know from the start."""
        return {"spaces": self._spaces, "wrappers": [(lane, self._wrapper_states(lane)) for lane in self._envs]}

    def close(self) -> None:
        """Close every env."""
        for lane, env in self._envs.items():
            try:
                env.close()
            except Exception as error:  # close() may raise anything; the other envs are closed too
                logger.warning("closing env %d failed: %s: %s", lane, type(error).__name__, error)


def _make_env(pickled: bytes) -> gymnasium.Env[Any, Any]:
    return make_lane_env(ForkingPickler.loads(pickled))


def _part(obs: Obs, rows: slice) -> Obs:
    """Return a view of some rows."""
    return {key: array[rows] for key, array in obs.items()} if isinstance(obs, dict) else obs[rows]


def main(read_end: int, write_end: int, life: int, memory_file: int) -> None:
    """Serve the manager at the other end of the pipes until it closes them or dies."""
    os.set_inheritable(memory_file, False)
    channel = settle(read_end, write_end, life)
    with contextlib.suppress(EOFError, BrokenPipeError):
        channel.send()
        worker = _start(channel, memory_file)
        if worker is not None:
            try:
                while True:
                    channel.send(worker.carry_out(channel.receive()))
            finally:
                worker.close()


def settle(read_end: int, write_end: int, life: int) -> Channel:
    """Let this process live and die as its manager says; return the channel to it."""
    for descriptor in (read_end, write_end, life):
        os.set_inheritable(descriptor, False)
    _die_with_the_manager(life)
    faulthandler.enable()
    # The manager decides when its envs end: Ctrl-C and a scheduler's SIGTERM are its matter. Handlers rather than
    # SIG_IGN, which programs that an env starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_the_manager)
    return Channel(read_end, write_end)


def prepare(preparation: dict[str, Any]) -> None:
    """Import the script that started this process, if the envs need it, without starting what it starts."""
    global is_importing_main
    is_importing_main = True
    spawn.prepare(preparation)
    is_importing_main = False


def _start(channel: Channel, memory_file: int) -> EnvWorker | None:
    """Return the worker that the manager asks for; None, and the cause is sent, if it cannot be made."""
    start: Start = ForkingPickler.loads(channel.receive())
    try:
        prepare(start.preparation)
        if not start.is_first:
            warnings.filterwarnings("ignore", module=r"gymnasium\.")
        worker = EnvWorker(start, memory_file)
        made = worker.made()
    except Exception as error:  # importing and making envs runs the user's code; the manager raises it
        channel.send({"failure": describe_failure(error)})
        return None
    channel.send(made)
    return worker


def _leave_to_the_manager(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


def _die_with_the_manager(life: int) -> None:
    """Have the system end this process when the manager's end of the `life` pipe closes, whatever an env is doing.

    The end of the pipe is a signal of the kernel's, SIGIO, and its default is death: no lock of the interpreter is in
    the way, as it would be for a thread that watches.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
