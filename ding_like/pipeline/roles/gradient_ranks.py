"""Have ranks learn as one: each computes its share of every minibatch, they average, and each applies the mean.

A rank has the whole policy with its optimizer. This process has the rows and says what is learned from; what was
learned it asks the first rank for. A rank that is lost ends the learning: what those that are left have learned is
asked for, so that nothing of it is lost and a run can save it.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.comm.learner_group import GroupReducer, LearnerGroup
from ding_like.comm.workers.host import Call, Host, WorkerHandle, WorkerLostError
from ding_like.comm.workers.pool import WorkerPool
from ding_like.comm.workers.states import PackedState, pack_state, unpack_state
from ding_like.comm.workers.thread_ranks import ThreadRanks
from ding_like.errors import CommError, TrainingError
from ding_like.pipeline.learners.joined import pack_learn_state, restored
from ding_like.policy import Policy
from ding_like.policy.share import Share
from ding_like.policy.sharing import check_sharing, joined_info, joined_priority, parts_of, whole_part
from ding_like.types import Array, Info, State
from ding_like.utils.seeding import rng_state, set_rng_state
from ding_like.worker import BaseLearner

_RESCUE_S = 15.0  # for a rank that is left to say what it has learned; a group takes 7 s to find out who is lost


class Meeting(NamedTuple):
    """Say where ranks meet: in one process by a name, else at an address, as torchrun's do."""

    name: str
    host: str = ""  # "": all are threads of one process
    port: int = 0
    ranks_a_device: int = 1  # that see the same GPUs

    def join(self, rank: int, world_size: int, *, timeout_s: float) -> LearnerGroup | ThreadRanks:
        """Join the others. Raises CommError if they do not come."""
        if not self.host:
            return ThreadRanks(self.name, rank=rank, world_size=world_size, timeout_s=timeout_s)
        told = {"RANK": rank, "WORLD_SIZE": world_size, "MASTER_ADDR": self.host, "MASTER_PORT": self.port}
        # A worker sees the GPUs that are its own.
        told |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": self.ranks_a_device}
        os.environ.update({name: str(value) for name, value in told.items()})
        return LearnerGroup.from_environment(timeout_s=timeout_s, join_s=timeout_s)


def own_place() -> dict[str, Any]:  # Any: plain values
    """Return where this process is, what it sees of GPUs, and a port that is free."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "") if torch.cuda.is_available() else socket.gethostname()
    return {"node": socket.gethostname(), "pid": os.getpid(), "devices": devices, "port": port}


class Rank:
    """Be one rank, where it runs."""

    def __init__(self, policy: Policy, meeting: Meeting, rank: int, world_size: int, *, timeout_s: float) -> None:
        self._policy = policy
        self._group = meeting.join(rank, world_size, timeout_s=timeout_s)
        self._reducer = GroupReducer(self._group, policy.grad_vectors(), weight=policy.grad_weight)  # type: ignore[arg-type]  # of a group, `average` is all it calls
        self._num_updates = 0
        policy.set_share(Share(rank, world_size))
        torch.set_flush_denormal(True)  # of the worker's thread, which applies here: see `training_process`

    def load(self, described: Any, flat: PackedState, num_updates: int) -> None:  # Any: of JSON
        """Go on from a policy's learned state."""
        self._policy.learn_mode.load_state_dict(restored(described, unpack_state(flat)))
        self._num_updates = num_updates

    def train(self, batch: Any, rng: State) -> tuple[PackedState, State]:  # Any: rows, or windows of them
        """Learn from a batch, shuffled by a generator in this state; return what each update found, and the state."""
        generator = np.random.default_rng(0)
        set_rng_state(generator, rng)
        updates: dict[str, Any] = {}
        for number, minibatch in enumerate(self._policy.minibatches(batch, generator)):
            info, priority = self._policy.grad(minibatch)
            self._reducer.reduce()
            self._policy.apply()
            self._num_updates += 1
            found = {"info": info, "rows": len(minibatch), "weight": self._policy.grad_weight()}
            updates[str(number)] = found if priority is None else {**found, "priority": np.asarray(priority)}
        return pack_state(updates), rng_state(generator)

    def learned(self) -> tuple[Any, PackedState, int]:  # Any: of JSON
        """Return the learned state, and the number of updates that led to it."""
        described, flat = pack_learn_state(self._policy.learn_mode.state_dict())
        return described, pack_state(flat), self._num_updates

    def acting(self) -> PackedState:
        """Return what acting needs of it."""
        return pack_state(self._policy.collect_mode.state_dict())

    def checksum(self) -> int:
        """Return the crc32 of the learned state. Raises TrainingError for too many updates that were not finite."""
        self._policy.get_attribute("nonfinite_steps")
        flat = pack_learn_state(self._policy.learn_mode.state_dict())[1]
        return zlib.crc32(pack_state(flat).body.data)

    def interrupt(self) -> None:
        """Have a call that waits for other threads fail; a process group finds out by itself, and in its own thread."""
        if isinstance(self._group, ThreadRanks):
            self._group.close()

    def close(self) -> None:
        """Leave the others; may be called again."""
        self._group.close()


