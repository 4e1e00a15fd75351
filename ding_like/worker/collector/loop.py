"""Rollout loop: the one loop under every collector and evaluator; and the rules of when a collection ends.

`act` opens a row for each lane that is ready; the manager's answer closes it; closed rows are appended to the rollout;
`take` returns the training rows that the policy makes of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

import numpy as np

from ding_like.data.batch import Schema, TransitionBatch, can_hold, copy_obs, obs_to_columns, take_lanes, write_obs
from ding_like.data.records import ALWAYS, EpisodeMetrics, EpisodeRecord
from ding_like.data.rollout import Rollout
from ding_like.data.rows import INFO_COLUMN, timestep_infos
from ding_like.errors import ConfigError
from ding_like.types import Actor, Array, Obs, Report, SeesRewards, Setting, State, StepBatch

# Returns whether a collection ends before its target is reached; asked before each step.
StopRule: TypeAlias = Callable[[], bool]


class Episodes:
    """Rule of a collection of exactly `number` episodes (or games), all begun within it.

    Stopping at the first that *end* would favour short ones: here a lane begins another episode when its own ends, as
    long as some are left to begin, and is idle afterwards. An episode that breaks off is begun again.
    Raises ConfigError for fewer episodes than lanes.
    """

    def __init__(self, number: int, num_lanes: int) -> None:
        if whole_number("n_episode", number) < num_lanes:
            raise ConfigError(
                f"n_episode {number} is fewer than {num_lanes} envs: every env begins one. Raise "
                "policy.collect.n_episode, or lower env.collector_env_num."
            )
        self._left = number - num_lanes
        self._is_idle = np.zeros(num_lanes, bool)
        self._num_idle = 0

    @property
    def is_met(self) -> bool:
        """Whether all episodes have ended."""
        return self._num_idle == len(self._is_idle)

    @property
    def idle(self) -> Array | None:
        """Lanes that take no further step, bool[E]; None if all continue."""
        return self._is_idle if self._num_idle else None

    def note(self, ended_lanes: Sequence[int]) -> None:
        """Count a step at which the episodes of these lanes ended."""
        for lane in ended_lanes:
            if not self._begins_another(lane):
                self._is_idle[lane] = True
                self._num_idle += 1

    def _begins_another(self, lane: int) -> bool:
        self._left -= 1
        return self._left >= 0


class EpisodeQuota(Episodes):
    """Rule of an evaluation of `number` episodes (or games), of which each lane plays its own share."""

    def __init__(self, number: int, num_lanes: int) -> None:
        self._lacking = episode_shares(number, num_lanes)
        super().__init__(number, num_lanes)

    def _begins_another(self, lane: int) -> bool:
        self._lacking[lane] -= 1
        return self._lacking[lane] > 0


class StopSignals:
    """Signals that stop the collections of a round, by keyword; threads may share them.

    A signal counts for its round and for those before it, which a slow collector may still be in; it does not stop a
    later round that has already begun.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}  # round, by keyword

    def stop(self, round_id: int, keyword: str) -> None:
        """Stop the collections of round `round_id`, and of those before it, that listen to a keyword."""
        round_id = whole_number("round_id", round_id, least=0)
        with self._lock:
            self._newest[keyword] = max(round_id, self._newest.get(keyword, -1))

    def rule(self, listen_to: Iterable[str | tuple[str, int]], round_id: int) -> StopRule | None:
        """Return the rule of a collection that listens to keywords, alone (in round `round_id`) or with a round.

        Returns None if it listens to none.
        """
        named = [(each, round_id) if isinstance(each, str) else each for each in listen_to]
        if not named:
            return None
        return lambda: any(self._newest.get(keyword, -1) >= number for keyword, number in named)


def episode_shares(number: int, num_lanes: int) -> list[int]:
    """Return how many of `number` episodes each lane plays: equally many, the first lanes one more where need be.

    Raises ConfigError if there are fewer episodes than lanes.
    """
    if whole_number("n_episode", number) < num_lanes:
        raise ConfigError(
            f"{number} evaluation episodes for {num_lanes} envs: each env must finish at least one. "
            "Raise env.n_evaluator_episode or lower env.evaluator_env_num."
        )
    each, more = divmod(number, num_lanes)
    return [each + (lane < more) for lane in range(num_lanes)]


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `least`. Raises ConfigError if not."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} is {value!r}; expected a whole number, {least} or more.")
    return int(value)


