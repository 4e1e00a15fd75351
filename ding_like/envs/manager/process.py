"""Worker processes for envs and games: how the manager starts and ends them, their messages, and their main loop.

Messages are JSON with arrays. Nothing that a worker process sends is unpickled: a value in an env's `info` that is
neither plain Python nor numpy arrives as its `repr`.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import faulthandler
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn, Protocol

import cloudpickle
import numpy as np

from ding_like import errors
from ding_like.data.batch import Field, Schema, columns_to_obs, obs_to_columns
from ding_like.data.spaces import space_from_json, space_to_json
from ding_like.envs.factory import make_lane_env
from ding_like.envs.manager.base import close_envs, first_obs_fault, play_again, recreate, reward_fault, view_rows
from ding_like.envs.spaces import ActionLayout, AnyEnv, ObsLayout
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrapper_states
from ding_like.errors import EnvError, raised_at
from ding_like.types import Array, EnvAction, EnvFn, Info, Json, Obs, Section, State
from ding_like.utils.processes import require_posix

_BOOT = "import sys; sys.path[:] = {path!r}; sys.argv = {argv!r}; from {module} import main; main({ends})"
_LENGTH_BYTES = 4
_CHUNK_BYTES = 65536  # what a pipe holds: most messages are read at once
_KIND = "__kind__"  # marks a dict that encodes a value without a JSON type
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Channel:
    """Pair of pipes that carries one message at a time; None is the cheapest message, four bytes without JSON."""

    def __init__(self, read_end: int, write_end: int, *, foreign: Callable[[Any], Any] = repr) -> None:
        self.read_end = read_end
        self._write_end = write_end
        self._foreign = foreign  # converts a value that is neither plain Python nor numpy

    def send(self, message: Json = None) -> None:
        """Send a message. Raises BrokenPipeError if the reader has ended."""
        body = b"" if message is None else json.dumps(_plain(message, self._foreign)).encode()
        data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
        sent = os.write(self._write_end, data)
        while sent < len(data):
            sent += os.write(self._write_end, data[sent : sent + _CHUNK_BYTES])

    def receive(self) -> Json:
        """Wait for a message and return it. Raises EOFError if the other side has ended."""
        data, size = b"", _LENGTH_BYTES
        while len(data) < size:
            more = os.read(self.read_end, _CHUNK_BYTES)
            if not more:
                raise EOFError("the other side closed the pipe")
            data += more
            size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        return json.loads(data[_LENGTH_BYTES:], object_hook=_from_plain) if size > _LENGTH_BYTES else None

    def close_write_end(self) -> None:
        """Close the sending end, so that the other side reads the end of the pipe; a second call does nothing."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


def _plain(value: object, foreign: Callable[[Any], Any]) -> Any:
    """Return `value` as JSON holds it; `_from_plain` restores its types."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and _KIND not in value:
            return {key: _plain(inner, foreign) for key, inner in value.items()}
        items = [[_plain(key, foreign), _plain(inner, foreign)] for key, inner in value.items()]
        return {_KIND: "dict", "items": items}
    if isinstance(value, (list, tuple)):
        items = [_plain(inner, foreign) for inner in value]
        return items if isinstance(value, list) else {_KIND: "tuple", "items": items}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject and value.dtype.names is None:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        data = base64.b64encode(value.tobytes()).decode()
        return {_KIND: kind, "dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "data": base64.b64encode(value).decode()}
    return foreign(value)


def _from_plain(value: dict[str, Any]) -> Any:
    kind = value.get(_KIND)
    if kind is None:
        return value
    if kind in ("dict", "tuple"):
        return (dict if kind == "dict" else tuple)(value["items"])
    data = base64.b64decode(value["data"])
    if kind == "bytes":
        return data
    array = np.frombuffer(data, value["dtype"]).reshape(value["shape"])
    return array.copy() if kind == "array" else array[()]


def refuse_foreign(value: object) -> NoReturn:
    """Raise EnvError for a value that would not arrive as it is."""
    raise EnvError(
        f"the state_dict of a wrapper, or reset options hold {value!r}, a {type(value).__name__}; between the manager "
        "and an env in a process of its own go plain Python and numpy only. Build such objects inside the env, or use "
        "manager type 'base'."
    )


def describe_failure(error: BaseException) -> dict[str, str]:
    """Return an exception as texts, from which `failure_of` makes an equal one without importing its class."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = {"module": type(error).__module__, "name": type(error).__name__}
    return {**kind, "text": str(error), "trace": trace, "at": raised_at(error)}


class RemoteError(Exception):
    """Traceback of the env's own process: the cause of the exception that is raised in this one."""

    def __str__(self) -> str:
        return f"in the env's process:\n{self.args[0]}"


