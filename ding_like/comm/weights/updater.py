"""Bring a policy's weights to its workers when the trainer says so: weight updaters after TorchRL's.

Names and meanings are those of the documentation of `torchrl.collectors.WeightUpdaterBase` and
`torchrl.collectors.distributed.DistributedWeightUpdater`. The worker's side is `WeightUpdateWorker`.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch

from ding_like.comm.channels import Version, WeightPublisher, Weights
from ding_like.comm.flat_state import FlatState
from ding_like.comm.weights.encode import Layout, WireDtype, encode
from ding_like.comm.weights.extract import state_of
from ding_like.comm.weights.gloo_sends import GlooSends, is_torch_store
from ding_like.comm.weights.names import named_like
from ding_like.comm.weights.node_store import ALIVE, TRAINER_STATUS, AnyStore, open_store
from ding_like.comm.weights.push import Push, PushHandle, WeightUpdateError
from ding_like.comm.weights.rank_sends import InProcess, Parcel, PublisherSends, RankSends
from ding_like.errors import CommError, SchemaError

_MAX_TIMEOUT_S = 86_400.0


class WeightUpdaterBase:
    """Push the weights of a policy to workers: what all weight updaters have in common.

    A subclass writes `_sync_weights_with_worker` and `all_worker_ids`, and may write `_get_server_weights` (where
    weights come from if none are given) and `_maybe_map_weights` (what is done to them first); or `_push_weights` as a
    whole.
    Source: documentation of TorchRL, `torchrl.collectors.WeightUpdaterBase`.
    """

    # On the class, so that a subclass need not call __init__.
    _collector_refs: tuple[weakref.ref[Any], ...] = ()
    _post_hooks: list[Callable[[], Any]] | None = None

    # --- what a subclass writes; Any: weights are modules, dicts or TensorDicts, workers ints or devices

    def _get_server_weights(self) -> Any:
        """Return the weights to push where `push_weights` was given none."""
        raise NotImplementedError(
            f"{type(self).__name__} has no weights of its own: give push_weights a policy or weights, or write "
            "_get_server_weights."
        )

    def _maybe_map_weights(self, server_weights: Any) -> Any:
        """Return the weights that workers are to get; these, unless a subclass maps them."""
        return server_weights

    def _sync_weights_with_worker(self, worker_id: Any = None, server_weights: Any = None) -> None:
        """Bring weights to one worker (None: there is one without a name)."""
        raise NotImplementedError(f"{type(self).__name__} does not write _sync_weights_with_worker.")

    def all_worker_ids(self) -> list[int] | list[torch.device] | None:
        """Return the ids of all workers; None where they have none."""
        return None

    # --- pushing

    def push_weights(self, policy_or_weights: Any = None, worker_ids: Any = None) -> Any:
        """Bring weights to workers, then call the hooks in order.

        `policy_or_weights` is a policy, a module, a state dict, a nested dict or a TensorDict; None asks
        `_get_server_weights`. `worker_ids` is an id or a list of them; None means all. Raises what a worker's update
        raises, before any hook is called.
        """
        self._push_weights(policy_or_weights=policy_or_weights, worker_ids=worker_ids)
        self._after_push()

    def update_weights(self, policy_or_weights: Any = None, worker_ids: Any = None) -> Any:
        """Do what `push_weights` does; the older name."""
        return self.push_weights(policy_or_weights, worker_ids)

    def __call__(self, policy_or_weights: Any = None, worker_ids: Any = None) -> Any:
        """Do what `push_weights` does."""
        return self.push_weights(policy_or_weights, worker_ids)

    def _push_weights(self, *, policy_or_weights: Any = None, worker_ids: Any = None) -> None:
        weights = self._weights_to_push(policy_or_weights)
        ids = self.all_worker_ids() if worker_ids is None else worker_ids
        for worker_id in _as_list(ids):
            self._sync_weights_with_worker(worker_id=worker_id, server_weights=weights)

    def _weights_to_push(self, policy_or_weights: Any) -> Any:
        """Return what was given, or else the updater's own: of a policy its state dict; mapped, if a subclass maps."""
        weights = self._get_server_weights() if policy_or_weights is None else policy_or_weights
        # A TensorDictParams is a module too, and its state dict has more in it than tensors.
        if isinstance(weights, torch.nn.Module) and not hasattr(weights, "flatten_keys"):
            weights = weights.state_dict()
        return self._maybe_map_weights(weights)

    def _after_push(self) -> None:
        """Call the hooks, after a push that has reached all."""
        for hook in list(self.post_hooks):
            hook()

    # --- hooks, collectors, set-up

    @property
    def post_hooks(self) -> list[Callable[[], Any]]:
        """Return the hooks that were registered, in order."""
        if self._post_hooks is None:
            self._post_hooks = []
        return self._post_hooks

    def register_post_hook(self, hook: Callable[[], Any]) -> None:
        """Have a function called, without arguments, after each push that has reached all workers it was for."""
        if not callable(hook):
            raise SchemaError(f"a post hook has to be callable, and {hook!r} is not.")
        self.post_hooks.append(hook)

    def register_collector(self, collector: Any, *, many: bool = False) -> None:
        """Remember a collector, without keeping it alive, for hooks and for `increment_version`.

        There is one at a time: raises RuntimeError if there is another already, unless `many` says that this one comes
        beside it.
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
    def collector(self) -> Any:
        """Return the collector, the first of many; None if there is none, or none any more."""
        living = self._living()
        return living[0] if living else None

    @property
    def collectors(self) -> list[Any] | None:
        """Return all collectors; None if there is none."""
        return self._living() or None

    def increment_version(self) -> None:
        """Call `increment_version` of every collector that is still there and has it.

        A push does not: a collector counts its pushes itself, or this is registered as a hook.
        """
        for collector in self._living():
            increment = getattr(collector, "increment_version", None)
            if callable(increment):
                increment()

    def _living(self) -> list[Any]:
        return [collector for ref in self._collector_refs if (collector := ref()) is not None]

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing; a subclass may take arguments of a late set-up here."""

    @classmethod
    def from_policy(cls, policy: Any) -> WeightUpdaterBase | None:
        """Return an updater for a policy; None where, as here, it takes more than a policy to make one."""
        return None


