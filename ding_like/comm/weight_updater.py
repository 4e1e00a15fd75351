"""Weight updaters with the interface of TorchRL's: push a policy's weights from a trainer to its worker ranks.

Names and meanings are those of the documentation of `torchrl.collectors.WeightUpdaterBase` and
`torchrl.collectors.distributed.DistributedWeightUpdater`; `update_worker.py` has the control words and the worker's
side. Worker ranks count from 1; rank 0 is the trainer.

Tensors do not go through a store of torch.distributed (a TCPStore refuses values over 8 MiB): gloo sends them over a
connection to each rank, which is made anew for each process of a worker (its "life"), so that a restarted rank is
reached as well. Nothing is sent to a rank before it asks: gloo gives up a connection on which a send has waited too
long, while a wait for the store may be repeated. For push P, rank r asks under `NODE_{r}_ready_{P}` and finds the
connection and the number of bytes, or "given up", under `NODE_{r}_head_{P}`.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.learner_group import Pair
from ding_like.comm.tensors import (
    Encoded,
    FlatState,
    WireDtype,
    check_alike,
    decode_weights,
    encode_weights,
    kinds_of,
    named_like,
    state_of,
)
from ding_like.comm.update_worker import (
    ALIVE,
    GIVEN_UP,
    PUSHED_IN_PROCESS,
    TRAINER_STATUS,
    UPDATE_WEIGHTS,
    UPDATED,
    AnyStore,
    NodeStore,
    key_of,
)
from ding_like.errors import CommError, SchemaError
from ding_like.utils.registries import WEIGHT_UPDATER_REGISTRY

logger = logging.getLogger(__name__)

_MAX_TIMEOUT_S = 86_400.0


class WeightUpdateError(CommError, RuntimeError):
    """Failure of a push to reach all of its ranks, or its refusal before it began.

    Ranks in `updated` have the weights; `failed` gives by rank the reason why it does not, or may not, have them; ranks
    in `not_tried` received no word, because the store was lost before.
    """

    def __init__(
        self,
        message: str,
        *,
        updated: Sequence[int] = (),
        failed: Mapping[int, str] | None = None,
        not_tried: Sequence[int] = (),
    ) -> None:
        super().__init__(message)
        self.updated, self.failed, self.not_tried = tuple(updated), dict(failed or {}), tuple(not_tried)


class WeightUpdaterBase:
    """Base class of weight updaters, which push a policy's weights to workers.

    A subclass implements `_sync_weights_with_worker` and `all_worker_ids`. It may implement `_get_server_weights`,
    which returns the weights if none are given, and `_maybe_map_weights`, which changes them first; or `_push_weights`
    as a whole.
    Source: documentation of TorchRL, `torchrl.collectors.WeightUpdaterBase`.
    """

    # On the class, so that a subclass need not call __init__.
    _collector_refs: tuple[weakref.ref[object], ...] = ()
    _post_hooks: list[Callable[[], object]] | None = None

    # --- what a subclass implements; weights are modules, dicts or TensorDicts, workers ints or devices

    def _get_server_weights(self) -> object:
        """Return the weights to push where `push_weights` was given none."""
        raise NotImplementedError(
            f"{type(self).__name__} has no weights of its own: give push_weights a policy or weights, or "
            "implement _get_server_weights."
        )

    def _maybe_map_weights(self, server_weights: Any) -> Any:
        """Return the weights to send; the same ones, unless a subclass changes them."""
        return server_weights

    def _sync_weights_with_worker(self, worker_id: object = None, server_weights: object = None) -> None:
        """Send weights to one worker; `worker_id` is None where workers have no ids."""
        raise NotImplementedError(f"{type(self).__name__} does not implement _sync_weights_with_worker.")

    def all_worker_ids(self) -> list[int] | list[torch.device] | None:
        """Return the ids of all workers, None where they have none."""
        return None

    # --- pushing

    def push_weights(self, policy_or_weights: object = None, worker_ids: object = None) -> PushHandle | None:
        """Send weights to workers, then call the hooks in order.

        `policy_or_weights` is a policy, a module, a state dict, a nested dict or a TensorDict; None asks
        `_get_server_weights`. `worker_ids` is an id or a list of them; None means all. An error of a worker's
        update is raised before any hook is called.
        """
        self._push_weights(policy_or_weights=policy_or_weights, worker_ids=worker_ids)
        self._after_push()
        return None

    def update_weights(self, policy_or_weights: object = None, worker_ids: object = None) -> PushHandle | None:
        """Call `push_weights`, under its older name."""
        return self.push_weights(policy_or_weights, worker_ids)

    def __call__(self, policy_or_weights: object = None, worker_ids: object = None) -> PushHandle | None:
        """Call `push_weights`."""
        return self.push_weights(policy_or_weights, worker_ids)

    def _push_weights(self, *, policy_or_weights: object = None, worker_ids: object = None) -> None:
        weights = self._weights_to_push(policy_or_weights)
        ids = self.all_worker_ids() if worker_ids is None else worker_ids
        for worker_id in _as_list(ids):
            self._sync_weights_with_worker(worker_id=worker_id, server_weights=weights)

    def _weights_to_push(self, policy_or_weights: object) -> object:
        """Return the weights given, else the updater's own: a module's state dict; mapped by `_maybe_map_weights`."""
        weights = self._get_server_weights() if policy_or_weights is None else policy_or_weights
        # A TensorDictParams is a module too, and its state dict has more in it than tensors.
        if isinstance(weights, torch.nn.Module) and not hasattr(weights, "flatten_keys"):
            weights = weights.state_dict()
        return self._maybe_map_weights(weights)

    def _after_push(self) -> None:
        """Call the hooks, after a push that has reached all its workers."""
        for hook in list(self.post_hooks):
            hook()

    # --- hooks, collectors, set-up

    @property
    def post_hooks(self) -> list[Callable[[], object]]:
        """The hooks that were registered, in order."""
        if self._post_hooks is None:
            self._post_hooks = []
        return self._post_hooks

    def register_post_hook(self, hook: Callable[[], object]) -> None:
        """Register a function to be called, without arguments, after each push that has reached all its workers."""
        if not callable(hook):
            raise SchemaError(
                f"a post hook has to be callable, and {hook!r} is not; give a function without arguments."
            )
        self.post_hooks.append(hook)

    def register_collector(self, collector: object, *, many: bool = False) -> None:
        """Register a collector, by a weak reference, for hooks and for `increment_version`.

        Raises RuntimeError if another collector is registered, unless `many` allows several.
        """
        living = self._living()
        if any(each is collector for each in living):
            return
        if living and not many:
            raise WeightUpdateError(
                f"this updater has a collector already ({type(living[0]).__name__}); make an updater for each, or "
                "register with many=True."
            )
        self._collector_refs = (*(weakref.ref(each) for each in living), weakref.ref(collector))

    @property
    def collector(self) -> object:
        """The collector, the first if there are several; None if none is registered or alive."""
        living = self._living()
        return living[0] if living else None

    @property
    def collectors(self) -> list[object] | None:
        """All collectors that are alive; None without any."""
        return self._living() or None

    def increment_version(self) -> None:
        """Call `increment_version` of every collector that is alive and has it.

        A push does not call this by itself; register it as a hook to have pushes counted.
        """
        for collector in self._living():
            increment = getattr(collector, "increment_version", None)
            if callable(increment):
                increment()

    def _living(self) -> list[object]:
        return [collector for ref in self._collector_refs if (collector := ref()) is not None]

    def init(self, *args: object, **kwargs: object) -> None:
        """Do nothing; a subclass may take the arguments of a later set-up here."""

    @classmethod
    def from_policy(cls, policy: object) -> WeightUpdaterBase | None:
        """Return an updater for a policy; None, as here, for a class that needs more than a policy."""
        return None


@dataclass
class Push:
    """One push: encoded weights on their way to `ranks`, all of which have until `deadline` (of `time.monotonic`)."""

    push_id: str  # unique among the pushes of all updaters
    encoded: Encoded
    ranks: tuple[int, ...]
    deadline: float
    failed: dict[int, str] = field(default_factory=dict)
    not_tried: tuple[int, ...] = ()

    @property
    def weights(self) -> Weights:
        """The weights; their tensors are views of the encoded bytes."""
        return decode_weights(self.encoded)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(self.deadline - monotonic(), 0.0)


@WEIGHT_UPDATER_REGISTRY.register("distributed")
class DistributedWeightUpdater(WeightUpdaterBase):
    """Weight updater of worker ranks 1 to `num_workers`, which it reaches through a store.

    `store` is as in `NodeStore`. `policy_weights` (a module, a state dict, a nested dict, a TensorDict) is sent by a
    push that is given no weights, and fixes names, shapes and dtypes of all others. With `sync`, `push_weights` returns
    when every rank has answered; without, it returns a PushHandle at once, and version, hooks and counters are updated
    in its thread. `dtype="bfloat16"` sends float32 in half the bytes.

    With a dict the tensors stay in the process; with a store of torch.distributed gloo sends them. A subclass may send
    them another way by `_send_weights`. All ranks of a push have `timeout_s` seconds together. `devices` names the
    device of each worker, rank 1 first, for pushes to a `torch.device`. Source: documentation of TorchRL,
    `torchrl.collectors.distributed.DistributedWeightUpdater`.
    """

    def __init__(
        self,
        store: AnyStore,
        policy_weights: object,  # see `tensors.state_of`
        num_workers: int,
        sync: bool,
        *,
        timeout_s: float = 60.0,
        devices: Sequence[torch.device | str] | None = None,
        dtype: WireDtype = "exact",
        policy_id: str = "policy",
    ) -> None:
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise SchemaError(f"num_workers is {num_workers!r}; expected the number of worker ranks, 1 or more.")
        if not 0 < timeout_s <= _MAX_TIMEOUT_S:
            raise SchemaError(f"timeout_s is {timeout_s!r}; expected seconds, above 0 and at most {_MAX_TIMEOUT_S:g}.")
        if devices is not None and len(devices) != num_workers:
            raise SchemaError(f"there are {len(devices)} devices for {num_workers} workers; give one for each rank.")
        self.sync, self._policy_weights = sync, policy_weights
        self._num_workers, self._timeout_s = num_workers, timeout_s
        self._devices = None if devices is None else [torch.device(each) for each in devices]
        self._dtype: WireDtype = dtype
        self._policy_id = policy_id
        own = _checked_state(policy_weights)
        encode_weights(
            Weights(policy_id, Version(0, 0), own), dtype=dtype
        )  # raises for a dtype or tensors that cannot be sent
        self._kinds = kinds_of(own)
        self._batches_since_weight_update = [0] * num_workers
        self._token = secrets.token_hex(8)
        self._num_pushes = self._version = 0
        self._lock = threading.Lock()  # one push at a time
        self._under_way: PushHandle | None = None
        self._is_closed = False
        self._store = NodeStore(store)
        self._links: dict[int, _Link] = {}
        self._store.set(TRAINER_STATUS, ALIVE)

    @property
    def version(self) -> int:
        """Number of pushes that have reached all their ranks."""
        return self._version

    def all_worker_ids(self) -> list[int] | list[torch.device]:
        """Return the ranks of all workers: 1 to `num_workers`."""
        return list(range(1, self._num_workers + 1))

    def count_batch(self, worker_id: int) -> None:
        """Count a batch of a worker since its last update in `_batches_since_weight_update`, rank 1 first."""
        (rank,) = self._ranks(worker_id)
        self._batches_since_weight_update[rank - 1] += 1

    def push_weights(self, policy_or_weights: object = None, worker_ids: object = None) -> PushHandle | None:
        """Send weights to ranks (None: all) and return None; without `sync`, return a handle at once.

        `worker_ids` is a rank, 1 or more, a device of `devices`, or a list of these. All ranks receive the word before
        any is awaited. Weights are copied before this returns. A push while another is under way waits for its answers
        first. An empty list of ranks does nothing.

        Raises before anything is sent: SchemaError for weights that are not like `policy_weights`, RuntimeError for a
        rank below 1, ValueError for one above `num_workers` or a device that no worker has. Raises
        afterwards: WeightUpdateError, a RuntimeError, if a rank does not answer in time or answers anything but
        `updated`. It names the ranks that were updated, failed and not tried; the version is not increased and no hook
        is called. Ranks that were updated keep the new weights.
        """
        ranks = self._ranks(worker_ids)
        state = self._state(self._weights_to_push(policy_or_weights))
        if not ranks:
            return None
        with self._lock:
            push = self._begin(ranks, state)
            if not self.sync:
                self._under_way = PushHandle(push, self._finish, self._after_push)
                return self._under_way
            self._finish(push)
        self._after_push()
        return None

    def _push_weights(self, *, policy_or_weights: object = None, worker_ids: object = None) -> None:
        """Send weights to ranks and wait for their answers, with or without `sync`; call no hooks."""
        ranks, state = self._ranks(worker_ids), self._state(self._weights_to_push(policy_or_weights))
        if ranks:
            with self._lock:
                self._finish(self._begin(ranks, state))

    def _sync_weights_with_worker(self, worker_id: object = None, server_weights: object = None) -> None:
        """Send weights (None: `policy_weights`) to one rank and wait for its answer."""
        if worker_id is None or isinstance(worker_id, (list, tuple)):
            raise SchemaError("_sync_weights_with_worker takes one worker; push_weights takes several.")
        self._push_weights(policy_or_weights=server_weights, worker_ids=worker_id)

    def _get_server_weights(self) -> object:
        """Return `policy_weights`, as they are now."""
        return self._policy_weights

    def close(self) -> None:
        """Wait for the push under way and release connections, not the store; may be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._under_way is not None:
                self._under_way.wait_for_answers()
            for link in self._links.values():
                link.close()
            with suppress(CommError):  # the store may be closed already
                self._store.delete(TRAINER_STATUS)
            self._store.close()

    def __enter__(self) -> DistributedWeightUpdater:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one push

    def _begin(self, ranks: Sequence[int], state: FlatState) -> Push:
        """Write the word for all ranks and await none; the caller holds the lock."""
        if self._is_closed:
            raise CommError("weights are pushed after the updater was closed.")
        if self._under_way is not None:
            self._under_way.wait_for_answers()
            self._under_way = None
        self._num_pushes += 1
        # Every push has a version of its own on the wire, so that the one after a failure is newer for every reader.
        encoded = encode_weights(Weights(self._policy_id, Version(0, self._num_pushes), state), dtype=self._dtype)
        push = Push(f"{self._token}-{self._num_pushes}", encoded, tuple(ranks), monotonic() + self._timeout_s)
        if self._store.is_of_process:
            PUSHED_IN_PROCESS[push.push_id] = encoded
        for place, rank in enumerate(ranks):
            try:
                # An answer to an earlier push, or a second one, must not be taken for this one's.
                self._store.delete(key_of(rank, "out"))
                self._store.set(key_of(rank, "push"), push.push_id)
                self._store.set(key_of(rank, "in"), UPDATE_WEIGHTS)
            except CommError as error:
                push.failed[rank], push.not_tried = str(error), tuple(ranks[place + 1 :])
                break
        return push

    def _finish(self, push: Push) -> None:
        """Send the weights and await all answers. Raises WeightUpdateError unless all were updated."""
        asked = [rank for rank in push.ranks if rank not in push.failed and rank not in push.not_tried]
        # Each in a thread, so that a rank that is late does not take the time of the others.
        with ThreadPoolExecutor(max(len(asked), 1), thread_name_prefix="weights to ranks") as threads:
            reasons = list(threads.map(lambda rank: self._bring(rank, push), asked))
        PUSHED_IN_PROCESS.pop(push.push_id, None)
        push.failed.update({rank: reason for rank, reason in zip(asked, reasons, strict=True) if reason})
        updated = [rank for rank in asked if rank not in push.failed]
        for rank in updated:
            self._batches_since_weight_update[rank - 1] = 0
        if push.failed:
            why = "; ".join(f"rank {rank}: {reason}" for rank, reason in sorted(push.failed.items()))
            raise WeightUpdateError(
                f"the weights have reached ranks {updated}, and not {sorted(push.failed)}: {why} Not tried: "
                f"{list(push.not_tried)}. The version was not increased; push again, to all or to those ranks.",
                updated=updated,
                failed=push.failed,
                not_tried=push.not_tried,
            )
        self._version += 1

    def _bring(self, rank: int, push: Push) -> str:
        """Send the weights to one rank and await its answer; return why it failed, "" if it did not."""
        store = self._link(rank).store
        try:
            self._send_weights(rank, push)
            self._await_answer(rank, push, store)
        except Exception as error:  # a transport may raise anything; the other ranks go on
            # Its text alone: the exception holds frames, which hold the connection that was given up.
            logger.debug("weights have not reached rank %d", rank, exc_info=True)
            with suppress(CommError):  # else a worker that reads the word later would wait for weights
                store.delete(key_of(rank, "in"), key_of(rank, "push"))
            return str(error) or type(error).__name__
        return ""

    def _send_weights(self, rank: int, push: Push) -> None:
        """Send the weights to a rank that has the word. Raises what the push reports of the rank."""
        if not self._store.is_of_process:
            self._link(rank).send(push)

    def _await_answer(self, rank: int, push: Push, store: NodeStore) -> None:
        while (answer := store.get(key_of(rank, "out"), timeout_s=push.left_s)) is not None:
            answered = store.get(key_of(rank, "done"), timeout_s=0.0)
            store.delete(key_of(rank, "out"))
            # What was deleted may have been the answer to this push, come behind an older one that was read: the worker
            # writes the number first.
            if answered not in (None, push.push_id):
                answered = store.get(key_of(rank, "done"), timeout_s=0.0)
            if answered not in (None, push.push_id):
                continue
            if answer != UPDATED:
                raise CommError(f"Expected '{UPDATED}' but got status {answer!r}.")
            return
        raise CommError(f"it has not answered within {self._timeout_s:g} s: it has ended, hangs or is busy.")

    def _link(self, rank: int) -> _Link:
        if rank not in self._links:
            self._links[rank] = _Link(NodeStore(self._store.raw), rank)
        return self._links[rank]

    # --- what is pushed, and to which ranks

    def _state(self, weights: object) -> FlatState:
        state = named_like(self._kinds, _checked_state(weights))
        try:
            check_alike(self._kinds, kinds_of(state))
        except CommError as error:
            raise SchemaError(
                f"nothing was sent: {error} Give weights with the names, shapes and dtypes of policy_weights."
            ) from error
        return state

    def _ranks(self, worker_ids: object) -> list[int]:
        """Return the ranks of worker ids, each once, in the order given."""
        ids = self.all_worker_ids() if worker_ids is None else _as_list(worker_ids)
        return list(dict.fromkeys(rank for worker_id in ids for rank in self._ranks_of(worker_id)))

    def _ranks_of(self, worker_id: object) -> list[int]:
        if isinstance(worker_id, torch.device):
            ranks = [place for place, device in enumerate(self._devices or (), 1) if device == worker_id]
            if not ranks:
                raise SchemaError(
                    f"no worker is known to be on {worker_id}: devices={self._devices!r}. Give the updater the device "
                    "of each worker, rank 1 first, or push to a rank."
                )
            return ranks
        if isinstance(worker_id, bool) or not isinstance(worker_id, int):
            raise SchemaError(f"a worker id is {worker_id!r}; expected a rank from 1 to {self._num_workers}.")
        if worker_id < 1:
            raise WeightUpdateError(f"worker_rank must be at least 1, got {worker_id}: rank 0 is the trainer.")
        if worker_id > self._num_workers:
            raise SchemaError(f"there is no worker rank {worker_id}: ranks go from 1 to {self._num_workers}.")
        return [worker_id]