class GradientRanks:
    """Be the ranks' front: all workers of a pool, which none may join or replace."""

    def __init__(
        self, host: Host, pool: WorkerPool, policy: Policy, *, num_updates: int, timeout_s: float, compare_every: int
    ) -> None:
        """Have the workers join, and go on from what `policy` has learned in so many updates."""
        self._host = host
        self._policy = policy
        self._ranks = pool.workers
        self._timeout_s = timeout_s
        self._compare_every = compare_every
        self._fault: TrainingError | None = None  # after which the ranks cannot learn, nor tell of it
        self.num_updates = self._compared = self._learned = num_updates
        check_sharing(policy, len(self._ranks))
        meeting = self._meeting()
        self._all("join_ranks", [(meeting, rank, len(self._ranks), timeout_s) for rank in range(len(self._ranks))])
        described, flat = pack_learn_state(policy.learn_mode.state_dict())
        shared = host.share(pack_state(flat))
        self._all("of_rank", [("load", described, shared, num_updates)] * len(self._ranks))

    def _meeting(self) -> Meeting:
        places = self._all("own_place", [()] * len(self._ranks))
        if len({(place["node"], place["pid"]) for place in places}) == 1:
            return Meeting(uuid.uuid4().hex)
        devices = [(place["node"], place["devices"]) for place in places]
        first = "127.0.0.1" if len({place["node"] for place in places}) == 1 else self._host.where(self._ranks[0])
        return Meeting("", first or places[0]["node"], places[0]["port"], max(devices.count(each) for each in devices))

    def train(self, batch: Any, rng: np.random.Generator) -> list[tuple[Info, Array | None]]:  # Any: rows of any kind
        """Learn from a batch; return what was found in each update. Raises TrainingError if a rank is lost."""
        if self._policy.takes_whole_batches:
            shares: list[Any] = [self._host.share(whole_part(batch).rows)] * len(self._ranks)
        else:
            shares = [part.rows for part in parts_of(self._policy, batch, len(self._ranks))]
        state = rng_state(rng)
        answers = self._all("of_rank", [("train", share, state) for share in shares])
        set_rng_state(rng, answers[0][1])
        found = [unpack_state(answer) for answer, _ in answers]
        updates = [_joined([each[number] for each in found]) for number in found[0]]
        self.num_updates += len(updates)
        if self.num_updates // self._compare_every != self._compared // self._compare_every:
            self._compare()
        return updates

    def _compare(self) -> None:
        self._compared = self.num_updates
        sums = self._all("of_rank", [("checksum",)] * len(self._ranks))
        differing = [worker.name for worker, each in zip(self._ranks, sums, strict=True) if each != sums[0]]
        if differing:
            raise TrainingError(
                f"after update {self.num_updates:,} {', '.join(differing)} has learned something else than "
                f"{self._ranks[0].name}: what was learned since the last check is not what one learner would have. Go "
                "on from an earlier point, and see that all have the same libraries and kind of processor."
            )

    def take_acting(self) -> None:
        """Have the policy here act by what was learned."""
        [state] = self._all("of_rank", [("acting",)], self._ranks[:1])
        self._policy.collect_mode.load_state_dict(unpack_state(state))

    def take_learned(self) -> None:
        """Have the policy here be all that was learned, the optimizer's state included."""
        if self._learned != self.num_updates:
            [answer] = self._all("of_rank", [("learned",)], self._ranks[:1])
            self._take(*answer)

    def _take(self, described: Any, flat: PackedState, num_updates: int) -> None:  # Any: of JSON
        self._policy.learn_mode.load_state_dict(restored(described, unpack_state(flat)))
        self.num_updates = self._learned = num_updates

    def _all(
        self, method: str, arguments: Sequence[tuple[Any, ...]], ranks: Sequence[WorkerHandle] | None = None
    ) -> list[Any]:  # Any: of the workers' methods
        """Return what a method returns on each rank; TrainingError if one is lost or silent."""
        if self._fault is not None:  # what was asked for then was asked of all that are left
            raise self._fault.with_traceback(None)
        workers = self._ranks if ranks is None else ranks
        calls = [worker.call(method, *given) for worker, given in zip(workers, arguments, strict=True)]
        lost = self._await(calls)
        if lost:
            said = "; ".join(f"{name}: {how}" for name, how in lost.items())
            self._fault = TrainingError(
                f"decentralised updates need every rank, and {said}. {self._rescue(set(lost))} Go on with "
                "ding --resume; updates that one process applies (update.decentralized=False) survive lost workers."
            )
            raise self._fault
        return [call.result() for call in calls]

    def _await(self, calls: Sequence[Call]) -> dict[str, str]:
        """Wait for all calls; return who is lost or silent, as soon as anybody is. Raises what a rank raised."""
        end_s, pending, failed = time.monotonic() + self._timeout_s, list(calls), None
        while pending:
            done = self._host.wait(pending, timeout_s=max(end_s - time.monotonic(), 0.0))
            if not done:
                return {call.worker.name: f"no answer for {self._timeout_s:g} s" for call in pending}
            for call in done:
                try:
                    call.result()
                except WorkerLostError as error:
                    return {call.worker.name: f"lost ({error})"}
                except CommError as error:  # of a rank that waits for another: who was lost is known in a moment
                    failed = failed or {call.worker.name: str(error)}
            pending = [call for call in pending if not any(call is each for each in done)]
        return failed or {}

    def _rescue(self, lost: set[str]) -> str:
        """Take over what a rank has learned that is left; return how that went."""
        left = [worker for worker in self._ranks if worker.name not in lost]
        for worker in left:
            worker.control("interrupt_rank")
        for worker in left:
            call = worker.call("of_rank", "learned")
            try:
                if self._host.wait([call], timeout_s=_RESCUE_S):
                    self._take(*call.result())
                    return f"What was learned in {self.num_updates:,} updates is kept."
            except CommError:
                continue  # this one is lost as well
        return "No rank is left that knows what was learned since the last saved point."

    def close(self) -> None:
        """Have the ranks leave; the workers are their pool's."""
        for worker in self._ranks:
            worker.control("interrupt_rank")
            worker.call("leave_ranks")


