"""Learners of one run that keep in step: they count together, decide together, and learn as one.

Each runs a whole serial loop (SyncedLearners), or the first of a parallel run shares every batch with the others that
it started (LearnerAggregator): python -m <this module> CONFIG STORE RANK NUM SEED TIMEOUT_S [KEY=VALUE...]
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.comm.channels import Batch
from ding_like.comm.learner_group import LEFT, MOST_TIMEOUT_S, GroupReducer, LearnerGroup
from ding_like.comm.tensors import FlatState, pack, pack_batch, unpack_batch
from ding_like.config import FrozenConfig, compile_config, deep_merge, read_config
from ding_like.config.report import Fault, config_error
from ding_like.config.tree import Tree, get_path, set_path
from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.data.rows import as_batch
from ding_like.errors import CheckpointError, CommError, ConfigError, SchemaError, TrainingError
from ding_like.pipeline.checks import has_league, required
from ding_like.pipeline.components import Components, build_learner
from ding_like.pipeline.envs import EnvSetting, build_eval_env, build_policy, fit_policy_config, one_player_sees
from ding_like.pipeline.process import training_process
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.sharing import Share
from ding_like.report.details import ProcessReport
from ding_like.reward_model import RewardModel, get_reward_model_cls, reward_model_section
from ding_like.types import CheckpointPart, Config, Json, State
from ding_like.utils.bounds import Configurable
from ding_like.utils.checkpoint import ResumeStore, Saved
from ding_like.utils.processes import (
    describe_status,
    end_processes,
    last_line,
    make_own_folder,
    start_child,
    watch_parent,
)
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)


class Due(NamedTuple):
    """Work that is due before the next rows are collected."""

    signal: int = 0  # number of the signal that ends the run, 0: none
    saves: bool = False  # a point to resume from
    evaluates: bool = False


class SyncedLearners:
    """Group of learners, each of which runs a whole serial loop with its share; `parts` are those of this one.

    Every method is called by all learners, in the same order: that of the loop. `may_refuse`: the buffer may have no
    rows for an update although it had some for an earlier one.
    """

    def __init__(self, group: LearnerGroup, parts: Components, *, may_refuse: bool) -> None:
        self._group = group
        self._parts = parts
        self._asks_always = may_refuse
        self._all_have_drawn = False
        self._steps = parts.collector.envstep  # of all learners
        self._equality = EqualityCheck(group, parts.policy)

    def begin(self, *, resumes: bool) -> None:
        """Give all learners the first one's state; check that those which resume have the same."""
        mode = self._parts.policy.learn_mode
        if not resumes:
            first = share_state(self._group, mode.state_dict() if self._group.rank == 0 else None)
            if self._group.rank:
                mode.load_state_dict(first)
        self._steps = self._parts.collector.envstep
        self._equality.check(self._parts.learner.train_iter)

    def agree(self, own: Due) -> Due:
        """Return the largest number of a signal, and what is due at the first learner of points and evaluations."""
        train_iter = self._parts.learner.train_iter
        if self._equality.is_due(train_iter):
            self._equality.check(train_iter)
        signal, saves, evaluates = self._group.max_int(own).tolist()
        return Due(signal, bool(saves), bool(evaluates))

    def processes(self) -> list[ProcessReport]:
        """Return the processes of the other learners."""
        return processes_of(self._group, "learner")

    def evaluate(self, evaluate: Callable[[], bool] | None) -> bool:
        """Evaluate on the first learner; the others wait, without a limit, as long as it lives."""
        return bool(self._group.broadcast_json(None if evaluate is None else evaluate()))

    def count_steps(self) -> None:
        """Add what the others have collected since the last count."""
        collector = self._parts.collector
        self._steps += int(self._group.sum_int([collector.envstep - self._steps])[0])
        collector.envstep = self._steps

    def merge_statistics(self) -> None:
        """Merge what the envs of all learners have observed, and normalise by it from now on."""
        if isinstance(self._parts.statistics, SharedStatistics):
            self._parts.statistics.merge(self._group)

    def share_batch(self, batch: Batch | None) -> Batch | None:
        """Return this learner's batch, None unless all have one; of a policy with whole batches, the rows of all."""
        if self._asks_always or not self._all_have_drawn:
            if self._group.max_int([batch is None])[0]:
                return None
            self._all_have_drawn = True
        if batch is None:
            raise CommError(
                f"learner rank {self._group.rank} has no rows for an update that the others make: its buffer has let "
                "go of rows that it had. Start one learner, or report the buffer's settings."
            )
        if not self._parts.policy.takes_whole_batches:
            return batch
        rows = as_batch(batch)
        if rows is None:
            raise SchemaError(
                f"several learners share whole batches of columns; the rows here are a {type(batch).__name__}. "
                "Let the policy's `segment` return a TransitionBatch."
            )
        return self._group.all_gather_columns(rows)

    def leave(self) -> None:
        """Wait in the first learner until the others have saved: its process ends theirs when it ends itself."""
        if self._group.rank:
            self._group.announce(f"left/{self._group.rank}")
            return
        for rank in range(1, self._group.world_size):
            self._group.wait_for(f"left/{rank}", of=[rank])