class DistributedWeightUpdater(WeightUpdaterBase):
    """Push weights to worker ranks 1..`num_workers`, which are told, and answer, through a store.

    `store` is a dict for threads of one process, or a store of `torch.distributed`; see `node_store`. `policy_weights`
    is where weights come from if a push is given none (a module, a state dict, a nested dict, a TensorDict), and says
    which names, shapes and dtypes there may be. With `sync`, `push_weights` returns when every rank has answered;
    without, at once, with a PushHandle, and version, hooks and counters follow in its thread.

    The numbers go beside the store. With a dict they stay in the process. With a store of torch's they go by gloo: in
    the process's default group, where this is rank 0 of it, else over a connection to each rank, as for a rank that
    was restarted. `transport` sends them another way: a WeightPublisher (its readers are named "1", "2", ...), or
    what has the methods of `rank_sends.RankSends`. `dtype="bfloat16"` halves float32 on its way.

    All ranks of a push have `timeout_s` seconds together. `devices` names the device of each worker, rank 1 first,
    for pushes to a `torch.device`. Source: documentation of TorchRL,
    `torchrl.collectors.distributed.DistributedWeightUpdater`.
    """

    def __init__(
        self,
        store: AnyStore,
        policy_weights: Any,  # Any: see `extract.state_of`
        num_workers: int,
        sync: bool,
        *,
        timeout_s: float = 60.0,
        transport: RankSends | WeightPublisher | None = None,
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
        self.sync = sync
        self._policy_weights = policy_weights
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._devices = None if devices is None else [torch.device(each) for each in devices]
        self._dtype: WireDtype = dtype
        self._policy_id = policy_id
        own = _checked_state(policy_weights)
        self._names = own.keys()
        self._layout = Layout.of(own, dtype=dtype)
        self._batches_since_weight_update = [0] * num_workers
        self._token = secrets.token_hex(8)
        self._num_pushes = 0
        self._version = 0
        self._lock = threading.Lock()  # one push at a time
        self._under_way: PushHandle | None = None
        self._is_closed = False
        self._store = open_store(store)
        self._sends = _sends_of(store, self._store, transport, num_workers)
        self._store.set(TRAINER_STATUS, ALIVE)

    @property
    def version(self) -> int:
        """Return the number of pushes that have reached every rank they were for."""
        return self._version

    def all_worker_ids(self) -> list[int] | list[torch.device]:
        """Return the ranks of all workers: 1 to `num_workers`."""
        return list(range(1, self._num_workers + 1))

    def count_batch(self, worker_id: int) -> None:
        """Count a batch of a worker since its last update in `_batches_since_weight_update`, rank 1 first."""
        (rank,) = self._ranks(worker_id)
        self._batches_since_weight_update[rank - 1] += 1

    def push_weights(self, policy_or_weights: Any = None, worker_ids: Any = None) -> PushHandle | None:
        """Bring weights to ranks (None: all), and return None; without `sync`, return a handle at once.

        `worker_ids` is a rank, 1 or more, a device of `devices`, or a list of these. All ranks are told before any is
        awaited. Weights are copied before this returns. A push that comes while another is under way waits for its
        answers first. An empty list of ranks does nothing.

        Raises before anything is sent: SchemaError for weights that are not like `policy_weights`, RuntimeError for a
        rank below 1, ValueError for one above `num_workers` or a device that no worker has. Then WeightUpdateError, a
        RuntimeError, if a rank does not answer in time or not as it should: it names the ranks that were updated,
        failed and were not tried, the version stays, and no hook is called. Ranks that were updated keep the new
        weights.
        """
        ranks = self._ranks(worker_ids)
        state = self._state(self._weights_to_push(policy_or_weights))
        if not ranks:
            return None
        with self._lock:
            push = self._begin(ranks, state)
            if not self.sync:
                self._under_way = PushHandle(push, lambda: self._finish(push, ranks), self._after_push)
                return self._under_way
            self._finish(push, ranks)
        self._after_push()
        return None

    def _push_weights(self, *, policy_or_weights: Any = None, worker_ids: Any = None) -> None:
        """Bring weights to ranks and wait for them, whatever `sync` says; no hooks."""
        ranks = self._ranks(worker_ids)
        state = self._state(self._weights_to_push(policy_or_weights))
        if ranks:
            with self._lock:
                self._finish(self._begin(ranks, state), ranks)

    def _sync_weights_with_worker(self, worker_id: Any = None, server_weights: Any = None) -> None:
        """Bring weights to one rank and wait for it (None: its own weights, as for a push)."""
        if worker_id is None or isinstance(worker_id, (list, tuple)):
            raise SchemaError("_sync_weights_with_worker takes one worker; push_weights takes several.")
        self._push_weights(policy_or_weights=server_weights, worker_ids=worker_id)

    def _get_server_weights(self) -> Any:
        """Return `policy_weights`, as they are now."""
        return self._policy_weights

    def close(self) -> None:
        """Wait for the push under way, and release connections; may be called again. The store is its owner's."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._under_way is not None:
                self._under_way.wait_for_answers()
            self._sends.close()
            with suppress(CommError):  # the store may have gone before its users
                self._store.delete(TRAINER_STATUS)
            self._store.close()

    def __enter__(self) -> DistributedWeightUpdater:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, ranks: Sequence[int], state: FlatState) -> Push:
        """Tell ranks; the caller holds the lock."""
        if self._is_closed:
            raise CommError("weights are pushed after the updater was closed.")
        if self._under_way is not None:
            self._under_way.wait_for_answers()
            self._under_way = None
        self._num_pushes += 1
        # Every push is a version on its way, so that one after a failure is newer to whoever counts.
        weights = Weights(self._policy_id, Version(0, self._num_pushes), state)
        parcel = Parcel(f"{self._token}-{self._num_pushes}", encode(weights, dtype=self._dtype))
        push = Push(self._store, self._sends, parcel, ranks, self._timeout_s)
        push.tell()
        return push

    def _finish(self, push: Push, ranks: Sequence[int]) -> None:
        try:
            push.finish()
        except WeightUpdateError as error:
            self._reset_batches(error.updated)
            raise
        self._reset_batches(ranks)
        self._version += 1

    def _reset_batches(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._batches_since_weight_update[rank - 1] = 0

    def _state(self, weights: Any) -> FlatState:
        state = named_like(self._names, _checked_state(weights))
        try:
            self._layout.check(state)
        except CommError as error:
            raise SchemaError(f"nothing was sent: {error} Give weights like policy_weights.") from error
        return state

    def _ranks(self, worker_ids: Any) -> list[int]:
        """Return the ranks that ids name, each once, in the order given."""
        if worker_ids is None:
            return list(range(1, self._num_workers + 1))
        ranks = [rank for worker_id in _as_list(worker_ids) for rank in self._ranks_of(worker_id)]
        return list(dict.fromkeys(ranks))

    def _ranks_of(self, worker_id: Any) -> list[int]:
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


def _sends_of(store: AnyStore, opened: Any, transport: Any, num_workers: int) -> RankSends:  # Any: checked here
    if transport is None:
        return GlooSends(opened) if is_torch_store(store) else InProcess.of(store)
    if callable(getattr(transport, "start", None)):
        return transport  # type: ignore[no-any-return]  # it has the protocol's method
    if callable(getattr(transport, "publish", None)):
        return PublisherSends(transport, num_workers)
    raise SchemaError(
        f"a {type(transport).__name__} is no transport: give a WeightPublisher, or what has the methods of RankSends."
    )


def _checked_state(weights: Any) -> FlatState:  # Any: see `extract.state_of`
    try:
        state = state_of(weights)
    except CommError as error:
        raise SchemaError(str(error)) from error
    if not any(each.numel() for each in state.values()):
        raise SchemaError(f"there are no numbers to send in the weights given: {type(weights).__name__}.")
    return state


def _as_list(ids: Any) -> list[Any]:  # Any: ids of workers, or one
    return list(ids) if isinstance(ids, (list, tuple, range)) else [ids]
