"""List what is measured, and the contenders in each benchmark."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

VENVS = Path(os.environ.get("BENCH_VENVS", Path.home() / ".cache" / "ding_bench"))


class Contender(NamedTuple):
    """Command of one contender: a module of `benchmarks.contenders`, its arguments, its environment."""

    script: str
    args: tuple[str, ...] = ()
    venv: str | None = None  # a name that setup.sh makes; None: the interpreter that runs the benchmarks
    sees_gpu: bool = False

    @property
    def is_ours(self) -> bool:
        """Tell whether this measures the package, and not a peer."""
        return self.script.endswith("_ours")

    @property
    def python(self) -> Path:
        """Return the interpreter, which may not exist."""
        return Path(sys.executable) if self.venv is None else VENVS / self.venv / "bin" / "python"


class Given(NamedTuple):
    """Ratio of two figures that another source measured on one machine: what, where, and the source."""

    name: str
    metric: str
    value: float
    source: str
    page: str  # of this repository


class Bar(NamedTuple):
    """Bar of the ratio of a contender of ours to another: at least so much, or at most."""

    ours: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    metric: str | None = None  # None: the benchmark's first

    @property
    def limit(self) -> float:
        """Return the ratio itself."""
        limit = self.at_least if self.at_most is None else self.at_most
        if limit is None or (self.at_least is not None and self.at_most is not None):
            raise ValueError(f"the bar of {self.ours} against {self.against} has to have either at_least or at_most")
        return limit

    def is_met(self, ratio: float) -> bool:
        """Tell whether a ratio keeps to it."""
        return ratio >= self.limit if self.at_most is None else ratio <= self.limit


class Benchmark(NamedTuple):
    """Name the metrics that ratios are made of, and the contenders, ours first."""

    metrics: tuple[str, ...]
    contenders: dict[str, Contender]
    needs: str | None = None  # a module without which nothing can be measured
    needs_gpu: bool = False
    baseline: str | None = None  # a contender of ours that the others of ours are compared with
    given: tuple[Given, ...] = ()  # figures that were measured elsewhere, for comparison
    bars: tuple[Bar, ...] = ()

    @property
    def has_ours(self) -> bool:
        """Tell whether the package has something to measure here yet."""
        return any(contender.is_ours for contender in self.contenders.values())


def _envs_subprocess(env: str, *, steps: int) -> Benchmark:
    args = ("--env", env, "--steps", str(steps))
    return Benchmark(
        ("env_steps_wall",),
        {
            "ours": Contender("envs_ours", args),
            "ours_storing": Contender("envs_ours", (*args, "--store")),
            "gymnasium_async_loop": Contender("envs_gymnasium", args),
        },
    )


_DI_ENGINE = Given(
    "di_engine / di_engine_serial",
    "whole_runs",
    round(11.6 / 83.6, 3),
    "DI-engine 0.5.3, CartPole DQN, another machine of 2 cores, 83.6 s in parallel and 11.6 s in serial",
    "benchmarks/README.md",
)


def _parallel(
    env: str, *, steps: int, at_least: tuple[float, float] | None = None, evaluates: bool = False
) -> Benchmark:
    """Return a benchmark of DQN in mode parallel and on Ray, two collectors each, beside one process.

    `at_least` are bars of the two: of each bound 0.9 and 0.85, or what else is asked of them.
    """
    args = ("--env", env, "--steps", str(steps), *(() if evaluates else ("--no-evaluation",)))
    modes = {"ours": "parallel", "ours_ray": "ray", "ours_serial": "serial"}
    bars = (
        ()
        if at_least is None
        else (Bar("ours", "ours_serial", at_least[0]), Bar("ours_ray", "ours_serial", at_least[1]))
    )
    return Benchmark(
        ("env_steps_wall", "whole_runs"),
        {name: Contender("parallel_ours", (*args, "--mode", mode)) for name, mode in modes.items()},
        needs="ray",
        baseline="ours_serial",
        given=(_DI_ENGINE,),
        bars=bars,
    )


def _updates(name: str, *peers: str, others: tuple[str, ...] = (), at_least: float | None = None) -> Benchmark:
    """Return a benchmark of the updates of one algorithm, without collecting between; `others` are more of ours."""
    contenders = {"ours": Contender("updates_ours", ("--algorithm", name))}
    contenders |= {f"ours_{other}": Contender("updates_ours", ("--algorithm", f"{name}_{other}")) for other in others}
    contenders |= {peer: Contender(f"updates_{peer}", ("--algorithm", name), venv="peers") for peer in peers}
    bars = () if at_least is None else tuple(Bar("ours", peer, at_least) for peer in peers)
    return Benchmark(("updates_cpu",), contenders, bars=bars)


def _weights(megabytes: int) -> Benchmark:
    """Return a benchmark of weights that go from one process to four."""
    ours: tuple[str, ...] = ("files", "rest_files", "updater")
    if megabytes <= 64:  # at most `messages.MAX_FILE` goes through a coordinator
        ours += ("rest_stream",)
    plain = ("pipe_pickle", "pipe_pickle_tensors", "queue_pickle", "torch_queue")
    torchrl = ("shared_memory", "queues", "updater")
    size = ("--megabytes", str(megabytes))
    contenders = {f"ours_{way}": Contender("weights_ours", ("--way", way, *size)) for way in ours}
    contenders |= {way: Contender("weights_plain", ("--way", way, *size)) for way in plain}
    contenders |= {
        f"torchrl_{way}": Contender("weights_torchrl", ("--way", way, *size), venv="peers") for way in torchrl
    }
    return Benchmark(("versions_per_s",), contenders)


def _learners(algorithm: str, *, steps: int) -> Benchmark:
    """Return a benchmark of one learner and of two that act as one, of the same config and on one machine."""
    args = ("--algorithm", algorithm, "--steps", str(steps))
    return Benchmark(
        ("updates_wall", "env_steps_wall"),
        {
            "ours_2_learners": Contender("learners_ours", (*args, "--learners", "2")),
            "ours_1_learner": Contender("learners_ours", (*args, "--learners", "1")),
        },
        baseline="ours_1_learner",
    )


def _end_to_end(policy: str, *, at_least: float) -> Benchmark:
    """Return a benchmark of an actor-critic for continuous actions beside SB3's, and of our gradient by autograd."""
    args = ("--policy", policy)
    return Benchmark(
        ("env_steps_cpu", "env_steps_wall", "return"),
        {
            "ours": Contender("qac_ours", args),
            "ours_autograd": Contender("qac_ours", (*args, "--backend", "autograd")),
            "sb3": Contender("qac_sb3", args, venv="peers"),
        },
        bars=(Bar("ours", "sb3", at_least=at_least),),
    )