def newest_of_all(group: LearnerGroup, store: ResumeStore) -> Saved:
    """Return this learner's point of the newest step that is whole for every learner; newer ones are forgotten.

    Every learner has a `store` of its own, and none looks into another's. Raises CheckpointError, on all, if there is
    no such step.
    """
    # Checking files may take longer than a collective may: these waits have no limit but the others' lives.
    own = store.whole_steps()
    group.announce(f"points/{group.rank}", json.dumps(own))
    others = [rank for rank in range(group.world_size) if rank != group.rank]
    found = {group.rank: own, **{rank: json.loads(group.wait_for(f"points/{rank}", of=[rank])) for rank in others}}
    common = set(own).intersection(*found.values())
    if not common:
        has = "; ".join(f"rank {rank} has {found[rank] or 'none'}" for rank in sorted(found))
        raise CheckpointError(
            f"there is nothing to resume in {store.folder}: no step is whole for all {group.world_size} learners "
            f"({has}). Start the run again, or begin from a model with --load-path."
        )
    step = max(common)
    if step != max(own):
        logger.info("going on from step %s: not every learner has saved a newer one", f"{step:,}")
    store.forget_after(step)
    return store.load(step)


def grad_vectors_of(policy: Policy) -> Sequence[torch.Tensor]:
    """Return a policy's gradients. Raises ConfigError for a policy that does not say where they are."""
    vectors = policy.grad_vectors()
    if not vectors:
        raise ConfigError(
            f"{type(policy).__name__} does not say where its gradients are; several learners train policies with "
            "grad() and apply() only. Start one learner (--learners 1; in parallel runs system.num_learners=1)."
        )
    return vectors


def join_policy(group: LearnerGroup, policy: Policy) -> GroupReducer:
    """Have a policy learn from its share of each batch; return what averages its gradients over the group.

    Raises ConfigError for a policy that does not say where its gradients are.
    """
    vectors = grad_vectors_of(policy)
    policy.set_share(Share(group.rank, group.world_size))
    return GroupReducer(group, vectors, weight=policy.grad_weight)


def share_state(group: LearnerGroup, state: State | None = None) -> State:
    """Return the first learner's nested state, such as a learn mode's: tensors exactly, the rest as JSON.

    Raises CommError for what is neither, and for a state in a network's bytes that is not described.
    """
    described, flat = (None, None) if state is None else pack_learn_state(state)
    return restored(group.broadcast_json(described), group.broadcast_state(flat))


