"""Parts that a learner's process trains with: they stay from one attempt at the task to the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from ding_like.comm.channels import Batch
from ding_like.comm.flat_state import unflatten_state
from ding_like.comm.rest.row_check import RowCheck
from ding_like.comm.weights.extract import state_of
from ding_like.errors import CheckpointError
from ding_like.pipeline.build import (
    EnvSetting,
    Opponents,
    build_learner,
    build_policy,
    fit_policy_config,
    rows_schema,
)
from ding_like.pipeline.parallel.final_evaluation import FinalEvaluation
from ding_like.pipeline.parallel.learner_aggregator import LearnerAggregator
from ding_like.pipeline.self_play import has_league
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics, Statistics
from ding_like.types import State
from ding_like.utils.files import is_full
from ding_like.utils.resume import ResumeStore
from ding_like.utils.seeding import make_rng
from ding_like.worker import LearnerHook
from ding_like.worker.learner.hooks import LoadCkptHook

logger = logging.getLogger(__name__)


class Training:
    """Policy, learner, envs of the final evaluation and schema of the rows; `close` closes them all.

    `cfg` is what a comm learner is made from. `hooks` and `get_data` are the learner's, for good.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        *,
        run_id: str,
        store: ResumeStore,
        hooks: list[LearnerHook],
        get_data: Callable[[int], Callable[[], Any]],
        env_setting: EnvSetting | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        self._main = main = cfg["main"]
        self._store = store
        self.run_id = run_id
        self.last_attempt = 0  # that this process made at the task
        self.learned_updates = 0  # batches learned from, by this learner and those that it goes on from
        self.num_updates = 0  # what the learner counted last; it may learn on after the model that ends the run
        self.train_s = 0.0
        given = main.policy.learn.learner.get("train_iterations", float("inf"))
        self.max_updates = min(float(cfg.get("max_train_iter") or float("inf")), float(given))
        self._newer: tuple[int, dict[str, torch.Tensor]] | None = None
        self._saved_s = time.monotonic()
        seed = int(cfg["seed"])
        with ExitStack() as parts:
            self.final_evaluation = FinalEvaluation(main, seed=seed, env_setting=env_setting)
            parts.callback(self.final_evaluation.close)
            fitted = fit_policy_config(main.policy, self.final_evaluation.env)
            self.policy = build_policy(fitted, seed=seed, model=model)
            self.statistics = MergedStatistics(self.final_evaluation.manager)
            self.final_evaluation.judge(
                self.policy,
                Opponents(fitted, self.policy),
                before=lambda: self.statistics.evaluate_with(self.final_evaluation.manager),
            )
            # A league's collectors see one player of each game, others all of them.
            acted_in = self.final_evaluation.env if has_league(main) else self.final_evaluation.manager
            self.schema = rows_schema(fitted, acted_in, seed=seed)
            env = self.final_evaluation.env
            self.row_check = RowCheck(env.observation_space, env.action_space, self.schema)
            rng = make_rng(seed, "learner")
            self._aggregator = self._make_aggregator(cfg, parts, rng)
            self.learner = build_learner(
                main,
                self.policy,
                seed=seed,
                rng=rng,
                max_updates=self.max_updates,
                reducer=None if self._aggregator is None else self._aggregator.reducer,
                num_learners=int(cfg.get("num_learners") or 1),
            )
            parts.callback(self.learner.close)
            for hook in hooks:
                self.learner.register_hook(hook)
            self.learner.checkpoint_parts[ENV_WRAPPERS] = self.statistics
            self.learner.get_data = get_data
            self._parts = parts.pop_all()

    def _make_aggregator(
        self, cfg: Mapping[str, Any], parts: ExitStack, rng: np.random.Generator
    ) -> LearnerAggregator | None:
        if int(cfg.get("num_learners") or 1) < 2:
            return None
        aggregator = LearnerAggregator(cfg)
        parts.callback(aggregator.close)
        aggregator.start(self.policy, rng=rng)
        return aggregator

    def close(self) -> None:
        """Close all parts, also where closing one of them fails; may be called again."""
        self._parts.close()

    def acting_state(self) -> State:
        """Return all that an actor needs: the collect mode's state, and by what its envs are normalised."""
        state, statistics = self.policy.collect_mode.state_dict(), self.statistics.weights()
        return {**state, ENV_WRAPPERS: statistics} if statistics else state

    # --- several learners as one

    def share(self, batch: Batch) -> Batch:
        """Return this learner's share of a batch; the others get theirs."""
        if self._aggregator is None:
            return batch
        return self._aggregator.share(batch, train_iter=self.learner.train_iter)

    def priorities(self, priority_info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the priorities of the whole batch, of which this learner has those of its share."""
        own = priority_info if self._main.policy.priority else {}
        return own if self._aggregator is None else self._aggregator.merge_priority(own)

    def averages(self) -> dict[str, float]:
        """Return the means of what the learner logs."""
        monitor = self.learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}

    @property
    def has_lost_a_learner(self) -> bool:
        """Tell whether one of several learners was lost, so that this process cannot train on."""
        return self._aggregator is not None and self._aggregator.has_lost_a_learner

    # --- from attempt to attempt

    def goes_on(self, attempt: int, published_by: int | None, run_id: str) -> bool:
        """Tell whether another attempt can go on from what is in memory: no other has published meanwhile.

        `published_by` is the attempt whose weights are the run's newest, None where there are none.
        """
        is_newest = published_by is None or published_by <= self.last_attempt
        return self.run_id == run_id and is_newest and 0 < self.last_attempt <= attempt

    def begin(self, attempt: int) -> None:
        """Begin another attempt, with the newest weights of this process."""
        self.last_attempt = attempt
        if self._aggregator is not None:  # what was loaded since, they have not got
            self._aggregator.renew()
        # What an attempt goes on from is not the checkpoint that the run was begun with.
        if attempt > 1 and self.learner.train_iter > 0:
            self.learner.remove_hooks(LoadCkptHook)
        if self._newer is not None:
            version, state = self._newer
            self._newer = None
            self._load_acting(version, state)
            self.statistics.show(None)
        self.num_updates = self.learner.train_iter

    def result(self) -> dict[str, Any]:
        """Return what training came to, and what the last model is worth."""
        trained = {"train_iter": self.num_updates, "train_s": self.train_s}
        trained["last_iter"] = self.learner.train_iter  # of the last model: learning may have gone on after it
        return {**trained, **self.final_evaluation.play()}

    def judged_weights(self, version: int, state: Mapping[str, torch.Tensor]) -> None:
        """Take the weights whose evaluation ended the run, by which it is judged.

        Those that are newer are kept beside, optimizer and targets stay: `begin` goes on with them, as if nothing had
        been.
        """
        newest = {name: tensor.clone() for name, tensor in state_of(self.policy.collect_mode).items()}
        self._newer = (self.learner.train_iter, newest)
        self.statistics.show(self._load_acting(version, state))
        self.learner.info(f"the run ends with the weights of iteration {version}, whose evaluation ended it")

    def _load_acting(self, version: int, state: Mapping[str, torch.Tensor]) -> Statistics | None:
        """Load published weights; return the statistics that came with them, if any."""
        acting = unflatten_state(state)
        statistics: Statistics | None = acting.pop(ENV_WRAPPERS, None)
        self.policy.collect_mode.load_state_dict(acting)
        self.learner.last_iter.update(version)
        return statistics

    # --- saved points

    def go_on_from_saved(self) -> None:
        """Take over what another process, or this one, saved of this run, if there is anything."""
        try:
            saved = self._store.load_newest()
        except CheckpointError as error:
            logger.info("the learner starts from the beginning: %s", error)
            return
        if saved.meta.get("run_id") != self.run_id:
            logger.info("the learner starts from the beginning: %s belongs to another run", self._store.folder)
            return
        self.learner.policy.load_state_dict(saved.parts["policy"])
        self.learner.load_state_dict(saved.parts["learner"])
        self.statistics.load_resume_state(saved.parts.get(ENV_WRAPPERS, {}))
        self.learned_updates = int(saved.meta.get("learned_updates", self.learner.train_iter))
        logger.info("the learner goes on from iteration %s", f"{self.learner.train_iter:,}")

    def save_if_due(self, warn: Callable[[str], None], learned_updates: int) -> None:
        """Save a point now and then."""
        if time.monotonic() - self._saved_s >= float(self._main.resume.save_every_s):
            self.save(warn, learned_updates)

    def save(self, warn: Callable[[str], None], learned_updates: int) -> None:
        """Save a point from which another attempt goes on; a disk that is full is said, and an earlier point stays."""
        self._saved_s = time.monotonic()
        learner = self.learner
        parts = {"policy": learner.policy.state_dict(), "learner": learner.state_dict()}
        if statistics := self.statistics.resume_state():
            parts[ENV_WRAPPERS] = statistics
        meta = {"run_id": self.run_id, "learned_updates": learned_updates}
        try:
            self._store.save(learner.train_iter, parts, meta)
        except OSError as error:
            if not is_full(error):
                raise
            warn(f"the disk is full ({error}): iteration {learner.train_iter} is not saved, an earlier one is")