def _imitate(method: str) -> Benchmark:
    """Return a benchmark of a method that imitates an expert, beside the package `imitation`: five seeds of each."""
    args = ("--method", method)
    return Benchmark(
        ("training", "return", "lowest"),
        {"ours": Contender("imitate_ours", args), "imitation": Contender("imitate_peer", args, venv="imitation")},
        bars=(Bar("ours", "imitation", at_least=1.0), Bar("ours", "imitation", at_least=1.0, metric="return")),
    )


# (data set, policy) -> updates of each seed; with a third part, the first seed: what took too long to record at once.
OFFLINE: dict[tuple[str, str] | tuple[str, str, int], int] = {
    **dict.fromkeys((("halfcheetah/medium", method) for method in ("td3_bc", "iql")), 10_000),
    # Of 10,000 updates most pass below random actions, by d3rlpy as well.
    ("halfcheetah/medium", "rebrac"): 30_000,
    ("halfcheetah/medium", "rebrac", 4): 30_000,
    ("halfcheetah/medium", "bc"): 5_000,
    ("halfcheetah/medium", "cql"): 2_000,
    **dict.fromkeys((("halfcheetah/medium", "bcq"), ("halfcheetah/medium", "bcq", 4)), 5_000),
    **dict.fromkeys((("halfcheetah/medium-replay", "dt"), ("halfcheetah/medium-replay", "dt", 4)), 1_000),
    **{("halfcheetah/medium-replay", method): 5_000 for method in ("bc", "td3_bc", "iql")},
    ("halfcheetah/medium-replay", "rebrac"): 20_000,
    ("halfcheetah/medium-replay", "rebrac", 2): 20_000,
    **{("halfcheetah/expert", method): 5_000 for method in ("bc", "td3_bc")},
    # After 5,000 updates neither is above random actions by more than its seeds differ.
    ("halfcheetah/expert", "iql"): 20_000,
    ("halfcheetah/expert", "iql", 4): 20_000,
    **dict.fromkeys((("hopper/medium", method) for method in ("td3_bc", "iql")), 10_000),
    ("hopper/medium", "rebrac"): 20_000,
    ("hopper/medium", "bc"): 5_000,
    **{
        (f"hopper/{level}", method): 5_000
        for level in ("medium-replay", "expert")
        for method in ("bc", "td3_bc", "iql")
    },
    **dict.fromkeys((("pendulum/medium", method) for method in ("bc", "td3_bc", "iql")), 5_000),
    **dict.fromkeys((("cartpole/medium", method) for method in ("bc", "discrete_cql", "discrete_bcq")), 5_000),
}