class RankUpdates:
    """Be what a learner trains by where ranks do: fields of a learn mode."""

    def __init__(self, ranks: GradientRanks, learner: BaseLearner) -> None:
        self._ranks = ranks
        self._learner = learner
        self._own_state = learner.policy.state_dict

    def minibatches(self, batch: Any, rng: np.random.Generator) -> Iterator[tuple[Info, Array | None]]:  # Any: any rows
        """Have the ranks learn from a batch, and yield what each update found."""
        try:
            yield from self._ranks.train(batch, rng)
        except TrainingError:
            self._learner.last_iter.update(self._ranks.num_updates)  # those that are kept
            raise

    @staticmethod
    def grad(found: tuple[Info, Array | None]) -> tuple[Info, Array | None]:
        """Return what an update found."""
        return found

    def apply(self) -> None:
        """Do nothing: the ranks have."""

    def state_dict(self) -> State:
        """Return what the ranks have learned: in the middle of a batch, with all of that batch."""
        self._ranks.take_learned()
        return self._own_state()


def _joined(
    found: Sequence[Mapping[str, Any]],
) -> tuple[Info, Array | None]:  # Any: what `Rank.train` says of an update
    infos, sizes, weights = ([each[name] for each in found] for name in ("info", "rows", "weight"))
    return joined_info(infos, sizes, weights), joined_priority([each.get("priority") for each in found])
