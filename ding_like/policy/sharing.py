"""Share one minibatch among several workers, and put together what they found: all that one worker would have.

    parts, begun = parts_of(policy, minibatch, 2), begun_of(policy)   # where minibatches are drawn
    use_part(replica, part.share, begun)                              # in each worker, then replica.grad(part.rows)
    policy.load_gradient(mean_gradient(gradients, weights))           # where gradients are applied

The mean of the parts' gradients by their weights is the whole minibatch's gradient, to rounding.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.data.sequence_batch import SequenceBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy import di_engine_view
from ding_like.policy.base import Policy
from ding_like.policy.share import Share
from ding_like.types import Array, Info, State

Minibatch = TransitionBatch | SequenceBatch


class Part(NamedTuple):
    """Hold one worker's rows of a minibatch."""

    rows: Minibatch  # arrays on the host
    share: Share  # which part it is, of how many
    weight: float  # of its gradient in the whole minibatch's; of all parts together 1


def check_sharing(policy: Policy, num_parts: int) -> None:
    """Raise ConfigError, with the reason, for a policy whose minibatches cannot be shared by so many workers."""
    cfg = policy.cfg
    name = f"policy '{cfg.get('type') or type(policy).__name__}'"
    if di_engine_view.overrides(policy, "_forward_learn"):
        raise ConfigError(
            f"{name} learns in DI-engine's style (_forward_learn), which gives no gradients that another process could "
            "apply: give it grad() and apply(), or compute gradients centrally (one gradient worker)."
        )
    if not policy.grad_vectors():
        raise ConfigError(
            f"{name} does not say where its gradients are (grad_vectors): compute gradients centrally (one gradient "
            "worker)."
        )
    if num_parts < 2 or callable(getattr(policy, "parts_of", None)):
        return
    if policy.takes_whole_batches or cfg.get("on_policy"):
        raise ConfigError(
            f"{name} does not say how the rows of a minibatch are shared (parts_of): compute gradients centrally (one "
            "gradient worker)."
        )
    if int(cfg.learn.batch_size) % num_parts:
        raise ConfigError(
            f"policy.learn.batch_size is {cfg.learn.batch_size}, which {num_parts} gradient workers cannot share "
            f"equally: give a multiple of {num_parts}."
        )


def parts_of(policy: Policy, minibatch: Any, num_parts: int) -> list[Part]:  # Any: what a policy's minibatches are
    """Return a minibatch in so many parts, in the order of its rows; whole where it has too few rows for all.

    Raises SchemaError for rows that do not stack to columns, or that cannot be shared equally where they have to.
    """
    if not isinstance(minibatch, (TransitionBatch, SequenceBatch)):
        raise SchemaError(
            f"several workers cannot share a {type(minibatch).__name__} of rows that do not stack to arrays: compute "
            "gradients centrally (one gradient worker)."
        )
    size = len(minibatch)
    if num_parts == 1 or size < num_parts:
        return [whole_part(minibatch)]
    own = getattr(policy, "parts_of", None)  # Any: of policies that take whole batches
    if callable(own):
        found: list[tuple[Minibatch, float]] = own(minibatch, num_parts)
    elif size % num_parts:
        raise SchemaError(f"a minibatch of {size} rows cannot be shared equally by {num_parts} gradient workers.")
    else:
        found = [(minibatch[Share(rank, num_parts).of(size)], 1.0 / num_parts) for rank in range(num_parts)]
    if len(found[0][0]) == size:  # fewer sequences than workers
        return [whole_part(minibatch)]
    return [Part(_on_host(rows), Share(rank, num_parts), weight) for rank, (rows, weight) in enumerate(found)]


def begun_of(policy: Policy) -> State:
    """Return what `minibatches` has begun with the minibatch under way: where schedules stand, in which unit values."""
    return policy._grad_moves()


def use_part(policy: Policy, share: Share, begun: State, *, noise_seed: int | None = None) -> None:
    """Let the next `grad` of a policy, which holds the `grad_state` of another, be of one part of its minibatch.

    With `noise_seed` its random numbers follow from that: gradients of several minibatches, computed at the same time,
    would draw the same ones otherwise.
    """
    policy.set_share(share)
    policy._load_grad_moves(begun)
    noise = getattr(policy, "_noise", None)  # Any: of policies whose gradients draw random numbers
    if noise_seed is not None and noise is not None:
        noise.reseed(noise_seed)