def offline_name(data: str, method: str, first_seed: int = 0) -> str:
    """Return the name of the benchmark of a policy on a data set."""
    return f"offline_{data.replace('/', '_').replace('-', '_')}_{method}{f'_from_{first_seed}' if first_seed else ''}"


def _offline(data: str, method: str, first_seed: int = 0, *, updates: int) -> Benchmark:
    """Return a benchmark of an offline policy beside d3rlpy on one data set; each round is a seed."""
    args = ("--method", method, "--data", data, "--updates", str(updates), "--first-seed", str(first_seed))
    return Benchmark(
        ("score", "return", "updates"),
        {"ours": Contender("offline_ours", args), "d3rlpy": Contender("offline_peer", args, venv="d3rlpy")},
        bars=(Bar("ours", "d3rlpy", at_least=1.25, metric="updates"),),
    )


def _ray_work() -> Benchmark:
    """Return a benchmark of the same PPO work beside RLlib, with the driver alone and with two workers."""
    none, two = ("--workers", "0"), ("--workers", "2")
    contenders = {
        "ours_0_workers": Contender("ray_ours", none),
        "rllib_0_workers": Contender("ray_rllib", none, venv="rllib"),
        "ours_2_workers": Contender("ray_ours", two),
        "rllib_2_workers": Contender("ray_rllib", two, venv="rllib"),
    }
    bars = (
        Bar("ours_0_workers", "rllib_0_workers", at_least=5.0),
        Bar("ours_0_workers", "rllib_0_workers", at_most=0.5, metric="peak_memory"),
        Bar("ours_2_workers", "rllib_2_workers", at_least=5.4),
        Bar("ours_2_workers", "rllib_2_workers", at_most=0.55, metric="peak_memory"),
    )
    return Benchmark(("env_steps_cpu", "peak_memory"), contenders, needs="ray", bars=bars)


def _ray_solve(algorithm: str, *, at_most: float) -> Benchmark:
    """Return a benchmark of CartPole until it is solved, with two workers beside RLlib's two."""
    args = ("--solve", algorithm, "--workers", "2")
    contenders = {
        "ours": Contender("ray_ours", args),
        "rllib": Contender("ray_rllib", args, venv="rllib"),
    }
    bars = Bar("ours", "rllib", at_most=at_most), Bar("ours", "rllib", at_most=0.5, metric="peak_memory")
    return Benchmark(("cpu_to_475", "peak_memory"), contenders, needs="ray", bars=bars)


