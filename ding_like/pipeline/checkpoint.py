"""Points of a run to resume from: what is saved of its components, and how they are restored."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from ding_like.config import FrozenConfig
from ding_like.errors import CheckpointError
from ding_like.pipeline.components import Components
from ding_like.pipeline.record import versions
from ding_like.pipeline.statistics import SharedStatistics
from ding_like.types import Config, State
from ding_like.utils.resume import ResumeStore, Saved
from ding_like.utils.seeding import global_rng_state, set_global_rng_state

logger = logging.getLogger(__name__)


_KEPT_IN_STEP = 2  # points that each of several learners keeps at least: one may be killed before it has the newest


def resume_store(exp_name: str, *, keep: int = 2, rank: int = 0) -> ResumeStore:
    """Return the store of an experiment's resume points, of several learners that of `rank`."""
    return ResumeStore(Path(exp_name) / "ckpt" / (f"resume_rank{rank}" if rank else "resume"), keep=keep)


class Checkpointer:
    """Saver of a run's components, every so often by time and by env steps, and on request."""

    def __init__(
        self,
        cfg: FrozenConfig,
        parts: Components,
        *,
        arguments: Config,  # JSON-like: what the run was started with, for `ding --resume`
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cfg = cfg.resume
        self._parts = parts
        keep = self._cfg.keep if parts.share.num_learners == 1 else max(self._cfg.keep, _KEPT_IN_STEP)
        self._store = resume_store(cfg.exp_name, keep=keep, rank=parts.share.rank)
        self._meta = {"arguments": dict(arguments), "versions": versions()}
        self._clock = clock
        self._last_s = clock()
        self._last_step = 0
        self._told_large = False

    def start_from(self, env_step: int) -> None:
        """Count the next interval from here."""
        self._last_step = env_step
        self._last_s = self._clock()

    def is_due(self) -> bool:
        """Tell whether a point is due, and count the next interval from here if it is.

        With a replay buffer over the limit none is until the run ends.
        """
        step, every = self._parts.collector.envstep, self._cfg.save_every_env_steps
        by_steps = every > 0 and step - self._last_step >= every
        if not by_steps and self._clock() - self._last_s < self._cfg.save_every_s:
            return False
        self.start_from(step)
        if self._parts.buffer is not None and self._parts.buffer.num_bytes > self._cfg.max_buffer_gb * 1e9:
            if not self._told_large:
                self._told_large = True
                logger.info(
                    "the replay buffer is over resume.max_buffer_gb=%g: it is saved when the run ends or is "
                    "interrupted, not in between; a killed process cannot be resumed.",
                    self._cfg.max_buffer_gb,
                )
            return False
        return True

    def newest_step(self) -> int | None:
        """Return the env step of the newest valid point, None if there is none."""
        return next(iter(self._store.whole_steps()), None)

    def save(self, run_state: State) -> Path:
        """Save now and return the folder."""
        parts = self._parts
        return self._store.save(
            parts.collector.envstep,
            {
                "policy": parts.policy.learn_mode.state_dict(),
                "buffer": {} if parts.buffer is None else parts.buffer.state_dict(),
                "collector": self._collector_state(),
                "run": {
                    **run_state,
                    "learner": parts.learner.state_dict(),
                    "evaluator": {} if parts.evaluator is None else parts.evaluator.state_dict(),
                    "metrics": {} if parts.metrics is None else parts.metrics.state_dict(),
                    **({} if parts.statistics is None else {"statistics": parts.statistics.resume_state()}),
                    "league": {} if parts.league is None else parts.league.state_dict(),
                    "rng": global_rng_state(),
                },
            },
            self._meta,
        )

    def _collector_state(self) -> State:
        state, statistics = self._parts.collector.state_dict(), self._parts.statistics
        if not isinstance(statistics, SharedStatistics):
            return state
        return {**state, "env": statistics.replayable(state["env"])}

    def _has_moved(self, saved: Saved) -> bool:
        """Tell whether rows are collected here and were elsewhere, or the other way round."""
        return ("loop" in saved.parts["collector"]) != (self._parts.collector_env is not None)

    def _carry_over(self, saved: Saved) -> None:
        """Have the collector go on from the env step that one of another kind has come to."""
        state, statistics = saved.parts["collector"], self._parts.statistics
        if saved.parts["run"].get("statistics") or (statistics is not None and statistics.resume_state()):
            raise CheckpointError(
                "env.wrappers that normalise by what they have seen are saved in one way where the run's own process "
                "collects, and in another where workers do: resume with workers if the run had any, with 0 if it had "
                "none."
            )
        logger.info("rows are collected elsewhere than before: open episodes begin anew, the env steps go on.")
        is_here = self._parts.collector_env is not None
        step = state["envstep"] if is_here else state["envstep_offset"] + state["loop"]["counters"][0]
        self._parts.collector.envstep = step

    def restore(self, saved: Saved) -> State:
        """Bring all parts to a saved point and return the run's own state."""
        parts, run = self._parts, saved.parts["run"]
        if parts.collector_env is None:
            logger.info("the collectors' open episodes begin anew: counts are exact, the resume is not.")
        elif not parts.collector_env.lane_seeds:
            logger.info("this env manager cannot replay episodes: open ones are dropped, the resume is not exact.")
        try:
            parts.policy.learn_mode.load_state_dict(saved.parts["policy"])
            if parts.buffer is not None:
                parts.buffer.load_state_dict(saved.parts["buffer"])
            has_moved = self._has_moved(saved)
            if parts.buffer is not None and (has_moved or parts.collector_env is None):
                # The number of a lane may be another worker's now, which counts episodes as the first one did.
                parts.buffer.cut()
            if has_moved:
                self._carry_over(saved)
            else:
                parts.collector.load_state_dict(saved.parts["collector"])
            parts.learner.load_state_dict(run["learner"])
            if parts.evaluator is not None:
                parts.evaluator.load_state_dict(run["evaluator"])
            if parts.metrics is not None:
                parts.metrics.load_state_dict(run["metrics"])
            if parts.statistics is not None and not has_moved:
                parts.statistics.load_resume_state(run["statistics"])
            if parts.league is not None:
                parts.league.load_state_dict(run["league"])
        except (KeyError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"the saved point of step {saved.step} lacks or has more than this config's parts need ({error!r}): "
                "it was saved by another config or version. Resume with the one that saved it."
            ) from error
        # Last: building and resetting envs draws from these.
        set_global_rng_state(run["rng"])
        self.start_from(saved.step)
        for name, version in versions().items():
            if saved.meta["versions"].get(name) != version:
                logger.warning(
                    "saved with %s %s, going on with %s: the rest of the run may differ from an uninterrupted one.",
                    name,
                    saved.meta["versions"].get(name),
                    version,
                )
        return run