def noise_seed_of(policy: Policy, number: int) -> int:
    """Return the seed of the random numbers of gradient `number`, of several that are computed at the same time.

    It follows from the random state of the policy, and so from the run's seed.
    """
    noise = getattr(policy, "_noise", None)  # Any: of policies whose gradients draw random numbers
    state = 0 if noise is None else zlib.crc32(noise.state.numpy().data)
    return int(np.random.SeedSequence([state, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def mean_gradient(gradients: Sequence[State], weights: Sequence[float]) -> State:
    """Return the mean of what several policies' `gradient` returned; weights of which some are missing count on."""
    total = sum(weights)
    vectors = {}
    for name, first in gradients[0]["vectors"].items():
        mean = first * (weights[0] / total)
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            mean.add_(gradient["vectors"][name], alpha=weight / total)
        vectors[name] = mean
    return {"vectors": vectors, "moves": gradients[0]["moves"]}


def weaken(policy: Policy, gradient: State, factor: float) -> State:
    """Return a gradient that counts only a share `factor`; what else it says of an update stays as it is."""
    num_gradients = len(list(policy._optimizers()))
    vectors = {
        name: vector * factor if int(name) < num_gradients else vector for name, vector in gradient["vectors"].items()
    }
    return {**gradient, "vectors": vectors}


def joined_info(infos: Sequence[Info], sizes: Sequence[int], weights: Sequence[float]) -> Info:
    """Return what one worker would log of a minibatch, of what those of its parts of `sizes` rows do.

    What there is for each row stands in the order of the rows, other numbers are means by weight.
    """
    share = np.asarray(weights, np.float64) / sum(weights)
    return {name: _joined([info[name] for info in infos], sizes, share) for name in infos[0]}


def joined_priority(priorities: Sequence[Array | None]) -> Array | None:
    """Return the priorities [B] of a minibatch from those of its parts, in order."""
    known = [priority for priority in priorities if priority is not None]
    return np.concatenate(known) if known else None


def _joined(values: Sequence[Any], sizes: Sequence[int], share: Array) -> Any:  # Any: numbers, arrays, tensors
    first = values[0]
    tensors = [torch.as_tensor(value) for value in values]
    if tensors[0].ndim and [len(value) for value in tensors] == list(sizes):
        return torch.cat(tensors)
    if all(torch.equal(value, tensors[0]) for value in tensors[1:]):
        return first
    mean = torch.stack([weight * value.double() for weight, value in zip(share.tolist(), tensors, strict=True)]).sum(
        dim=0
    )
    return mean.to(tensors[0].dtype) if isinstance(first, torch.Tensor) and first.is_floating_point() else mean


def whole_part(minibatch: Minibatch) -> Part:
    """Return a minibatch as the only part."""
    return Part(_on_host(minibatch), Share(), 1.0)


def _on_host(rows: Minibatch) -> Minibatch:
    """Return rows as arrays, of whatever their columns are."""
    if isinstance(rows, TransitionBatch):
        return TransitionBatch.of_length(len(rows), _arrays(rows.columns))
    return SequenceBatch(*(_arrays(part) for part in (rows.columns, rows.initial, rows.per_window)))


def _arrays(columns: Mapping[str, Any]) -> dict[str, Array]:  # Any: arrays or tensors
    return {
        name: column.cpu().numpy() if isinstance(column, torch.Tensor) else column for name, column in columns.items()
    }


def own_arrays(rows: Minibatch) -> Minibatch:
    """Return rows whose arrays may be written to: those that a host handed out are copied, as torch takes no others."""

    def own(columns: Mapping[str, Any]) -> dict[str, Array]:  # Any: arrays
        return {name: column if column.flags.writeable else column.copy() for name, column in columns.items()}

    if isinstance(rows, TransitionBatch):
        return TransitionBatch.of_length(len(rows), own(rows.columns))
    return SequenceBatch(own(rows.columns), own(rows.initial), own(rows.per_window))