def _seed_inference(
    network: str,
    *,
    processes: int,
    threads: int = 1,
    lanes: int,
    steps: int,
    at_least: float | None = None,
    device: str = "cpu",
) -> Benchmark:
    """Return a benchmark of acting by central inference beside the same actors with a network each, on the CPU.

    `device` is that of the server. `waiting` is central inference that waits for all actors, for a time: batches of
    a whole step.
    """
    args: tuple[str, ...] = ("--network", network, "--processes", str(processes), "--threads", str(threads))
    args += ("--lanes", str(lanes), "--steps", str(steps))
    at = ("--inference", "central", "--device", device, *args)
    waiting = ("--batchsize", str(processes * threads), "--delay-s", "0.005")
    needs_gpu = device != "cpu"
    contenders = {
        "ours_central": Contender("inference_ours", at, sees_gpu=needs_gpu),
        "ours_central_waiting": Contender("inference_ours", (*at, *waiting), sees_gpu=needs_gpu),
        "ours_local": Contender("inference_ours", ("--inference", "local", *args)),
    }
    central = () if at_least is None else ("ours_central", "ours_central_waiting")
    bars = tuple(Bar(each, "ours_local", at_least=at_least) for each in central)
    metrics = ("observations_cpu", "observations_wall")
    return Benchmark(metrics, contenders, needs="zmq", baseline="ours_local", bars=bars, needs_gpu=needs_gpu)


def _seed_parallel(*, steps: int, at_least: float) -> Benchmark:
    """Return a benchmark of whole runs with a CNN: 4 actor threads x 2 processes beside mode parallel's collectors."""
    size = ("--steps", str(steps))
    contenders = {
        "ours_seed": Contender("seed_ours", ("--mode", "seed", "--processes", "2", "--threads", "4", *size)),
        "ours_parallel_8x1": Contender("seed_ours", ("--mode", "parallel", "--processes", "8", "--lanes", "1", *size)),
        "ours_parallel_2x4": Contender("seed_ours", ("--mode", "parallel", "--processes", "2", "--lanes", "4", *size)),
    }
    bars = (Bar("ours_seed", "ours_parallel_8x1", at_least=at_least),)
    return Benchmark(("env_steps_wall",), contenders, needs="zmq", baseline="ours_parallel_8x1", bars=bars)


def _atari(algorithm: str) -> Benchmark:
    """Return a benchmark of whole runs on Pong, beside SB3 with the vector env that it takes by default, and with its
    other one."""
    args = ("--algorithm", algorithm)
    contenders = {
        "ours": Contender("atari_ours", args),
        "sb3": Contender("atari_sb3", args, venv="peers"),
        "sb3_subproc": Contender("atari_sb3", (*args, "--vec", "subproc"), venv="peers"),
    }
    bars = (Bar("ours", "sb3", at_least=1.5),)
    return Benchmark(("frames_wall",), contenders, needs="ale_py", bars=bars)


