"""Hold the parts of a worker that collects, and what others may ask of it while it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ding_like.comm.workers.last_action import LastAction
from ding_like.errors import ConfigError
from ding_like.pipeline.build.collect_end import CollectEnd, collector_name
from ding_like.pipeline.build.held_weights import HeldWeights
from ding_like.worker.collector.stop_rule import StopSignals


class CollectingParts:
    """Be the base of a worker that collects: hold `algo`, `actor`, `storage`, `envs_train` and `envs_test`.

    A worker has `index_worker`, `index_parent` and `device`, and then calls `_make_parts`.
    """

    index_worker: int
    index_parent: int
    device: torch.device

    # Any, here and below: a part is of any class that has what is used of it.
    def _make_parts(
        self,
        *,
        algo: Callable[..., Any],
        actor: Callable[..., Any],
        storage: Callable[..., Any],
        train_envs: Callable[..., Any],
        test_envs: Callable[..., Any],
        initial_weights: Any,
        notes: str | None,
    ) -> None:
        """Make the parts by their factories: actor, algorithm, storage, envs. If one raises, nothing stays open."""
        self._end: CollectEnd | None = None
        self._signals = StopSignals()
        self._notes = LastAction.open(notes, collector_name(self.index_worker, self.index_parent))
        self.envs_train: Any = None
        self.envs_test: Any = None
        try:
            self.actor = actor(self.device)
            self.algo = algo(self.device, self.actor)
            self.storage = storage(self.device, self.actor, self.algo)
            self._weights = HeldWeights(self.actor)
            if initial_weights is not None:
                self.set_weights(initial_weights)
            self._use_envs(train_envs(self.device, self.index_worker, self.index_parent))
            self.envs_test = test_envs(self.device, self.index_worker, self.index_parent, "test")
        except BaseException:
            self.stop()
            raise

    def _use_envs(self, envs: Any) -> None:
        """Collect in these envs, from their first episodes on, in place of those before; None: nowhere."""
        before, self._end, self.envs_train = self._end, None, envs
        if before is not None:
            before.close()
        if envs is not None:
            self._end = end = self.algo.collect_end(envs, self.index_worker, self.index_parent)
            end.connect(self._weights, self.storage)
            end.collector.envstep = 0 if before is None else before.collector.envstep
            end.note_actions(self._notes)
            self._weights.tell_statistics(end.statistics.use)

    def _replace_part(self, name: str, factory: Callable[..., Any]) -> None:
        """Put what a factory makes, called as in the beginning, in place of a part; envs before it are closed."""
        place = self.index_worker, self.index_parent
        given = dict(algo=(self.actor,), storage=(self.actor, self.algo), envs_train=place, envs_test=(*place, "test"))
        new, before = factory(self.device, *given.get(name, ())), getattr(self, name)
        setattr(self, name, new)
        if name == "envs_train":
            self._use_envs(new)
        elif name == "envs_test" and before is not None:
            before.close()
        elif name == "actor":
            self._weights.use_policy(new)
            self.algo.policy = new
        if self._end is not None and name in ("actor", "storage"):
            self._end.use_policy(self.actor, self.storage)

    # --- what may be called while it collects

    def set_weights(self, actor_weights: Any) -> None:
        """Take weights over, unless they are older: now, or before the next collection if one is under way.

        They are {"version": int, "weights": the state dict of the actor's collect mode}, or what a HostWeightPublisher
        sends. Raises CommError that names the first tensor which does not fit.
        """
        self._weights.put(actor_weights)

    @property
    def actor_version(self) -> int:
        """Return the number of updates of the actor's weights."""
        return self._weights.version.update

    def stop_collecting(self, round_id: int, keyword: str = "sync") -> None:
        """Tell collections of round `round_id`, and of those before it, that listen to `keyword` to stop."""
        self._signals.stop(round_id, keyword)

    # --- where it is

    @property
    def obs(self) -> Any:
        """Return the newest observation of each train env [E, O...], a tensor or a dict of them; None without envs."""
        return None if self._end is None else self._end.obs

    @property
    def rhs(self) -> dict[str, torch.Tensor] | None:
        """Return the actor's recurrent state by name [E, S...], empty for one without; None without train envs."""
        return None if self._end is None else self._end.recurrent_state

    @property
    def done(self) -> torch.Tensor | None:
        """Return bool[E], the train envs that begin an episode next; None without any."""
        return None if self._end is None else self._end.done

    def _collecting(self) -> CollectEnd:
        if self._end is None:
            raise ConfigError(f"worker {self.index_worker} has no train envs, or was stopped: it cannot collect.")
        return self._end

    def stop(self) -> None:
        """Close the envs and what else the worker has opened; may be called again."""
        for part in (self._end, self.envs_train, self.envs_test, self._notes):
            if part is not None:
                part.close()
        self._end = self._notes = self.envs_train = self.envs_test = None
