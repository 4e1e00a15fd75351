"""Several learners on one machine that act as one: each takes a share of every batch, gradients are averaged.

The first has a LearnerAggregator, which starts the others:
python -m <this module> CONFIG STORE RANK NUM SEED TIMEOUT_S [KEY=VALUE...]
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ding_like.comm.channels import Batch
from ding_like.comm.column_bytes import pack, pack_batch, unpack_batch
from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.components import build_learner
from ding_like.pipeline.envs import build_eval_env, build_policy, fit_policy_config, one_player_sees
from ding_like.pipeline.learners.processes import LearnerProcesses
from ding_like.pipeline.learners.shares import check_shares
from ding_like.pipeline.learners.synced import EqualityCheck, join_policy, share_state
from ding_like.pipeline.parallel.settings import required
from ding_like.pipeline.process import training_process
from ding_like.policy import Policy
from ding_like.types import Config, Json
from ding_like.utils.bounds import Configurable
from ding_like.utils.processes import watch_parent
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)

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
        check_shares(self._cfg["main"].policy, self._world_size)

    def start(self, policy: Policy | None = None, *, rng: np.random.Generator | None = None) -> None:
        """Start the other learners beside the one that trains `policy` and shuffles by `rng`.

        Raises CommError, naming the learner, if one does not start.
        """
        policy = policy or build_policy_alone(self._cfg["main"], seed=int(self._cfg["seed"]))
        rng = rng or make_rng(int(self._cfg["seed"]), "learner")
        if not policy.grad_vectors():
            raise ConfigError(
                f"policy '{self._cfg['main'].policy.type}' does not say where its gradients are; several learners "
                "train policies with grad() and apply() only. Give system.num_learners=1."
            )
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
        module = "ding_like.pipeline.parallel.learner_aggregator"
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
            share_state(group, policy.learn_mode.state_dict())
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
    file = read_config(config)
    cfg = compile_config(
        file.main_config,
        file.create_config,
        seed=int(seed),
        overrides=overrides,
        source=config,
        save=False,
        renew_dir=False,
    )
    with training_process():
        # Before the policy is built: with a GPU for each learner, the group assigns them.
        with LearnerGroup(store, rank=int(rank), world_size=int(world_size), timeout_s=float(timeout_s)) as group:
            _train(cfg, build_policy_alone(cfg, seed=int(seed)), group, seed=int(seed))


def _train(cfg: FrozenConfig, policy: Policy, group: LearnerGroup, *, seed: int) -> None:
    """Train on shares until the first learner has no more."""
    rng = make_rng(seed, "learner")
    equality = EqualityCheck(group, policy)
    learner = build_learner(
        cfg,
        policy,
        seed=seed,
        rng=rng,
        reducer=join_policy(group, policy),
        rank=group.rank,
        num_learners=group.world_size,
    )
    try:
        while (share := group.scatter(None)) is not None:
            batch, header = unpack_batch(share)
            if "train_iter" in header:  # the first learner's state has changed otherwise than by training
                policy.learn_mode.load_state_dict(share_state(group))
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