class _Link:
    """The trainer's end of the way to one rank: a store connection for its thread, and a gloo connection."""

    def __init__(self, store: NodeStore, rank: int) -> None:
        self.store = store
        self._rank = rank
        self._unread: list[str] = []  # keys of pushes that were given up
        self._life = ""  # random id of the worker process at the other end of the pair
        self._pair_id = ""
        self._pair: Pair | None = None

    def send(self, push: Push) -> None:
        """Send the weights once the rank asks for them. Raises CommError if it does not, or is lost."""
        self.store.delete(*self._unread)
        self._unread = []
        ready, head = (key_of(self._rank, f"{what}_{push.push_id}") for what in ("ready", "head"))
        life = self.store.get(ready, timeout_s=push.left_s)
        if life is None:
            self.store.set(head, GIVEN_UP)
            self._unread += [ready, head]
            raise CommError("it has not asked for the weights in time: it has ended, hangs or is busy.")
        if life != self._life:
            self._drop()
            self._life, self._pair_id = life, secrets.token_hex(8)
        self.store.set(head, json.dumps([self._pair_id, push.encoded.size]))
        try:
            if self._pair is None:
                self._pair = Pair(self.store.raw, self._pair_id, member=0, timeout_s=push.left_s)
            self._pair.send(torch.from_numpy(push.encoded), timeout_s=push.left_s)
        except CommError as error:
            self._drop()
            self._unread += [ready, head]
            raise CommError(f"it was lost while the weights were sent: {error}") from error

    def _drop(self) -> None:
        if self._pair is not None:
            self._pair.close()
        self._pair, self._life = None, ""

    def close(self) -> None:
        self._drop()
        self.store.close()