logger = logging.getLogger(__name__)

_NO_ACTION = np.zeros(0, np.int64)
_PER_LANE = ("is_first", "return", "length", "episode", "open_rows")  # arrays [E] of a loop that its state holds


class Lanes(Protocol):
    """What a loop uses of an env manager, or of one player's part of it."""

    num_lanes: int

    @property
    def obs(self) -> Obs: ...

    @property
    def ready(self) -> Array: ...

    def reset(self, lanes: Array | None = None) -> None: ...

    def step(self, lanes: Array, actions: Array) -> StepBatch: ...


SettingT = TypeVar("SettingT", contravariant=True)
Ended = TypeVar("Ended", covariant=True)
# What a policy makes of a rollout: a TransitionBatch, or a list of whatever does not stack.
Taken = TypeVar("Taken")


class Steps(Protocol[SettingT, Ended]):
    """A `RolloutLoop`, or a `BattleLoop` whose lanes are games."""

    @property
    def ended_lanes(self) -> Sequence[int]: ...

    def step(self, setting: SettingT, *, policy_version: int = 0, idle: Array | None = None) -> Ended: ...


def step_until(
    loop: Steps[SettingT, Ended], rule: Episodes, setting: SettingT, *, policy_version: int = 0
) -> Iterator[Ended]:
    """Step until the episodes of the rule have ended; yield those that ended in each step."""
    while not rule.is_met:
        ended = loop.step(setting, policy_version=policy_version, idle=rule.idle)
        rule.note(loop.ended_lanes)
        yield ended