# One process on one thread is timed by CPU seconds, which a busy neighbour hardly changes; collectors by the wall clock
# first, because there are some that use several processes.
BENCHMARKS = {
    "end_to_end": Benchmark(
        ("env_steps_cpu",),
        {
            "ours": Contender("dqn_ours"),
            "ours_autograd": Contender("dqn_ours", ("--backend", "autograd")),
            "sb3": Contender("dqn_sb3", venv="peers"),
        },
    ),
    "collect": Benchmark(
        ("env_steps_wall", "env_steps_cpu"),
        {
            "ours": Contender("collect_ours"),
            "ours_gym_vector": Contender("collect_ours", ("--manager", "gym_vector")),
            "sb3": Contender("collect_sb3", venv="peers"),
            "gymnasium_sync_loop": Contender("collect_gymnasium", ("--vector", "sync")),
            "gymnasium_vector_loop": Contender("collect_gymnasium", ("--vector", "vector_entry_point")),
        },
    ),
    "envs_subprocess": _envs_subprocess("busy", steps=20_000),
    "envs_subprocess_cartpole": _envs_subprocess("cartpole", steps=80_000),
    "envs_atari": Benchmark(
        ("env_steps_wall",),
        {
            "ours": Contender("envs_ours", ("--manager", "ale_vector", "--env", "pong", "--steps", "320000")),
            "ale_vector_loop": Contender("envs_ale", ("--steps", "320000")),
        },
        needs="ale_py",
    ),
    "parallel_cartpole": _parallel("cartpole", steps=45_000, evaluates=True),
    "parallel_cartpole_training": _parallel("cartpole", steps=15_000, at_least=(1.0, 0.9)),
    "parallel_busy_500us": _parallel("Busy500us-v0", steps=10_000, at_least=(1.25, 1.18)),
    "parallel_busy_2ms": _parallel("Busy2000us-v0", steps=5_000, at_least=(1.7, 1.6)),
    "parallel_busy_5ms": _parallel("Busy5000us-v0", steps=2_500, at_least=(1.8, 1.7)),
    "learners_ppo": _learners("ppo", steps=8192),
    "learners_ppo_small": _learners("ppo_small", steps=16384),
    "learners_sac": _learners("sac", steps=1600),
    "end_to_end_ppo": Benchmark(
        ("env_steps_cpu",),
        {
            "ours": Contender("ppo_ours"),
            "ours_autograd": Contender("ppo_ours", ("--backend", "autograd")),
            "sb3": Contender("ppo_sb3", venv="peers"),
        },
    ),
    "end_to_end_sac": _end_to_end("sac", at_least=1.5),
    **{f"imitate_{method}": _imitate(method) for method in ("bc", "gail", "airl", "sqil")},
    **{offline_name(*what): _offline(*what, updates=updates) for what, updates in OFFLINE.items()},
    "end_to_end_td3": _end_to_end("td3", at_least=1.5),
    "atari_dqn": _atari("dqn"),
    "atari_ppo": _atari("ppo"),
    "updates_dqn": _updates("dqn", "tianshou", "sb3", others=("autograd",)),
    "updates_c51": _updates("c51", "tianshou", others=("autograd",)),
    "updates_qrdqn": _updates("qrdqn", "tianshou", "sb3", others=("autograd",), at_least=1.5),
    "updates_iqn": _updates("iqn", "tianshou", others=("autograd",)),
    "updates_fqf": _updates("fqf", "tianshou", others=("autograd",)),
    "updates_rainbow": _updates("rainbow", "tianshou", others=("autograd",), at_least=1.5),
    "updates_r2d2": _updates("r2d2", "tianshou", others=("burn_in", "norm_lstm"), at_least=1.5),
    "weights_10mb": _weights(10),
    "weights_100mb": _weights(100),
    "ray_ppo_work": _ray_work(),
    "ray_ppo_solve": _ray_solve("ppo", at_most=0.2),
    "ray_impala_solve": _ray_solve("impala", at_most=round(1 / 3, 3)),
    "seed_inference_cnn_16x1": _seed_inference("cnn", processes=16, lanes=1, steps=16_000, at_least=1.5),
    "seed_inference_cnn_threads": _seed_inference("cnn", processes=2, threads=8, lanes=1, steps=16_000, at_least=1.5),
    "seed_inference_cnn_2x8": _seed_inference("cnn", processes=2, lanes=8, steps=16_000, at_least=0.8),
    "seed_inference_mlp_16x1": _seed_inference("mlp", processes=16, lanes=1, steps=60_000),
    "seed_inference_mlp_2x8": _seed_inference("mlp", processes=2, lanes=8, steps=120_000),
    "seed_inference_gpu_16": _seed_inference("cnn", processes=16, lanes=1, steps=64_000, at_least=1.5, device="cuda"),
    "seed_inference_gpu_64": _seed_inference(
        "cnn", processes=16, threads=4, lanes=1, steps=64_000, at_least=1.5, device="cuda"
    ),
    "seed_parallel": _seed_parallel(steps=12_000, at_least=0.9),
}
