"""Compute gradients with a replica of the policy, or apply them too as one of several ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.comm.workers.states import PackedState, pack_state, unpack_state
from ding_like.pipeline.roles.gradient_ranks import Meeting, Rank, own_place
from ding_like.policy import Policy
from ding_like.policy.share import Share
from ding_like.policy.sharing import own_arrays, use_part


class GradientReplica:
    """Be a policy, `actor`, that others call: see `GradientWorkers` and `GradientRanks` for what they send."""

    actor: Policy
    compress_grads_to_send: bool
    _version = 0  # updates of what gradients were computed with last
    _rank: Rank | None = None

    # --- where gradients are computed

    def get_grads(
        self,
        rows: Any,  # Any: rows, or windows of them
        state: PackedState,
        *,
        share: tuple[int, int],
        begun: PackedState,
        version: int,
        noise_seed: int | None = None,
    ) -> PackedState:
        """Return gradient, info, priorities and version of a part of a minibatch; `state` is what has changed."""
        policy = self.actor
        policy.load_grad_state(unpack_state(state))
        use_part(policy, Share(*share), unpack_state(begun), noise_seed=noise_seed)
        info, priority = policy.learn_mode.grad(own_arrays(rows))
        self._version = version
        found = {"gradient": policy.gradient(), "info": info, "version": version}
        found |= {} if priority is None else {"priority": np.asarray(priority)}
        return pack_state(found, compress=self.compress_grads_to_send)

    def apply_gradients(self, gradients: PackedState | None = None) -> None:
        """Take a step on a gradient that `get_grads` of another worker returned; None: on the one computed here."""
        if gradients is not None:
            self.actor.load_gradient(unpack_state(gradients)["gradient"])
        self.actor.apply()
        self._version += 1

    # --- where every rank applies them

    def own_place(self) -> dict[str, Any]:  # Any: plain values
        """Return where this worker runs."""
        return own_place()

    def join_ranks(self, meeting: Meeting, rank: int, world_size: int, timeout_s: float) -> None:
        """Join the other ranks."""
        self._rank = Rank(self.actor, meeting, rank, world_size, timeout_s=timeout_s)

    def of_rank(self, method: str, *args: Any) -> Any:  # Any: of the methods of Rank
        """Do what a method of this worker's rank does."""
        return getattr(self._rank, method)(*args)

    def interrupt_rank(self) -> None:
        """Have a call that waits for other ranks in vain fail; called beside it."""
        if self._rank is not None:
            self._rank.interrupt()

    def leave_ranks(self) -> None:
        """Leave the other ranks; may be called again."""
        if self._rank is not None:
            self._rank.close()