def failure_of(described: dict[str, str]) -> Exception:
    """Return an exception of the described class, or of one with its name if it is neither builtin nor ours."""
    home = {"builtins": builtins, "ding_like.errors": errors}.get(described["module"])
    kind = getattr(home, described["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(described["name"], (Exception,), {})
    try:
        error: Exception = kind(described["text"])
    except TypeError:  # UnicodeDecodeError and a few others take more than a text
        error = RuntimeError(f"{described['name']}: {described['text']}")
    error.__cause__ = RemoteError(described["trace"])
    vars(error)["raised_at"] = described["at"]  # read by `utils/imports.py`
    return error


# --- in the manager's process


def anonymous_file() -> int:
    """Return the descriptor of memory without a name: the system frees it with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("env process")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class WorkerProcess:
    """Fresh Python interpreter that runs the `main` of one of our modules and is sent `start`, pickled.

    It is not a `multiprocessing.Process`, which would import the user's script, and with it all that the script imports
    (torch: seconds, hundreds of megabytes), and require a `__main__` guard in it.
    """

    def __init__(self, module: str, start: Any, *descriptors: int) -> None:
        """Start it without waiting; `main` gets what `serve` takes, and `descriptors`, which it inherits.

        Raises ConfigError on Windows.
        """
        require_posix("an env or game in a process of its own", instead="Use env.manager.type=base")
        theirs_read, ours_write = os.pipe()
        ours_read, theirs_write = os.pipe()
        life_read, self._life = os.pipe()
        theirs = (theirs_read, theirs_write, life_read)
        self.channel = Channel(ours_read, ours_write, foreign=refuse_foreign)
        self.is_running = True
        # In a file: to write it into a pipe would be to wait until the process reads.
        start_file = anonymous_file()
        with open(start_file, "wb", closefd=False) as file:
            file.write(ForkingPickler.dumps(start))
        inherited = (*theirs, start_file, *descriptors)
        path = [str(folder) for folder in sys.path]
        boot = _BOOT.format(path=path, argv=sys.argv, module=module, ends=", ".join(map(str, inherited)))
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", boot],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                # A group of its own: Ctrl-C in the terminal does not reach it, and a kill ends all that its envs
                # have started.
                start_new_session=True,
                # Envs side by side must not each take all cores for their linear algebra.
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        finally:
            for end in (*theirs, start_file):
                os.close(end)

    def send(self, message: Json = None) -> None:
        """Send a message; that the process has ended is noticed when its answer is read."""
        with contextlib.suppress(BrokenPipeError):
            self.channel.send(message)

    def end(self) -> str:
        """Kill the process and all that its envs have started; return how it ended."""
        self.is_running = False
        # One that has ended already keeps its exit code.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        code = self._popen.wait()
        self.channel.close_write_end()
        os.close(self.channel.read_end)
        os.close(self._life)
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def stop_all(processes: Iterable[WorkerProcess], timeout_s: float) -> int:
    """End processes: idle ones close their envs, others are killed after `timeout_s`. Return how many were killed."""
    running = {process.channel.read_end: process for process in processes if process.is_running}
    poll = select.poll()
    for read_end, process in running.items():
        poll.register(read_end, select.POLLIN)
        process.channel.close_write_end()
    give_up_s = time.monotonic() + timeout_s
    while running and (left_s := give_up_s - time.monotonic()) > 0:
        for read_end, _ in poll.poll(left_s * 1000):
            if not os.read(read_end, 65536):  # anything else is an answer that is not waited for
                poll.unregister(read_end)
                running.pop(read_end).end()
    for process in running.values():
        process.end()
    return len(running)


def pickle_env_fns(env_fn: Sequence[EnvFn]) -> list[bytes]:
    """Return the callables as bytes that a new process makes them from: by name, those of the script with their code.

    Raises EnvError naming one that cannot be sent.
    """
    pickled = []
    for lane, make in enumerate(env_fn):
        # Written here and read by a process that this one starts, through a file: no other pickle is ever loaded.
        try:
            pickled.append(bytes(cloudpickle.dumps(make)))
        except Exception as error:  # __reduce__ of a user's class may raise anything
            raise EnvError(
                f"env {lane} cannot be made in a process of its own: {make!r} cannot be pickled "
                f"({type(error).__name__}: {error}). Give env_fn a class or function at the top of a module, a "
                "functools.partial of one, or an EnvFactory; or use manager type 'base'."
            ) from error
    return pickled


# --- in a worker process


class Worker(Protocol):
    """Owner of the envs or the game of one worker process."""

    def made(self) -> Section:
        """Return the first answer: what was made."""

    def carry_out(self, command: Json) -> Json:
        """Carry out one command and return the answer."""

    def close(self) -> None: ...


def serve(read_end: int, write_end: int, life: int, start_file: int, make: Callable[[Any], Worker]) -> None:
    """Make a worker of the start message and answer commands until the manager closes the pipes or ends."""
    import fcntl  # not on Windows, where `WorkerProcess` starts none

    for descriptor in (read_end, write_end, life):
        os.set_inheritable(descriptor, False)
    # The system ends this process when the manager's end of the `life` pipe closes, whatever an env is doing: that is a
    # signal of the kernel's, SIGIO, and its default is death. No lock of the interpreter is in the way, as it would be
    # for a thread that watches.
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    faulthandler.enable()
    # The manager decides when its envs end: Ctrl-C and a scheduler's SIGTERM are sent to it too. Handlers rather than
    # SIG_IGN, which programs that an env starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    channel = Channel(read_end, write_end)
    with contextlib.suppress(EOFError, BrokenPipeError):
        with open(start_file, "rb") as file:
            file.seek(0)
            start = ForkingPickler.loads(file.read())
        try:
            worker = make(start)
            made = worker.made()
        except Exception as error:  # importing and making envs runs the user's code; the manager raises it
            channel.send({"failure": describe_failure(error)})
            return
        try:
            channel.send(made)
            while True:
                channel.send(worker.carry_out(channel.receive()))
        finally:
            worker.close()


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

    def __init__(self, file: int, layout: ObsLayout, actions: ActionLayout, num_lanes: int, num_processes: int) -> None:
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
        self.action, self.reward = columns["action"], columns["reward"]
        self.next_seed, self.reseed_after = columns["next_seed"], columns["reseed_after"]
        self.doing = [Doing(row) for row in columns["doing"]]  # by process


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

    A command is None, which steps all lanes, or `[kind, [[lane, *arguments], ...]]`. The answer has a
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
        self._pickled = dict(zip(self._lanes, start.env_fns, strict=True))
        self._envs: dict[int, AnyEnv] = {}
        self._options: dict[int, dict[str, Any] | None] = dict.fromkeys(self._lanes)
        self._since_seeded = dict.fromkeys(self._lanes, 0)  # steps since the last seeded reset
        self._reports: dict[int, dict[str, Any]] = {}
        self._spaces = start.spaces
        if start.spaces is None:
            self._envs = {lane: self._make(lane) for lane in self._lanes}
            made = [(env.observation_space, env.action_space) for env in self._envs.values()]
            observation_space, action_space = made[0]
            self._spaces = [list(map(space_to_json, own)) for own in made]
        else:
            observation_space, action_space = map(space_from_json, start.spaces)
        self._layout, self._actions = ObsLayout(observation_space), ActionLayout(action_space)
        self._memory = LaneMemory(memory_file, self._layout, self._actions, start.num_lanes, start.num_processes)
        self._doing = self._memory.doing[start.number]
        self._write = self._layout.writer(self._memory.obs)
        self._write_first = self._layout.writer(self._memory.first_obs)
        own = self._lanes[0], self._lanes[-1] + 1
        self._own_obs = view_rows(self._memory.obs, *own)
        self._own_rewards = self._memory.reward[slice(*own)]

    def _make(self, lane: int) -> AnyEnv:
        return make_lane_env(ForkingPickler.loads(self._pickled[lane]))

    def made(self) -> Section:
        """Return the spaces of the envs and the states of their wrappers."""
        return {"spaces": self._spaces, "wrappers": {lane: self._wrapper_states(lane) for lane in self._envs}}

    def carry_out(self, command: Json) -> Json:
        """Carry out one command and return the answer; None if there is nothing to report."""
        started = time.monotonic()
        self._reports = {}
        kind, lanes = ("step", [[lane] for lane in self._lanes]) if command is None else command
        if kind == "step":
            self._step([lane for (lane,) in lanes])
        else:
            methods: dict[str, Callable[..., None]]
            methods = {"begin": self._begin_episode, "replay": self._replay, "ask": self._answer}
            for lane, *arguments in lanes:
                try:
                    methods[kind](lane, *arguments)
                except Exception as error:  # an env or a wrapper may raise anything; the manager decides what follows
                    self._report(lane, "unbegun" if kind == "begin" else "failed", describe_failure(error))
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
                # By the rule of `Lane.seed_after_episode`, without asking the manager.
                is_seeded = self._since_seeded[lane] >= memory.reseed_after[lane]
                try:
                    self._begin(lane, int(memory.next_seed[lane]) if is_seeded else None)
                except Exception as error:  # an env may raise anything; the manager has it recreated
                    self._report(lane, "unbegun", describe_failure(error))
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
        if not self._layout.all_finite(view_rows(self._memory.first_obs, lane, lane + 1)):
            self._report(lane, "unbegun", "first observation")
        if seed is not None:
            self._since_seeded[lane] = 0

    def _make_anew(self, lane: int, wrappers: list[State]) -> None:
        self._doing.begin(lane, MAKE, time.monotonic())
        self._envs[lane] = recreate(lambda: self._make(lane), self._envs.pop(lane, None), wrappers)

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
        _plain(states, refuse_foreign)  # raises for what would arrive as its `repr`
        return states

    def close(self) -> None:
        """Close every env."""
        close_envs(self._envs)


def main(read_end: int, write_end: int, life: int, start_file: int, memory_file: int) -> None:
    """Serve the manager at the other end of the pipes until it closes them or dies."""
    serve(read_end, write_end, life, start_file, lambda start: EnvWorker(start, memory_file))