def pack_learn_state(state: State) -> tuple[Json, FlatState]:
    """Return a learn mode's state as (JSON that describes it, its tensors by name), which `restored` takes."""
    flat: FlatState = {}
    return _describe(state, "", flat), flat


def restored(described: Json, flat: FlatState) -> State:
    """Return the state that `pack_learn_state` was given."""
    state: State = _restore(described, flat)
    return state


class EqualityCheck:
    """Check, every `every` updates, that all learners have the same parameters, bit for bit.

    They take the same steps on the same averages, so that a difference is a fault: of a machine, of a library that
    computes otherwise there, or of a config that is not the same for all.
    """

    def __init__(self, group: LearnerGroup, policy: Policy, *, every: int = 1000) -> None:
        self._group, self._policy, self._every = group, policy, every
        self._compared = 0

    def is_due(self, train_iter: int) -> bool:
        """Tell whether `every` updates have passed since the last comparison, or the next multiple has been reached."""
        return train_iter // self._every != self._compared // self._every

    def check(self, train_iter: int) -> None:
        """Compare now; all learners call it after the same update. Raises TrainingError that names who differs."""
        self._compared = train_iter
        state, flat = self._policy.learn_mode.state_dict(), FlatState()
        _describe(state.get("model", state), "", flat)
        differing = self._group.differing(flat[name] for name in sorted(flat))
        if differing:
            ranks = ", ".join(f"rank {rank}" for rank in differing)
            raise TrainingError(
                f"after update {train_iter:,} the parameters of learner {ranks} differ from those of the first: what "
                "was learned since the last check is not what one learner would have. Go on from an earlier "
                "checkpoint, and see that all learners have the same config, libraries and kind of processor."
            )


def _describe(value: Any, name: str, flat: FlatState) -> list[Any]:  # Any: of a nested state; of JSON
    """Return a node [kind, what] of JSON for a value, and put its tensors into `flat`."""
    if isinstance(value, torch.Tensor):
        flat[name] = value.detach()
        return ["tensor", name]
    if isinstance(value, (np.ndarray, np.generic)):
        flat[name] = torch.from_numpy(np.array(value))
        return ["array", name]
    if isinstance(value, Mapping):
        return ["dict", [[key, _describe(each, f"{name}/{key}", flat)] for key, each in value.items()]]
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_describe(each, f"{name}/{number}", flat) for number, each in enumerate(value)]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    raise CommError(f"the learners' state has a {type(value).__name__} at {name!r}, which cannot travel.")


def _restore(node: Any, flat: FlatState) -> Any:  # Any: see `_describe`
    kind, what = node
    if kind == "tensor":
        return flat[what]
    if kind == "array":
        return flat[what].numpy()
    if kind == "dict":
        return {key: _restore(each, flat) for key, each in what}
    if kind in ("list", "tuple"):
        members = [_restore(each, flat) for each in what]
        return tuple(members) if kind == "tuple" else members
    return what


_WATCH_S = 5.0  # for the thread of a process that has ended to end

# Return how to start the learner of a rank that joins by a store: the arguments of its process.
Command = Callable[[int, Path], Sequence[str]]


def processes_of(group: LearnerGroup, role: str) -> list[ProcessReport]:
    """Return the processes of the other ranks of a group, by their heartbeats."""
    return [
        ProcessReport(
            f"{role} rank {rank}".strip(),
            pid,
            "" if pid is not None else "not known",
            "running" if seen.ended is None else "ended" if seen.ended == LEFT else "lost",
            heartbeat_s=seen.silent_s,
            note=seen.ended or "",
        )
        for rank, (seen, pid) in group.others().items()
    ]


