"""Train one learner with whole batches and two with half of each, in two processes, and say how far they are apart.

python -m tests.pipeline.learners.two_learners --out docs/reports/two_learners.json [--updates 50]
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.provenance import DirtyTreeError, provenance
from ding_like.comm.learner_group import LearnerGroup
from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.components import build_collector
from ding_like.pipeline.envs import build_collect_env, build_policy, fit_policy_config
from ding_like.pipeline.learners.synced import (
    EqualityCheck,
    LearnerAggregator,
    LearnerProcesses,
    join_policy,
    share_state,
)
from ding_like.policy import Policy
from ding_like.types import State
from ding_like.utils.processes import watch_parent
from ding_like.utils.seeding import make_rng
from ding_like.worker import BaseLearner, create_learner
from ding_like.worker.learner import LogReduceHook

ROOT = Path(__file__).parents[3]
SEED = 0

HEAD = """
main_config = dict(exp_name="run", env=dict(env_id="{env}", collector_env_num=4, evaluator_env_num=2,
    n_evaluator_episode=2), policy=dict({policy}))
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="{name}"{imports}))
"""
PER = "priority=True, priority_IS_weight=True,"
CONFIGS = {
    "dqn": HEAD.format(
        env="CartPole-v1",
        name="dqn",
        imports="",
        policy=PER
        + """model=dict(encoder_hidden_size_list=[32, 32]), collect=dict(n_sample=64),
        learn=dict(batch_size=64, learning_rate=1e-3, target_update_freq=7, grad_clip_norm=0.5)""",
    ),
    "sac": HEAD.format(
        env="Pendulum-v1",
        name="sac",
        imports="",
        policy="""model=dict(actor_head_hidden_size=32, critic_head_hidden_size=32), collect=dict(n_sample=64),
        learn=dict(batch_size=64, learning_rate_q=1e-3, learning_rate_policy=1e-3, learning_rate_alpha=1e-3)""",
    ),
    "ppo": HEAD.format(
        env="CartPole-v1",
        name="ppo",
        imports="",
        policy="""model=dict(encoder_hidden_size_list=[32, 32]), collect=dict(n_sample=100),
        learn=dict(batch_size=30, epoch_per_collect=4, learning_rate=1e-3, value_norm=True)""",
    ),
    "r2d2": HEAD.format(
        env="CartPole-v1",
        name="r2d2",
        imports="",
        policy="""burnin_step=2, learn_unroll_len=6, nstep=3, collect=dict(n_sample=16),
        model=dict(encoder_hidden_size_list=[16], lstm_hidden_size=16),
        learn=dict(batch_size=16, learning_rate=1e-3)""",
    ),
}


class Found(NamedTuple):
    """Distance of two learners from one, and how far that one has moved."""

    largest_difference: float  # of parameters, targets and moments
    largest_priority_difference: float
    moved: float  # the parameter that has changed most from its beginning
    updates: int
    logged: dict[str, tuple[float, float]]  # of the last update, by one and by the first of two


def compiled(folder: Path, name: str) -> FrozenConfig:
    path = folder / f"{name}.py"
    if not path.exists():  # the other process may be reading it
        path.write_text(CONFIGS[name])
    file = read_config(path)
    return compile_config(
        file.main_config, file.create_config, seed=SEED, save=False, source=str(path), renew_dir=False
    )


def batches(cfg: FrozenConfig) -> Iterator[TransitionBatch]:
    """Yield what a policy that does not learn collects, with made-up weights where there are priorities."""
    rng = np.random.default_rng(5)
    with ExitStack() as stack:
        env = build_collect_env(cfg, seed=SEED)
        stack.callback(env.close)
        policy = build_policy(fit_policy_config(cfg.policy, env), seed=SEED)
        collector = build_collector(cfg, env, policy, seed=SEED, name="collector")
        stack.callback(collector.close)
        while True:
            batch = collector.collect(n_sample=cfg.policy.collect.n_sample, policy_kwargs={"eps": 0.5})
            batch = batch if isinstance(batch, TransitionBatch) else batch[0]
            if cfg.policy.priority:
                batch = batch.with_columns(weight=rng.random(len(batch)).astype(np.float32))
            yield batch


def learner_of(cfg: FrozenConfig, policy: Policy, folder: Path, **kwargs: Any) -> BaseLearner:
    section = copy.deepcopy(cfg.policy.learn.learner)
    return create_learner(section, policy=policy.learn_mode, exp_name=str(folder), **kwargs)


def new_policy(cfg: FrozenConfig) -> Policy:
    env = build_collect_env(cfg, seed=SEED)
    try:
        return build_policy(fit_policy_config(cfg.policy, env), seed=SEED)
    finally:
        env.close()


def tensors_of(state: Any, path: str = "") -> dict[str, torch.Tensor]:
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    found = {path: state.detach().double()} if isinstance(state, torch.Tensor) else {}
    for name, value in items:
        found.update(tensors_of(value, f"{path}/{name}"))
    return found


def furthest(one: State, other: State) -> float:
    """Return the largest difference of two states: of the value itself up to 1, relative to it above."""
    ours, theirs = tensors_of(one), tensors_of(other)
    assert ours.keys() == theirs.keys()
    differences = {name: (ours[name] - theirs[name]).abs() / ours[name].abs().clamp(min=1.0) for name in ours}
    return max(float(each.max()) for each in differences.values() if each.numel())


def by_aggregator(name: str, folder: Path, *, updates: int, log_reduce: bool = True) -> Found:
    """Compare one learner with the first of two behind LearnerAggregator, as in a parallel run."""
    cfg = compiled(folder, name)
    one, first = new_policy(cfg), new_policy(cfg)
    before = copy.deepcopy(one.learn_mode.state_dict())
    rng = make_rng(SEED, "learner")
    overrides = [] if log_reduce else ["policy.learn.learner.hook.log_reduce_after_iter=False"]
    aggregator = LearnerAggregator(
        {"main": cfg, "seed": SEED, "num_learners": 2, "config_file": folder / f"{name}.py", "overrides": overrides}
    )
    priority_difference = 0.0
    with ExitStack() as stack:
        stack.callback(aggregator.close)
        aggregator.start(first, rng=rng)
        single = learner_of(cfg, one, folder, rng=make_rng(SEED, "learner"), instance_name="single")
        stack.callback(single.close)
        reduce = {"reducer": aggregator.reducer, "dist_info": (0, 2)}
        learner = learner_of(cfg, first, folder, rng=rng, instance_name="first", **reduce)
        stack.callback(learner.close)
        if not log_reduce:
            learner.remove_hooks(LogReduceHook)
        for batch in batches(cfg):
            single.train(batch)
            learner.train(aggregator.share(batch, train_iter=learner.train_iter))
            merged = aggregator.merge_priority(learner.priority_info)
            if merged:
                difference = np.abs(merged["priority"] - np.asarray(single.priority_info["priority"])).max()
                priority_difference = max(priority_difference, float(difference))
            if single.train_iter >= updates:
                break
        return found(single, learner, before, priority_difference)


def found(single: BaseLearner, learner: BaseLearner, before: State, priority_difference: float = 0.0) -> Found:
    assert learner.train_iter == single.train_iter
    one, first = single.policy.state_dict(), learner.policy.state_dict()
    logged = [
        {name: float(np.mean(np.asarray(value))) for name, value in each.log_buffer["scalar"].items()}
        for each in (single, learner)
    ]
    return Found(
        largest_difference=furthest(one, first),
        largest_priority_difference=priority_difference,
        moved=furthest(one["model"], before["model"]),
        updates=single.train_iter,
        logged={name: (value, logged[1][name]) for name, value in logged[0].items()},
    )


def by_serial(name: str, folder: Path, *, updates: int) -> Found:
    """Compare one learner with the first of two that join as those of a serial run do, each with its own half."""

    def command(rank: int, store: Path) -> list[str]:
        what = ["--rank", rank, "--store", store, "--only", name, "--folder", folder, "--updates", updates]
        return [sys.executable, "-m", "tests.pipeline.learners.two_learners", *map(str, what)]

    cfg = compiled(folder, name)
    one = new_policy(cfg)
    before = copy.deepcopy(one.learn_mode.state_dict())
    single = learner_of(cfg, one, folder, rng=make_rng(SEED, "learner"), instance_name="single")
    for batch in batches(cfg):
        single.train(batch)
        if single.train_iter >= updates:
            break
    single.close()
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (
        LearnerProcesses(command, world_size=2, log_folder=folder / "log", env=env) as processes,
        processes.join() as group,
    ):
        return found(single, train_half(name, folder, group, updates=updates), before)


def train_half(name: str, folder: Path, group: LearnerGroup, *, updates: int) -> BaseLearner:
    """Train on this rank's half of each batch; return the learner."""
    cfg = compiled(folder, name)
    policy = new_policy(cfg)
    if group.rank == 1:  # what it is built with does not count: the first learner's state does
        with torch.no_grad():
            for parameter in policy.get_attribute("model").parameters():
                parameter.mul_(1.5)
    policy.learn_mode.load_state_dict(share_state(group, policy.learn_mode.state_dict() if group.rank == 0 else None))
    reducer = join_policy(group, policy)
    info = {"dist_info": (group.rank, 2), "instance_name": f"half{group.rank}"}
    learner = learner_of(cfg, policy, folder, rng=make_rng(SEED, "learner"), reducer=reducer, **info)
    for batch in batches(cfg):
        half = len(batch) // 2
        learner.train(batch if policy.takes_whole_batches else batch[group.rank * half : (group.rank + 1) * half])
        if learner.train_iter >= updates:
            break
    EqualityCheck(group, policy).check(learner.train_iter)
    learner.close()
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--only", choices=CONFIGS)
    parser.add_argument("--allow-dirty", action="store_true")
    for name, kind in (("--rank", int), ("--store", Path), ("--folder", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = None if args.out is None else args.out.absolute()
    if args.rank is not None:  # started by by_serial
        watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
        with LearnerGroup(args.store, rank=args.rank, world_size=2) as group:
            train_half(args.only, args.folder, group, updates=args.updates)
        return
    try:
        made_with = provenance(allow_dirty=args.allow_dirty or out is None).to_plain()
    except DirtyTreeError as error:
        parser.error(str(error))
    report: dict[str, Any] = {**made_with, "updates_at_least": args.updates, "largest_difference": {}}
    for name in [args.only] if args.only else CONFIGS:
        for way in (by_aggregator, by_serial):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                each = way(name, Path(folder), updates=args.updates)
                os.chdir("/")
            entry = {"updates": each.updates, "difference": each.largest_difference, "moved": each.moved}
            report["largest_difference"].setdefault(name, {})[way.__name__] = entry
            print(name, way.__name__, entry, flush=True)
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
