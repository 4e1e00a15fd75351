"""Run each env in a process of its own, with results in shared memory; env manager 'subprocess'.

A step writes the actions into shared memory and wakes each process with one byte; a process answers with one byte when
its row is there. An env that raises is made anew, a process that dies or hangs is replaced, and in each case only that
lane's open episode is dropped.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import select
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np

from ding_like.data.obs import obs_to_columns, take_lanes
from ding_like.envs.manager import subprocess_worker as protocol
from ding_like.envs.manager.array_manager import ArrayEnvManager, rows_equal
from ding_like.envs.seed_style import as_gymnasium
from ding_like.errors import EnvError
from ding_like.types import Array, Obs, State, StepBatch
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

logger = logging.getLogger(__name__)

# Seconds that a process has to end by itself, and after SIGTERM, before it is killed.
_CLOSE_S = 2.0
# Steps of all lanes by which stepping in processes is compared with stepping here.
_WATCHED_STEPS = 100


class _ProcessLostError(EnvError):
    """Say that a process died or hangs: only a new one helps."""


class _Child:
    """Hold one process and its pipes; it owes an answer to one command at a time."""

    def __init__(self, start: Callable[[Connection, Connection], BaseProcess]) -> None:
        context = multiprocessing.get_context("spawn")
        request_end, self._requests = context.Pipe(duplex=False)
        self._replies, reply_end = context.Pipe(duplex=False)
        try:
            self._process = start(request_end, reply_end)
        finally:
            # The child has its own; while these are open nobody would see that it is gone.
            request_end.close()
            reply_end.close()
        self.reply_fd = self._replies.fileno()
        self._request_fd = self._requests.fileno()
        self.owes = b""  # the command without an answer
        self.deadline = 0.0  # when that answer is late

    def ask(
        self, command: bytes, payload: Mapping[str, Any] | None = None, raw: bytes = b"", *, timeout_s: float
    ) -> None:
        """Send a command. If nobody is there, the end of the reply pipe is the answer."""
        self.owes, self.deadline = command, time.monotonic() + timeout_s
        with contextlib.suppress(BrokenPipeError):
            protocol.send(self._request_fd, command, payload, raw)

    def answer(self) -> dict[str, Any]:
        """Read the answer that is there. Raises what the env raised, or _ProcessLostError if nobody answers."""
        kind = os.read(self.reply_fd, 1)
        if kind == protocol.OK:
            return {}
        try:
            told = protocol.receive_payload(self.reply_fd)[0] if kind else None
        except EOFError:
            told = None
        if told is None:
            self._process.join(_CLOSE_S)
            raise _ProcessLostError(f"its process died with exit code {self._process.exitcode}")
        if kind == protocol.FAILED:
            raise _error_of(told["error"], told["message"])
        return told

    def close(self, *, kill: bool) -> None:
        """End the process, by force if it does not end by itself."""
        if not kill:
            with contextlib.suppress(OSError):
                protocol.send(self._request_fd, protocol.CLOSE)
            self._process.join(_CLOSE_S)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()
        self._requests.close()
        self._replies.close()


def _error_of(name: str, message: str) -> Exception:
    """Return an error as an env raised it in its process; one that is not built in keeps its name in the text."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some, such as UnicodeDecodeError, want more than a message
            return kind(message)
    return EnvError(f"{name}: {message}")


class _Answer(NamedTuple):
    lane: int
    command: bytes
    told: dict[str, Any]
    error: Exception | None


