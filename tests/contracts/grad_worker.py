"""Compute gradients for another process: python -m tests.contracts.grad_worker CASE. All it hears and says is tensors.

A message is 8 bytes of length and safetensors of a nested state. Heard: `state` (a policy's grad_state), `batch` (its
columns) and `number`, then `state` after each answer. Said: `gradient`, `info` and `priority` of each minibatch, and an
empty message at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors.torch import load, save

from ding_like.comm.flat_state import flatten_state, unflatten_state
from ding_like.data.batch import TransitionBatch
from tests.contracts.grad_cases import GRAD_CASES, rng_of
from tests.contracts.policy_cases import make


def send(pipe: BinaryIO, message: Mapping[str, Any]) -> int:
    """Write a message and return its size in bytes."""
    flat = flatten_state(message)
    data: bytes = save({name: tensor.contiguous() for name, tensor in flat.items()})
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()
    return len(data)


def receive(pipe: BinaryIO) -> dict[str, Any] | None:
    """Return the next message; None once the pipe is closed."""
    head = pipe.read(8)
    return unflatten_state(load(pipe.read(int.from_bytes(head, "big")))) if head else None


def _sendable(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else np.asarray(value)


def main(name: str) -> None:
    """Work until there is nothing more to hear."""
    torch.set_num_threads(1)
    heard, said = sys.stdin.buffer, sys.stdout.buffer
    policy = make(GRAD_CASES[name], seed=1)
    while (message := receive(heard)) is not None:
        policy.load_grad_state(message["state"])
        batch = TransitionBatch(message["batch"])
        for minibatch in policy.minibatches(batch, rng_of(message["number"])):
            info, priority = policy.grad(minibatch)
            answer = {"gradient": policy.gradient(), "info": {name: _sendable(value) for name, value in info.items()}}
            send(said, answer if priority is None else {**answer, "priority": np.asarray(priority)})
            answered = receive(heard)
            assert answered is not None, "every gradient is answered by the state that it led to"
            policy.load_grad_state(answered["state"])
        send(said, {})


if __name__ == "__main__":
    main(sys.argv[1])