class PushHandle(threading.Thread):
    """Push that runs in a thread of its own; `push_weights` returns one with `sync=False`."""

    def __init__(self, push: Push, finish: Callable[[Push], None], after: Callable[[], None]) -> None:
        super().__init__(name="push of weights", daemon=True)
        self._push, self._finish, self._after = push, finish, after
        self._has_answered = threading.Event()
        self._failure: Exception | None = None
        self.start()

    def done(self) -> bool:
        """Return whether all ranks have answered and the hooks have run, or the push has failed."""
        return not self.is_alive()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the push is done, at most `timeout_s` (None: the rest of the push's own time, and 1 s for hooks).

        Raises WeightUpdateError as a synchronous push does, what a hook raised, and CommError if it is not done.
        """
        timeout_s = self._push.left_s + 1.0 if timeout_s is None else timeout_s
        self.join(timeout_s)
        if self.is_alive():
            raise CommError(f"the push of weights is not done after {timeout_s:g} s: wait again.")
        if self._failure is not None:
            raise self._failure

    def wait_for_answers(self) -> None:
        """Wait until all ranks have answered or the deadline has passed; raise nothing."""
        self._has_answered.wait(self._push.left_s + 1.0)

    def run(self) -> None:
        """Await the answers, then call the hooks."""
        try:
            try:
                self._finish(self._push)
            finally:
                self._has_answered.set()
            self._after()
        except Exception as error:  # logged, as `wait` may never be called
            logger.warning("a push of weights, or a hook behind it, has failed: %s", error)
            self._failure = error


def _checked_state(weights: object) -> FlatState:
    try:
        state = state_of(weights)
    except CommError as error:
        raise SchemaError(str(error)) from error
    if not any(each.numel() for each in state.values()):
        raise SchemaError(f"there are no numbers to send in the weights given: {type(weights).__name__}.")
    return state


def _as_list(ids: object) -> list[object]:
    return list(ids) if isinstance(ids, (list, tuple, range)) else [ids]
