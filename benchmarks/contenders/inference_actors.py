"""What actors of `inference_ours` are: processes that step envs and choose actions, and count what they have seen."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.context import ForkServerContext
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.config import compile_config
from ding_like.data.rows import adapt_collect_mode
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.policy import Policy
from ding_like.types import Array
from ding_like.utils.seeding import make_rng

_NUM_LATENCIES = 1 << 15  # of each actor; later ones take the places of the first
_LOOK_S = 0.02  # between two looks at what all actors have counted
_START_S = 120.0  # in which all actors are ready
_END_S = 20.0

ENVS = {"cnn": "benchmarks.contenders.image_env:CheapImage-v0", "mlp": "CartPole-v1"}

# Puts a far network in the place of an actor's own, for as long as the context is open.
Reach = Callable[[Policy, int], AbstractContextManager[None]]


def own_network(policy: Policy, index: int) -> AbstractContextManager[None]:
    """Let an actor act by the network of its own policy."""
    return nullcontext()


def make_factories(network: str, *, lanes: int) -> SchemeFactories:
    """Return what makes policies and envs: DQN with the network of Mnih et al. 2015, or with an MLP 128-128-64."""
    main = dict(
        exp_name="bench",
        env=dict(env_id=ENVS[network], collector_env_num=lanes, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            model=dict(dueling=False, head_layer_num=0),
            collect=dict(n_sample=lanes),
            # Constant, and not 0: all that a choice takes is done.
            other=dict(eps=dict(type="linear", start=0.1, end=0.1, decay=1)),
        ),
    )
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
    return SchemeFactories.of(compile_config(main, create, seed=0, save=False), seed=0)


class Sizes(NamedTuple):
    """Counts of what a server has computed since it began."""

    observations: int
    batches: int


class Shared(NamedTuple):
    """State that actors share with the process that started them."""

    counts: Any  # observations acted on, by actor. Any, here and below: ctypes in shared memory have no useful types
    latencies: Any  # seconds of calls while `is_measured`, [actors, _NUM_LATENCIES]
    calls: Any  # while `is_measured`, by actor
    is_measured: Any
    ready: Any  # a semaphore, released by each actor
    go: Any  # events
    stop: Any


def make_shared(context: ForkServerContext, actors: int) -> Shared:
    """Return shared memory for so many actors."""
    return Shared(
        counts=context.RawArray("q", actors),
        latencies=context.RawArray("d", actors * _NUM_LATENCIES),
        calls=context.RawArray("q", actors),
        is_measured=context.RawValue("b", 0),
        ready=context.Semaphore(0),
        go=context.Event(),
        stop=context.Event(),
    )


def run_actors(indices: range, network: str, lanes: int, shared: Shared, reach: Reach) -> None:
    """Be a process of actors, one thread each, which act until told to stop."""
    torch.set_num_threads(1)
    factories = make_factories(network, lanes=lanes)
    if len(indices) == 1:
        _act(indices[0], factories, lanes, shared, reach)
        return
    with ThreadPoolExecutor(len(indices)) as threads:
        done = [threads.submit(_act, index, factories, lanes, shared, reach) for index in indices]
        for each in as_completed(done):
            if each.exception() is not None:
                shared.stop.set()
    for each in done:
        each.result()


def _act(index: int, factories: SchemeFactories, lanes: int, shared: Shared, reach: Reach) -> None:
    """Act until told to stop. Actors count from 0, their envs' seeds as a run's workers'."""
    policy = factories.actor("cpu")
    envs = factories.train_envs("cpu", index + 1, 0)
    envs.launch()
    try:
        with reach(policy, index):
            actor = adapt_collect_mode(policy.collect_mode).actor
            rng = make_rng(0, "collector", "0", str(index + 1))
            all_lanes, is_first = np.arange(lanes), np.ones(lanes, bool)
            latencies = np.frombuffer(shared.latencies).reshape(-1, _NUM_LATENCIES)[index]
            shared.ready.release()
            shared.go.wait(_START_S)
            while not shared.stop.is_set():
                began_s = time.perf_counter()
                action = actor.act(envs.obs, lanes=all_lanes, is_first=is_first, rng=rng, eps=0.1)["action"]
                if shared.is_measured.value:
                    latencies[shared.calls[index] % _NUM_LATENCIES] = time.perf_counter() - began_s
                    shared.calls[index] += 1
                step = envs.step(all_lanes, action)
                is_first = step.terminated | step.truncated
                shared.counts[index] += lanes
    finally:
        envs.close()


class Actors:
    """Start processes of `threads` actors each, which share what they have imported, and end them."""

    def __init__(self, processes: int, *, threads: int, network: str, lanes: int, reach: Reach) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._shared = make_shared(context, processes * threads)
        self._processes = [
            context.Process(
                target=run_actors,
                args=(range(first, first + threads), network, lanes, self._shared, reach),
                daemon=True,
            )
            for first in range(0, processes * threads, threads)
        ]

    def __enter__(self) -> Actors:
        for process in self._processes:
            process.start()
        deadline_s = time.monotonic() + _START_S
        for _ in self._shared.counts:
            if not self._shared.ready.acquire(timeout=max(deadline_s - time.monotonic(), 0.0)):
                self.__exit__()
                raise RuntimeError(f"an actor was not ready within {_START_S:g} s")
        self._shared.go.set()
        return self

    def __exit__(self, *_: object) -> None:
        self._shared.stop.set()
        self._shared.go.set()
        for process in self._processes:
            if process.pid is not None:
                process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join(_END_S)

    @property
    def pids(self) -> list[int]:
        """Return the processes."""
        return [process.pid for process in self._processes if process.pid is not None]

    @property
    def observations(self) -> int:
        """Return how many observations all of them have acted on."""
        return sum(self._shared.counts)

    def wait_for(self, observations: int) -> int:
        """Wait until they have acted on so many; return how many. Raises RuntimeError where one has ended."""
        while (seen := self.observations) < observations:
            ended = [process.name for process in self._processes if process.exitcode is not None]
            if ended:
                raise RuntimeError(f"{', '.join(ended)} ended after {seen:,} observations of all")
            self._shared.stop.wait(_LOOK_S)
        return seen

    def measure(self, is_on: bool) -> None:
        """Begin or end to note how long calls take."""
        self._shared.is_measured.value = is_on

    def latencies_s(self) -> Array:
        """Return the seconds that calls took while that was noted."""
        found = np.frombuffer(self._shared.latencies).reshape(-1, _NUM_LATENCIES)
        calls = [min(number, _NUM_LATENCIES) for number in self._shared.calls]
        return np.concatenate([row[:number] for row, number in zip(found, calls, strict=True)])