@ENV_MANAGER_REGISTRY.register("subprocess")
class SubprocessEnvManager(ArrayEnvManager):
    """Step envs side by side in processes, and reset ended ones there.

    By default `step` waits for all lanes that it stepped, which is what an exact resume needs. With `wait_num` = n it
    returns when n lanes have answered; the others are not ready and answer a later call.
    """

    config: dict[str, Any] = {
        **ArrayEnvManager.config,
        # How many answers a step waits for; 0: for all.
        "wait_num": 0,
        # Seconds that a process has to start and make its env.
        "launch_timeout_s": 60.0,
    }

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(len(env_fn), cfg)
        self.lane_seeds = not self._cfg["wait_num"]
        self._env_fn = list(env_fn)
        self._children: list[_Child | None] = [None] * self.num_lanes
        self._lane_of: dict[int, int] = {}  # reply pipe -> lane
        self._seeds: list[int | None] = [None] * self.num_lanes  # of the reset under way
        self._poll = select.poll()
        self._num_watched, self._watched_s = 0, 0.0
        env = as_gymnasium(self._env_fn[0]())
        self._spaces = env.observation_space, env.action_space
        env.close()
        self._set_spaces(*self._spaces)
        lanes = self.num_lanes
        self._block = protocol.Block.of(
            {
                **obs_to_columns("obs", self._layout.allocate(lanes)),
                **obs_to_columns("next_obs", self._layout.allocate(lanes)),
                "reward": np.zeros(lanes, np.float64),
                "ended": np.zeros((lanes, 2), bool),
                "busy_s": np.zeros(lanes, np.float64),  # spent in env.step and env.reset
                "action": np.zeros((lanes, *self._actions.shape), self._actions.dtype),
            }
        )
        self._memory = shared_memory.SharedMemory(create=True, size=self._block.size)
        self._views = self._block.views(self._memory)
        self._obs, self._next_obs = (protocol.obs_of(self._views, name) for name in ("obs", "next_obs"))
        self._ready[:] = False

    @property
    def obs(self) -> Obs:
        return self._obs

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...] and return the lanes that answered, ascending.

        A lane that has not answered after `timeout_s` (None: `step_timeout_s`) gets a new process.
        """
        self._check_running()
        chosen = self._check_lanes(lanes)
        limit_s = self._cfg["step_timeout_s"] if timeout_s is None else timeout_s
        taken = self._actions.for_envs(actions, len(chosen))
        if chosen:
            self._views["action"][chosen] = taken
        for lane, action in zip(chosen, self._actions.split(taken), strict=True):
            self._lanes[lane].journal.append(action)
            self._child(lane).ask(protocol.STEP, timeout_s=limit_s)
        self._ready[chosen] = False
        if len(chosen) < self.num_lanes or self._num_watched >= _WATCHED_STEPS:
            return self._collect(self._cfg["wait_num"])
        started = time.perf_counter()
        batch = self._collect(self._cfg["wait_num"])
        self._watched_s += time.perf_counter() - started
        self._num_watched += 1
        if self._num_watched == _WATCHED_STEPS:
            self._compare_with_base()
        return batch

    def _collect(self, enough: int) -> StepBatch:
        """Take answers until nobody owes one, or `enough` (if not 0) lanes have stepped; ended ones are reset."""
        ended: dict[int, tuple[bool, bool]] = {}
        infos: dict[int, Mapping[str, Any]] = {}
        dropped: list[int] = []
        reward, flags = self._views["reward"], self._views["ended"]
        while self._is_owed() and not (enough and len(ended) >= enough):
            answers = self._wait()
            finite = bool(np.isfinite(reward).all()) and self._layout.all_finite(self._next_obs)
            for answer in answers:
                lane = answer.lane
                if answer.command != protocol.STEP:
                    self._go_on(answer)
                    continue
                error = answer.error
                if error is None and not finite:
                    error = self._find_nonfinite(lane)
                if error is not None:
                    dropped.append(lane)
                    self._mend(lane, error)
                    continue
                ended[lane] = bool(flags[lane, 0]), bool(flags[lane, 1])
                if "info" in answer.told:
                    infos[lane] = answer.told["info"]
                self._after_step(lane, is_over=any(ended[lane]))
        rows = np.array(sorted(ended), np.int64)
        over = np.array([ended[lane] for lane in rows.tolist()], bool).reshape(-1, 2)
        return StepBatch(
            lanes=rows,
            next_obs=take_lanes(self._next_obs, rows),
            reward=reward[rows].astype(np.float32),
            terminated=over[:, 0].copy(),
            truncated=over[:, 1].copy(),
            info=infos,
            dropped=np.array(sorted(dropped), np.int64),
        )

    def _after_step(self, lane: int, *, is_over: bool) -> None:
        if is_over:
            self._lanes[lane].crashes.has_finished()
            self._ask_reset(lane, self._lanes[lane].seed_after_episode())
        else:
            self._ready[lane] = True

    def _find_nonfinite(self, lane: int) -> Exception | None:
        if not np.isfinite(self._views["reward"][lane]):
            return self._nonfinite(lane, "reward")
        if not self._layout.finite_rows(take_lanes(self._next_obs, np.array([lane])))[0]:
            return self._nonfinite(lane, "observation")
        return None

    # ---- answers

    def _is_owed(self) -> bool:
        return any(child is not None and child.owes for child in self._children)

    def _wait(self) -> list[_Answer]:
        """Wait until somebody answers or is late; an answer that is late is an error of its own."""
        owing = [(lane, child) for lane, child in enumerate(self._children) if child is not None and child.owes]
        first_deadline = min(child.deadline for _, child in owing)
        events = self._poll.poll(max(first_deadline - time.monotonic(), 0.0) * 1000.0)
        if events:
            return [self._read(self._lane_of[pipe]) for pipe, _ in events]
        now = time.monotonic()
        answers = []
        for lane, child in owing:
            if child.deadline <= now:
                late = _ProcessLostError("it did not answer in time and is taken to hang")
                answers.append(_Answer(lane, child.owes, {}, late))
                child.owes = b""
        return answers

    def _read(self, lane: int) -> _Answer:
        child = self._child(lane)
        command, child.owes = child.owes, b""
        try:
            return _Answer(lane, command, child.answer(), None)
        except Exception as error:  # whatever an env raised
            return _Answer(lane, command, {}, error)

    def _go_on(self, answer: _Answer) -> None:
        """Take the next step towards a ready lane: a new env is reset, a reset one is ready, a broken one is mended."""
        lane = answer.lane
        if answer.error is not None:
            self._mend(lane, answer.error)
        elif answer.command == protocol.REMAKE:
            self._ask_reset(lane, self._lanes[lane].draw_seed())
        elif not self._layout.finite_rows(take_lanes(self._obs, np.array([lane])))[0]:
            self._mend(lane, self._nonfinite(lane, "first observation"))
        else:
            self._lanes[lane].has_begun(self._seeds[lane])
            self._ready[lane] = True

    def _mend(self, lane: int, error: Exception) -> None:
        """Count a crash, and make the env anew: in its process, or in a new one if that is gone."""
        self._ready[lane] = False
        if isinstance(error, _ProcessLostError):
            self._stop(lane, kill=True)
        self._lanes[lane].has_crashed(error)
        if isinstance(error, _ProcessLostError):
            self._start(lane)
        else:
            self._child(lane).ask(protocol.REMAKE, {}, timeout_s=self._cfg["reset_timeout_s"])

    def _ask_reset(self, lane: int, seed: int | None) -> None:
        self._ready[lane] = False
        self._seeds[lane] = seed
        payload = {"seed": seed, "options": self._lanes[lane].options}
        self._child(lane).ask(protocol.RESET, payload, timeout_s=self._cfg["reset_timeout_s"])

    def _reset_lanes(self, lanes: list[int]) -> None:
        self._forget_answers(lanes)
        for lane in lanes:
            self._ask_reset(lane, self._lanes[lane].draw_seed())
        while not self._ready[lanes].all():
            for answer in self._wait():
                if answer.command == protocol.STEP:
                    self._put_back(answer)
                else:
                    self._go_on(answer)

    def _forget_answers(self, lanes: list[int]) -> None:
        """Wait for what these lanes still owe: it belongs to episodes that are broken off now."""
        while any(self._child(lane).owes for lane in lanes):
            for answer in self._wait():
                if answer.lane not in lanes:
                    self._put_back(answer)
                elif answer.error is not None:
                    self._mend(answer.lane, answer.error)
                elif answer.command == protocol.REMAKE:
                    self._go_on(answer)

    def _put_back(self, answer: _Answer) -> None:
        """Treat an answer that nobody waits for now as an episode that goes on unseen: its lane begins a new one."""
        if answer.error is not None or answer.command != protocol.STEP:
            self._go_on(answer)
        else:
            self._ask_reset(answer.lane, self._lanes[answer.lane].draw_seed())

    # ---- processes

    def launch(self) -> None:
        """Start all processes at once, make and reset the envs; a second call does nothing."""
        self._check_open()
        if self._is_launched:
            return
        for lane in self._all:
            self._start(lane)
        self._let_start()
        super().launch()

    def _let_start(self) -> None:
        """Wait until every process that was started has made its env."""
        while any(child is not None and child.owes == protocol.REMAKE for child in self._children):
            for answer in self._wait():
                if answer.error is not None:
                    raise EnvError(
                        f"env {answer.lane} could not be made in its process: {answer.error}. A script that starts a "
                        'run does so under `if __name__ == "__main__":`.'
                    ) from answer.error

    def _child(self, lane: int) -> _Child:
        child = self._children[lane]
        assert child is not None, "a lane without a process is not asked"
        return child

    def _start(self, lane: int) -> None:
        child = _Child(functools.partial(self._spawn, lane))
        self._children[lane] = child
        self._lane_of[child.reply_fd] = lane
        self._poll.register(child.reply_fd, select.POLLIN)
        child.ask(protocol.REMAKE, {}, timeout_s=self._cfg["launch_timeout_s"])

    def _spawn(self, lane: int, requests: Connection, replies: Connection) -> BaseProcess:
        process = multiprocessing.get_context("spawn").Process(
            target=protocol.run,
            args=(self._env_fn[lane], lane, self._spaces, self._memory.name, self._block, requests, replies),
            name=f"env-{lane}",
            daemon=True,
        )
        try:
            process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise EnvError(
                f"the env of lane {lane} cannot be sent to a process ({error}): define its class or function at the "
                "top of a module, or use env_manager type 'base'."
            ) from error
        return process

    def _stop(self, lane: int, *, kill: bool) -> None:
        child = self._children[lane]
        if child is not None:
            self._children[lane] = None
            self._poll.unregister(child.reply_fd)
            del self._lane_of[child.reply_fd]
            child.close(kill=kill)

    def _close_envs(self) -> None:
        for lane in self._all:
            self._stop(lane, kill=False)
        if hasattr(self, "_memory"):
            self._views.clear()
            del self._obs, self._next_obs
            self._memory.close()
            self._memory.unlink()

    def _compare_with_base(self) -> None:
        """Say it if stepping in this process would have been faster, going by the first steps of the run."""
        here_s = float(self._views["busy_s"].sum())
        if here_s < self._watched_s:
            logger.info(
                "env_manager type 'base' would be about %.1fx faster here: the envs worked for %.0f us a step, all of "
                "them together, and stepping them side by side took %.0f us.",
                self._watched_s / here_s,
                here_s / _WATCHED_STEPS * 1e6,
                self._watched_s / _WATCHED_STEPS * 1e6,
            )

    # ---- resume

    def _restore(self, state: State) -> list[int]:
        for lane in self._all:
            if self._children[lane] is None:
                self._start(lane)
        self._let_start()
        if not self.lane_seeds:
            return self._all
        for lane in self._all:
            saved = state["lanes"][lane]
            if saved["can_replay"]:
                actions = np.ascontiguousarray(saved["actions"], self._actions.dtype)
                payload = {
                    "seed": saved["reset_seed"],
                    "options": self._lanes[lane].options,
                    "dtype": actions.dtype.str,
                    "shape": actions.shape,
                }
                self._lanes[lane].has_begun(saved["reset_seed"])
                self._lanes[lane].journal.extend(self._actions.split(actions))
                self._child(lane).ask(
                    protocol.REPLAY, payload, actions.tobytes(), timeout_s=self._cfg["launch_timeout_s"]
                )
        lost = [lane for lane in self._all if not state["lanes"][lane]["can_replay"]]
        while self._is_owed():
            for answer in self._wait():
                self._ready[answer.lane] = answer.error is None
                if answer.error is not None:
                    logger.warning("env %d broke while its actions were played again: %s", answer.lane, answer.error)
                    lost.append(answer.lane)
                    if isinstance(answer.error, _ProcessLostError):
                        self._stop(answer.lane, kill=True)
                        self._start(answer.lane)
        is_equal = rows_equal(self._obs, state["obs"])
        return sorted({*lost, *np.flatnonzero(~is_equal).tolist()})