class RolloutLoop:
    """Loop that steps the lanes of a manager with an actor and logs the transitions.

    `env_steps` counts every real step, dropped ones too. With `record=False` nothing is logged (evaluation).
    A row is open until its lane answers, and keeps the columns that its action was made with.
    With `keeps_info` rows have a column of the env's `info`, for a policy that reads it.
    """

    def __init__(
        self, manager: Lanes, actor: Actor, *, rng: np.random.Generator, record: bool = True, keeps_info: bool = False
    ) -> None:
        lanes = manager.num_lanes
        self.manager = manager
        self._actor = actor
        self._sees_rewards = isinstance(actor, SeesRewards)
        self._rng = rng
        self._lanes = np.arange(lanes, dtype=np.int64)
        self._in_order: Array | None = None
        self.rollout = Rollout(lanes)
        self._metrics = EpisodeMetrics(getattr(manager, "metrics", ALWAYS))
        self._record = record
        self._keeps_info = keeps_info
        self.env_steps = 0
        self.dropped_steps = 0
        self.dropped_episodes = 0
        self.ended_lanes: Sequence[int] = ()  # whose episodes ended in the last step; those that broke off did not
        # Takes the place of `step`, with the same arguments: it calls `act`, `manager.step` and `close`.
        self.step_by: Callable[..., list[EpisodeRecord]] | None = None
        self._next_episode = lanes
        self._open_obs: Obs = copy_obs(manager.obs)
        # The actor's columns of the rows that are open, [E, ...]; those of lanes that have none open mean nothing.
        self._open: dict[str, Array] = {}
        self._owns_open = False  # False: they are the actor's own arrays, of a step of all lanes
        self._is_new_actor = False  # and has not acted yet
        self._ignore_open_rows()
        self._open_version = np.zeros(lanes, np.int64)
        self._is_first = np.ones(lanes, bool)
        self._return = np.zeros(lanes, np.float64)
        self._length = np.zeros(lanes, np.int64)
        self._episode = self._lanes.copy()
        self._open_rows = np.zeros(lanes, np.int64)  # rows in the rollout that belong to the lane's open episode
        self._closed: list[int] = []  # rows in the rollout of each episode that ended

    def use_actor(self, actor: Actor, *, keeps_info: bool = False) -> None:
        """Act with another actor from the next step on; open episodes continue, and open rows stay as they are.

        If its columns are others than those of the rows so far, which then fit into no log with its own, those rows are
        dropped and counted: the logged ones when it first acts, the open ones as their lanes answer.
        """
        self._actor = actor
        self._sees_rewards = isinstance(actor, SeesRewards)
        actor.reset()
        self._is_new_actor = True
        if keeps_info != self._keeps_info:
            self._keeps_info = keeps_info
            self._drop_rows_of_others()

    def step(self, setting: Setting, *, policy_version: int = 0, idle: Array | None = None) -> list[EpisodeRecord]:
        """Act on all ready lanes that are not `idle` [E], step them once, and return the episodes that ended."""
        if self.step_by is not None:
            return self.step_by(self, setting, policy_version=policy_version, idle=idle)
        lanes, actions = self.act(setting, policy_version=policy_version, idle=idle)
        return self.close(self.manager.step(lanes, actions))

    def act(self, setting: Setting, *, policy_version: int = 0, idle: Array | None = None) -> tuple[Array, Array]:
        """Open a row for each ready lane that is not `idle` [E]; return those lanes [R] and their actions [R, A...]."""
        ready = self.manager.ready
        if idle is not None:
            ready = ready & ~idle
        if np.count_nonzero(ready) == len(ready):
            lanes = self._lanes
            write_obs(self._open_obs, self.manager.obs)
            self._open_version.fill(policy_version)
            self._open = self._act(self._open_obs, lanes, self._is_first, setting)
            self._owns_open = self._has_unwanted = False
            return lanes, self._open["action"]
        lanes = ready.nonzero()[0]
        return lanes, self._open_some(lanes, policy_version, setting)

    def close(self, answer: StepBatch) -> list[EpisodeRecord]:
        """Close the rows of the lanes that answered, and return the episodes that ended."""
        self.env_steps += len(answer.lanes)
        if answer.info:
            answer = self._without_abnormal(answer)
        for lane in answer.dropped:
            self.drop_episode(int(lane))
        if self._sees_rewards:
            cast(SeesRewards, self._actor).observe(answer.lanes, answer.reward)
        ended = self._close_rows(answer) if len(answer.lanes) else []
        self.ended_lanes = [record.lane for record in ended] if ended else ()
        return ended

    def _act(self, obs: Obs, lanes: Array, is_first: Array, setting: Setting) -> dict[str, Array]:
        columns = self._actor.act(obs, lanes=lanes, is_first=is_first, rng=self._rng, **setting)
        if self._is_new_actor:
            self._is_new_actor = False
            known = self._open or {
                name: column
                for name, column in self.rollout.columns().items()
                if name not in _OWN_COLUMNS and name.partition("/")[0] not in ("obs", "next_obs")
            }
            if known and not can_hold(known, columns):
                self._drop_rows_of_others()
        return columns

    def _drop_rows_of_others(self) -> None:
        """Drop what is logged and what is open: the rows of the actor that acts now have other columns."""
        self._ignore_open_rows()
        if not self._record:
            return
        num_logged, num_open = len(self.rollout), np.count_nonzero(self._unwanted)
        if num_logged or num_open:
            text = "the rows of the new policy have other columns: %d earlier rows and up to %d open ones are dropped."
            logger.info(text, num_logged, num_open)
        self.dropped_steps += num_logged
        self.rollout = Rollout(len(self._lanes))
        self.forget_rows()

    def _ignore_open_rows(self) -> None:
        """Mark the lanes that have not answered, so that they log no row: the columns of their actions are not kept."""
        self._open = {}
        self._owns_open = True
        self._unwanted = ~self.manager.ready
        self._has_unwanted = bool(self._unwanted.any())

    def _open_some(self, lanes: Array, policy_version: int, setting: Setting) -> Array:
        """Open rows of some lanes beside the open rows of the others. Raises SchemaError if their columns differ."""
        if not len(lanes):
            return _NO_ACTION
        if not self._owns_open:
            # The actor may write into its arrays when it acts again, and does not expect us to.
            self._open = {name: column.copy() for name, column in self._open.items()}
            self._owns_open = True
        obs = take_lanes(self.manager.obs, lanes)
        write_obs(self._open_obs, obs, lanes)
        self._open_version[lanes] = policy_version
        columns = self._act(obs, lanes, self._is_first[lanes], setting)
        self._unwanted[lanes] = False
        if not self._open:
            self._open = Schema.of(columns).allocate(len(self._lanes))
        if not can_hold(self._open, columns, rows=len(lanes)):
            Schema.of(self._open).check(columns, where="the log of open rows", rows=len(lanes), widens=True)
        for name, column in columns.items():
            self._open[name][lanes] = column
        return columns["action"]

    def _close_rows(self, answer: StepBatch) -> list[EpisodeRecord]:
        lanes = answer.lanes
        # All lanes answered in order: no gather is needed.
        everyone = lanes is self._in_order or self._is_in_order(lanes)
        if self._has_unwanted:
            self._log_wanted(answer)
        elif self._record:
            self.rollout.append(self._rows(answer, None if everyone else lanes), is_full_step=everyone)
            if everyone:
                self._open_rows += 1
            else:
                self._open_rows[lanes] += 1
        if everyone:
            self._return += answer.reward
            self._length += 1
            self._is_first.fill(False)
        else:
            self._return[lanes] += answer.reward
            self._length[lanes] += 1
            self._is_first[lanes] = False
        done = answer.terminated | answer.truncated
        if not np.count_nonzero(done):
            return []
        return [self._end_episode(int(lane), answer.info.get(int(lane), {})) for lane in lanes[done]]

    def _log_wanted(self, answer: StepBatch) -> None:
        """Log the rows of an answer but those that must not be; these are counted."""
        unwanted = self._unwanted[answer.lanes]
        self._unwanted[answer.lanes] = False
        self._has_unwanted = bool(self._unwanted.any())
        if not self._record:
            return
        self.dropped_steps += int(np.count_nonzero(unwanted))
        answer = take_rows(answer, np.flatnonzero(~unwanted))
        if len(answer.lanes):
            self.rollout.append(self._rows(answer, answer.lanes))
            self._open_rows[answer.lanes] += 1

    def _is_in_order(self, lanes: Array) -> bool:
        """Return whether all lanes answered in order; a manager that reuses one array for that is asked only once."""
        everyone = len(lanes) == len(self._lanes) and bool((lanes == self._lanes).all())
        if everyone and not lanes.flags.writeable:
            self._in_order = lanes
        return everyone

    def _rows(self, answer: StepBatch, lanes: Array | None) -> dict[str, Array]:
        """Return the closed rows as columns, in the order of the answer."""
        own = {
            **obs_to_columns("obs", self._open_obs),
            **self._open,
            "lane": self._lanes,
            "env_id": self._lanes,
            "episode_id": self._episode,
            "step": self._length,
            "policy_version": self._open_version,
        }
        if lanes is not None:
            own = {name: column.take(lanes, axis=0) for name, column in own.items()}
        own.update(obs_to_columns("next_obs", answer.next_obs))
        own["reward"], own["terminated"], own["truncated"] = answer.reward, answer.terminated, answer.truncated
        if self._keeps_info:
            own[INFO_COLUMN] = timestep_infos(answer, self._return)
        return own

    def _end_episode(self, lane: int, info: Report) -> EpisodeRecord:
        # An env whose score is not the sum of its rewards (reward shaping) reports it, in DI-engine's style as [1].
        total = float(np.asarray(info.get("eval_episode_return", self._return[lane])).reshape(-1)[0])
        metrics = self._metrics.of(info) if info else {}
        record = EpisodeRecord(lane, total, int(self._length[lane]), info.get("episode_info", {}), metrics, info)
        self._closed.append(int(self._open_rows[lane]))
        self._begin_episode(lane)
        return record

    def _begin_episode(self, lane: int) -> None:
        self._is_first[lane] = True
        self._return[lane] = 0.0
        self._length[lane] = 0
        self._open_rows[lane] = 0
        self._episode[lane] = self._next_episode
        self._next_episode += 1

    def drop_episode(self, lane: int) -> None:
        """Forget the rows of an episode that broke off; it must not be trained on."""
        if self._record:
            self.rollout.drop_last(lane, int(self._open_rows[lane]))
        self._unwanted[lane] = False
        self.dropped_steps += int(self._length[lane])
        self.dropped_episodes += 1
        self._begin_episode(lane)

    def _without_abnormal(self, answer: StepBatch) -> StepBatch:
        """Treat `info['abnormal']` (DI-engine's word for a broken step) like an episode that broke off."""
        abnormal = [lane for lane, info in answer.info.items() if info.get("abnormal")]
        # A manager that has dropped the episode itself has begun another already.
        bad = [lane for lane in abnormal if lane not in answer.dropped]
        if not bad:
            return answer
        stays = ~np.isin(answer.lanes, bad)
        self.dropped_steps += int(np.count_nonzero(~stays))
        ended = answer.lanes[(answer.terminated | answer.truncated) & ~stays]
        self.manager.reset(np.array([lane for lane in bad if lane not in ended], np.int64))
        dropped = np.concatenate([answer.dropped, np.array(bad, np.int64)])
        return take_rows(answer, np.flatnonzero(stays))._replace(dropped=dropped)

    @property
    def is_first(self) -> Array:
        """Lanes that take the first step of an episode next, bool[E]; a live view."""
        return self._is_first

    @property
    def is_mid_episode(self) -> bool:
        """Whether some lane has an episode under way."""
        return bool(self._length.any())

    def num_ready(self, count: Callable[[Array, Array], int]) -> int:
        """Return how many training rows `segment` would make now; `count` is the policy's `num_ready`."""
        if not self._closed:  # as a rule; the arrays are not worth making
            return count(self._open_rows.copy(), np.zeros(len(self._lanes), bool))
        length = np.concatenate([np.array(self._closed, np.int64), self._open_rows])
        ended = np.arange(len(length)) < len(self._closed)
        return count(length, ended)

    def take(self, segment: Callable[[Rollout], tuple[Taken, Array]]) -> Taken:
        """Return the training rows that `segment` makes of the rollout; the rows it keeps lead the next call."""
        batch, keep = segment(self.rollout)
        # The rows handed out may be views of the log, which is written again.
        if isinstance(batch, TransitionBatch):
            batch = cast(Taken, batch.own_memory())
        self.rollout.keep_last(keep)
        self._open_rows[:] = keep
        self._closed = []
        return batch

    def forget_rows(self) -> None:
        """Drop logged rows; open episodes continue."""
        self.rollout.clear()
        self._open_rows.fill(0)
        self._closed = []

    def state_dict(self) -> State:
        """Return counters, open episodes and logged rows, for an exact resume."""
        return {
            "rollout": self.rollout.state_dict(),
            "counters": [self.env_steps, self.dropped_steps, self.dropped_episodes, self._next_episode],
            **{name: getattr(self, f"_{name}").copy() for name in _PER_LANE},
            "closed": list(self._closed),
            "actor": self._actor.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; the manager has been brought to the same step."""
        self.rollout.load_state_dict(state["rollout"])
        self.env_steps, self.dropped_steps, self.dropped_episodes, self._next_episode = state["counters"]
        for name in _PER_LANE:
            getattr(self, f"_{name}")[:] = state[name]
        self._closed = list(state["closed"])
        # Which columns the actor gives is known when it acts; the rows of the log may be those of another one.
        self._is_new_actor = True
        self._ignore_open_rows()
        self._actor.load_state_dict(state["actor"])


def take_rows(answer: StepBatch, rows: Array) -> StepBatch:
    """Return the rows of an answer that `rows` [N] names; `info` and `dropped` stay whole."""
    return answer._replace(
        lanes=answer.lanes[rows],
        next_obs=take_lanes(answer.next_obs, rows),
        reward=answer.reward[rows],
        terminated=answer.terminated[rows],
        truncated=answer.truncated[rows],
    )


# What the loop adds to the actor's columns.
_OWN_COLUMNS = frozenset(
    ("lane", "env_id", "episode_id", "step", "policy_version", "reward", "terminated", "truncated", INFO_COLUMN)
)