class LearnerProcesses:
    """Processes of learners 1 to `world_size` - 1, beside this one, the first; use it with `with`.

    A learner's output goes to `{log_folder}/rank{r}.txt`; its environment is this process's and `env`. They can
    notice that this process has ended (`utils.processes.watch_parent`), also where it was killed. What is left then is
    a folder with the file by which they find each other, deleted by the next start on this machine.

        with LearnerProcesses(command, world_size=2, log_folder=folder) as processes, processes.join() as group:
            ...
    """

    def __init__(
        self, command: Command, *, world_size: int, log_folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._world_size = world_size
        self._log_folder = log_folder
        self._noted = threading.Condition()
        self._ended: dict[int, str] = {}
        self._tell: Callable[[int, str], None] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watches: list[threading.Thread] = []
        self._folder = make_own_folder("ding-learners-")
        self._store = self._folder / "learners.store"
        log_folder.mkdir(parents=True, exist_ok=True)
        try:
            for rank in range(1, world_size):
                self._start(rank, command(rank, self._store), {**os.environ, **(env or {})})
        except BaseException:
            self.close(own_s=0.0)
            raise

    def _start(self, rank: int, command: Sequence[str], env: Mapping[str, str]) -> None:
        with open(self.log_file(rank), "ab") as output:
            # A session of its own: an interrupt from the keyboard is for the first learner, which ends the others.
            process = start_child(command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        self._processes.append(process)
        watch = threading.Thread(target=self._watch, args=(rank, process), name=f"learner-{rank}", daemon=True)
        self._watches.append(watch)
        watch.start()

    def log_file(self, rank: int) -> Path:
        """Return where a learner's output goes."""
        return self._log_folder / f"rank{rank}.txt"

    def join(self, *, timeout_s: float = 60.0, join_s: float = 120.0) -> LearnerGroup:
        """Join the others as their first rank. Raises CommError, naming the rank, where one does not come."""
        return LearnerGroup(
            self._store, rank=0, world_size=self._world_size, timeout_s=timeout_s, join_s=join_s, children=self
        )

    def tell(self, note: Callable[[int, str], None]) -> None:
        """Have `note` called with the rank and how it ended, of each that has or will; from any thread."""
        with self._noted:
            self._tell = note
            for rank, how in self._ended.items():
                note(rank, how)

    def pid(self, rank: int) -> int:
        """Return the id of a learner's process."""
        return self._processes[rank - 1].pid

    def close(self, *, own_s: float = 10.0, asked_s: float = 10.0) -> None:
        """Wait `own_s` for the others to end by themselves, ask them to, wait `asked_s`, kill; may be called again."""
        end_processes(self._processes, own_s=own_s, asked_s=asked_s)
        for watch in self._watches:
            watch.join(_WATCH_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LearnerProcesses:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close(own_s=10.0 if error is None else 0.0)

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        words = f" ({last_line(self.log_file(rank)) or 'it printed nothing'})" if status > 0 else ""
        how = f"{describe_status(status)}{words}; its output is in {self.log_file(rank)}"
        with self._noted:
            self._ended[rank] = how
            if self._tell is not None:
                self._tell(rank, how)


_START_S = 120.0  # for the other learners to import torch and build their policies


class LearnerAggregator(Configurable):
    """First of `num_learners` learners, and the front of the others.

    `cfg` holds `main`, a compiled config whose `policy.learn.batch_size` is that of all learners together, `seed`,
    `num_learners`, `config_file` (by default the run's own) and `overrides`, from which the others compile
    the same config, and `timeout_s`, by default the config's `learners.timeout_s`. Of DI-engine's keys, `learner` names
    the learners, which says how many there are; `master` and `slave` have hosts and ports, which are not used: all
    learners are on this machine.
    After `start` with this process's policy (one is built where none is given) and the generator that shuffles its
    minibatches:

        learner = create_learner(..., rng=rng, reducer=aggregator.reducer, dist_info=(0, num_learners))
        learner.train(aggregator.share(batch, train_iter=learner.train_iter))
        priority = aggregator.merge_priority(learner.priority_info)

    They learn what one learner with the whole batch would. A policy with `takes_whole_batches` (all that learn from
    advantages) is given those in every process, and takes its share of each minibatch; others are given their rows, or
    windows. A learner that is lost raises CommError, which names it, in `share`, in `learner.train` and in
    `merge_priority`; the others cannot continue then, and are to be started anew.
    """

    config: dict[str, Json] = {"num_learners": 2, "timeout_s": None}

    def __init__(self, cfg: Config) -> None:
        """Check the config. Raises ConfigError for a lost key, and where a batch cannot be shared equally."""
        required(cfg, "main", of="a learner aggregator")
        main = cfg["main"]
        own = {"seed": main.get("seed", 0), "config_file": Path(main.exp_name, "total_config.py")}
        own["num_learners"] = len(cfg.get("learner") or ()) or self.config["num_learners"]
        self._cfg = {**self.config, **own, **cfg}
        if unused := [name for name in ("master", "slave") if cfg.get(name)]:
            logger.warning("%s of the learner aggregator have no effect: its learners are here", ", ".join(unused))
        self._world_size = int(self._cfg["num_learners"])
        given_s = self._cfg["timeout_s"]
        self._timeout_s = float(cfg["main"].learners.timeout_s if given_s is None else given_s)
        self._processes: LearnerProcesses | None = None
        self._group: LearnerGroup | None = None
        self._policy: Policy | None = None
        self._equality: EqualityCheck | None = None
        self._rng = np.random.default_rng(0)
        self._is_stale = True  # the others' state, until the first batch
        self.reducer: GroupReducer | None = None
        self.reward_model: CheckpointPart | None = None  # of the first learner; its state goes to the others
        check_shares(self._cfg["main"], self._world_size)

    def start(self, policy: Policy | None = None, *, rng: np.random.Generator | None = None) -> None:
        """Start the other learners beside the one that trains `policy` and shuffles by `rng`.

        Raises CommError, naming the learner, if one does not start.
        """
        policy = policy or build_policy_alone(self._cfg["main"], seed=int(self._cfg["seed"]))
        rng = rng or make_rng(int(self._cfg["seed"]), "learner")
        grad_vectors_of(policy)  # before any process is started
        folder = Path(self._cfg["main"].exp_name, "log", "learners")
        self._processes = LearnerProcesses(self._command, world_size=self._world_size, log_folder=folder)
        self._group = self._processes.join(timeout_s=self._timeout_s, join_s=_START_S)
        self.reducer = join_policy(self._group, policy)
        self._equality = EqualityCheck(self._group, policy)
        self._policy, self._rng = policy, rng

    def renew(self) -> None:
        """Give the others the first learner's state before the next batch: it may have been loaded or changed."""
        self._is_stale = True

    @property
    def policy(self) -> Policy:
        """Policy of the first learner. Raises CommError before `start`."""
        return self._joined()[1]

    @property
    def has_lost_a_learner(self) -> bool:
        """Whether a learner was lost: what the first has learned until then is whole, and may be saved."""
        return self._group is not None and bool(self._group.fault)

    def pid(self, rank: int) -> int:
        """Return the id of the process of a learner, from 1."""
        if self._processes is None:
            raise CommError("the other learners have not been started.")
        return self._processes.pid(rank)

    def _command(self, rank: int, store: Path) -> list[str]:
        cfg = self._cfg
        module = "ding_like.pipeline.learners.synced"
        what = [cfg["config_file"], store, rank, self._world_size, cfg["seed"], self._timeout_s]
        return [sys.executable, "-m", module, *map(str, what), *cfg.get("overrides", ())]

    def share(self, batch: Batch, *, train_iter: int = 0) -> TransitionBatch | SequenceBatch:
        """Send every other learner what it is to train on of a batch [B], the whole or its rows; return the first's.

        A batch of windows is shared by windows. `train_iter` is what the first learner has counted so far. Raises
        ConfigError for a batch that cannot be shared.
        """
        group, policy, equality = self._joined()
        if not isinstance(batch, (TransitionBatch, SequenceBatch)):
            raise ConfigError(
                f"several learners cannot share a {type(batch).__name__} of rows that do not stack to arrays; give "
                "system.num_learners=1."
            )
        if self._is_stale:
            group.scatter([pack({}, {"train_iter": train_iter})] * self._world_size)
            model = None if self.reward_model is None else self.reward_model.state_dict()
            share_state(group, {"policy": policy.learn_mode.state_dict(), "reward_model": model})
            self._is_stale = False
        elif equality.is_due(train_iter):
            group.scatter([pack({}, {"compared_at": train_iter})] * self._world_size)
            equality.check(train_iter)
        if policy.takes_whole_batches:
            group.scatter([pack_batch(batch, {"rng": rng_state(self._rng)})] * self._world_size)
            return batch
        rows = len(batch) // self._world_size
        if rows * self._world_size != len(batch):
            raise ConfigError(f"a batch of {len(batch)} rows cannot be shared equally by {self._world_size} learners.")
        shares = [batch[rank * rows : (rank + 1) * rows] for rank in range(self._world_size)]
        group.scatter([pack_batch(share, {}) for share in shares])
        return shares[0]

    def merge_priority(self, priority_info: Mapping[str, Json]) -> dict[str, Json]:
        """Return the first learner's `priority_info` with the priorities [B] of all; nothing without priorities."""
        if not priority_info or not self._cfg["main"].policy.priority:
            return {}
        return {**priority_info, "priority": self._joined()[0].gather(np.asarray(priority_info["priority"]))}

    def close(self) -> None:
        """Let the other learners end, and see that they have; may be called again."""
        own_s = 10.0
        if self._group is not None:
            try:
                self._group.scatter(None)
            except CommError as error:  # reported where it happened
                own_s = 0.0
                logger.debug("the other learners were not told of the end: %s", error)
            self._group.close()
            self._group = None
        if self._processes is not None:
            self._processes.close(own_s=own_s)
            self._processes = None

    def _joined(self) -> tuple[LearnerGroup, Policy, EqualityCheck]:
        if self._group is None or self._policy is None or self._equality is None:
            raise CommError("the other learners have not been started.")
        return self._group, self._policy, self._equality


def build_policy_alone(cfg: FrozenConfig, *, seed: int) -> Policy:
    """Build the policy of a config, fitted to envs that are closed again."""
    envs = build_eval_env(cfg, seed=seed)
    envs = one_player_sees(cfg, envs, seed=seed, name="judge") or envs
    try:
        return build_policy(fit_policy_config(cfg.policy, envs), seed=seed)
    finally:
        envs.close()


def train_beside(argv: Sequence[str]) -> None:
    """Build the policy of a config, take the first learner's state, and train beside it."""
    watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    config, store, rank, world_size, seed, timeout_s, *overrides = argv
    main, create = read_config(config)
    cfg = compile_config(main, create, seed=int(seed), overrides=overrides, source=config, save=False, renew_dir=False)
    with training_process():
        # Before the policy is built: with a GPU for each learner, the group assigns them.
        with LearnerGroup(store, rank=int(rank), world_size=int(world_size), timeout_s=float(timeout_s)) as group:
            _train(cfg, build_policy_alone(cfg, seed=int(seed)), group, seed=int(seed))


def _train(cfg: FrozenConfig, policy: Policy, group: LearnerGroup, *, seed: int) -> None:
    """Train on shares until the first learner has no more."""
    rng = make_rng(seed, "learner")
    equality, reducer = EqualityCheck(group, policy), join_policy(group, policy)
    learner = build_learner(
        cfg, policy, seed=seed, rng=rng, reducer=reducer, rank=group.rank, num_learners=group.world_size
    )
    try:
        while (share := group.scatter(None)) is not None:
            batch, header = unpack_batch(share)
            if "train_iter" in header:  # the first learner's state has changed otherwise than by training
                state, model = share_state(group), learner.reward_model
                policy.learn_mode.load_state_dict(state["policy"])
                if model is not None:  # which draws on by itself
                    model.load_state_dict({**state["reward_model"], "rng": model.state_dict()["rng"]})
                learner.last_iter.update(int(header["train_iter"]))
                continue
            if "compared_at" in header:
                equality.check(int(header["compared_at"]))
                continue
            if "rng" in header:
                set_rng_state(rng, header["rng"])
            learner.train(batch)
            if cfg.policy.priority and learner.priority_info:
                group.gather(np.asarray(learner.priority_info["priority"]))
    finally:
        learner.close()


if __name__ == "__main__":
    train_beside(sys.argv[1:])


_ENVS = "env.collector_env_num"
_BATCH_SIZE = "policy.learn.batch_size"
# What each learner of a serial run has its share of, beside the envs.
_COLLECTED = ("policy.collect.n_sample", "policy.collect.n_episode", "policy.random_collect_size")
_LEAST_TIMEOUT_S = 2.0
_NO_LIMIT = {"min": 0, "max": float("inf")}
_STORED = (_BATCH_SIZE, "policy.other.replay_buffer.replay_buffer_size")


def check_shares(cfg: FrozenConfig, world_size: int) -> None:
    """Raise ConfigError where `world_size` learners cannot share the batches of a config's policy."""
    policy = cfg.policy
    for fault in (*_faults_of_policy(policy), *_faults_of_reward_model(cfg)):
        if fault.path != "policy.priority":
            raise ConfigError(f"{fault.path} {fault.message} (system.num_learners=1).")
    if takes_whole_batches(policy):
        return  # each takes its share of every minibatch, of whatever size
    if int(policy.learn.batch_size) % world_size:
        raise ConfigError(
            f"policy.learn.batch_size is {policy.learn.batch_size}, which {world_size} learners cannot share equally: "
            f"give a multiple of {world_size}."
        )


def timeout_fault(timeout_s: float) -> str:
    """Return what is wrong with `learners.timeout_s`; "" if nothing is."""
    if not timeout_s >= _LEAST_TIMEOUT_S:
        return f"is {timeout_s:g}, give at least {_LEAST_TIMEOUT_S:g}: learners say once a second that they live"
    return f"is {timeout_s:g}, give at most {MOST_TIMEOUT_S:.0f}, a year" if timeout_s > MOST_TIMEOUT_S else ""


def takes_whole_batches(policy: FrozenConfig) -> bool:
    """Tell whether each learner of a policy, a section of a config, is given whole batches."""
    return bool(getattr(get_policy_cls(policy), "takes_whole_batches", False))


def share_config(cfg: FrozenConfig, num_learners: int) -> FrozenConfig:
    """Return the config of one of `num_learners` learners, each of which runs a whole serial loop with its share.

    Envs, what is collected at a time, random rows, the replay buffer and its batches are divided; what each learns from
    stays a whole batch for a policy with `takes_whole_batches`. Raises ConfigError with everything that cannot be
    divided.
    """
    faults = list(_faults(cfg, num_learners))
    if faults:
        raise config_error(faults, f"the config of {num_learners} learners", {})
    keeps_batch_size = takes_whole_batches(cfg.policy)
    changes: Tree = {}
    for path in (_ENVS, *_COLLECTED, *_stored(cfg)):
        value = get_path(cfg, path)
        if value and not (path == _BATCH_SIZE and keeps_batch_size):
            set_path(changes, path, int(value) // num_learners)
    return FrozenConfig(deep_merge(cfg, changes))


def share_envs(setting: EnvSetting, share: Share) -> EnvSetting:
    """Return the env configs of one learner's collector; every learner has those of evaluations.

    Raises ConfigError if there are not as many for each.
    """
    env_fn, collect, evaluate = setting
    if len(collect) % share.num_learners or not collect:
        raise ConfigError(
            f"{len(collect)} envs to collect in cannot be shared equally by {share.num_learners} learners: make a "
            f"multiple of {share.num_learners}."
        )
    return env_fn, collect[share.of(len(collect))], evaluate


def share_of_batch(cfg: FrozenConfig, num_learners: int) -> int | None:
    """Return the rows that a learner with the config of `share_config` draws from its own buffer for an update.

    None where batches are not of a size: on-policy, they are what was collected.
    """
    batch_size = cfg.policy.learn.batch_size
    if cfg.policy.on_policy or batch_size is None:
        return None
    return int(batch_size) // num_learners if takes_whole_batches(cfg.policy) else int(batch_size)


def may_refuse(cfg: FrozenConfig) -> bool:
    """Tell whether a buffer may have too few rows for an update although it had enough for an earlier one."""
    buffer = cfg.policy.other.get("replay_buffer") or {}
    limits = buffer.get("thruput_controller") or {}
    has_limit = (limits.get("push_sample_rate_limit") or _NO_LIMIT) != _NO_LIMIT
    return has_limit or any(buffer.get(key) not in (None, float("inf")) for key in ("max_use", "max_staleness"))


def _stored(cfg: FrozenConfig) -> tuple[str, ...]:
    """Return the paths of what is divided where rows are stored; on-policy, none are."""
    return () if cfg.policy.on_policy else _STORED


def _faults(cfg: FrozenConfig, num_learners: int) -> Iterator[Fault]:
    policy = cfg.policy
    envs = int(get_path(cfg, _ENVS))
    if envs < num_learners:
        yield Fault(_ENVS, f"is {envs}, fewer than the {num_learners} learners: give each at least one env")
    for path in (_ENVS, *_COLLECTED, *_stored(cfg)):
        value = int(get_path(cfg, path) or 0)
        if value % num_learners and not (path == _ENVS and envs < num_learners):
            near = max(value - value % num_learners, num_learners)
            yield Fault(
                path,
                f"is {value}, which {num_learners} learners cannot share equally: give {near}, or another multiple "
                f"of {num_learners}",
            )
    yield from _faults_of_policy(policy)
    yield from _faults_of_reward_model(cfg)
    if fault := timeout_fault(cfg.learners.timeout_s):
        yield Fault("learners.timeout_s", fault)
    if has_league(cfg):
        yield Fault(
            "policy.other.league",
            "chooses opponents by the games of one learner, and several would choose apart: start one learner",
        )
    if policy.cuda and not torch.cuda.is_available():
        yield Fault("policy.cuda", "is True, but torch finds no GPU here: set it to False to learn on the CPU")


def _faults_of_policy(policy: FrozenConfig) -> Iterator[Fault]:
    is_whole = takes_whole_batches(policy)
    if callable(getattr(get_policy_cls(policy), "_forward_learn", None)):
        yield Fault(
            "policy.type",
            f"'{policy.type}' learns in DI-engine's style (_forward_learn), which gives no gradients to average: "
            "give it grad() and apply(), or start one learner",
        )
    elif policy.on_policy and not is_whole:
        yield Fault(
            "policy.type",
            f"'{policy.type}' is on-policy and does not say how several learners share its rows "
            "(takes_whole_batches): start one learner",
        )
    if is_whole and policy.priority:
        yield Fault("policy.priority", "is True, but this policy's learners share whole batches: set it to False")


def _faults_of_reward_model(cfg: FrozenConfig) -> Iterator[Fault]:
    section = reward_model_section(cfg)
    if section is not None and not issubclass(get_reward_model_cls(section), RewardModel):
        yield Fault(
            "reward_model.type",
            f"'{section.type}' learns in DI-engine's style, so that each learner would have a model of its own: give "
            "it update() and rewards(), or start one learner",
        )
