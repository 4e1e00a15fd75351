"""Process group of gradient workers: average gradients by torch.distributed, and compare parameters."""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Sequence

import torch

from ding_like.comm.learner_group import LearnerGroup
from ding_like.errors import TrainingError
from ding_like.policy import Policy

COMPARE_EVERY = 1_000  # updates between two comparisons of the ranks' parameters


class RankGroup:
    """Process group of the gradient workers that apply updates themselves."""

    def __init__(self) -> None:
        self._group: LearnerGroup | None = None

    @property
    def is_joined(self) -> bool:
        """Whether there are others."""
        return self._group is not None

    def join(self, host: str, port: int, rank: int, world_size: int, *, timeout_s: float) -> None:
        """Join the others at the first rank's address. Raises CommError if they do not come in time."""
        place = dict(RANK=rank, WORLD_SIZE=world_size, MASTER_ADDR=host, MASTER_PORT=port)
        place |= dict(LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)  # a worker sees only its own GPUs
        os.environ.update({name: str(value) for name, value in place.items()})
        self._group = LearnerGroup.from_environment(timeout_s=timeout_s, join_s=timeout_s)

    def average(self, vectors: Sequence[torch.Tensor]) -> None:
        """Replace each vector by its mean over all ranks. Raises CommError that names a rank which is lost."""
        assert self._group is not None, "call join_ranks first"
        self._group.average(vectors, weight=1.0 / self._group.world_size)

    def compare(self, policy: Policy, num_updates: int) -> None:
        """Raise TrainingError, at every COMPARE_EVERY-th update, if the ranks' parameters differ in a bit."""
        if num_updates % COMPARE_EVERY or self._group is None:
            return
        sums = self._group.all_gather_bytes(checksum(policy).to_bytes(4, "big"))
        if len(set(sums)) > 1:
            differing = [rank for rank, each in enumerate(sums) if each != sums[0]]
            raise TrainingError(
                f"after update {num_updates:,} the ranks {differing} have other parameters than rank 0: resume from an "
                "earlier point, with the same libraries and kind of processor on all machines."
            )

    def close(self) -> None:
        """Leave the others; may be called again."""
        group, self._group = self._group, None
        if group is not None:
            group.close()


def checksum(policy: Policy) -> int:
    """Return the crc32 of a policy's parameters."""
    total = 0
    for _, tensor in sorted(policy.get_attribute("model").state_dict().items()):
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, total)
    return total


def free_port() -> int:
    """Return a port that is free on this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
