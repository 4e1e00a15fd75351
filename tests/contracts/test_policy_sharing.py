"""A minibatch that is shared among stateless replicas teaches a policy what the whole would, whichever policy it is."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.policy import Policy
from ding_like.policy.share import Share
from ding_like.policy.sharing import (
    begun_of,
    check_sharing,
    joined_info,
    joined_priority,
    mean_gradient,
    parts_of,
    use_part,
    weaken,
)
from tests.contracts.grad_cases import GRAD_CASES, GRAD_PARAMS, batches_of, rng_of
from tests.contracts.policy_cases import make, tensors_of

UPDATES = 4


class Shared:
    """Owner that is trained by replicas, which hold nothing but its `grad_state`."""

    def __init__(self, case: Any, num_parts: int) -> None:
        self.owner = make(case)
        self.replicas = [make(case, seed=1 + rank) for rank in range(num_parts)]
        self.since: Any = None

    def update(self, minibatch: Any) -> tuple[dict[str, Any], Any]:
        state = self.owner.grad_state(self.since)
        self.since = state["version"]
        begun, found = begun_of(self.owner), []
        parts = parts_of(self.owner, minibatch, len(self.replicas))
        for replica in self.replicas:
            replica.load_grad_state(state)
        for part, replica in zip(parts, self.replicas, strict=False):
            use_part(replica, part.share, begun)
            info, priority = replica.grad(part.rows)
            found.append((copy.deepcopy(replica.gradient()), info, priority))
        weights = [part.weight for part in parts]
        assert sum(weights) == pytest.approx(1)
        self.owner.load_gradient(mean_gradient([gradient for gradient, _, _ in found], weights))
        self.owner.apply()
        sizes = [len(part.rows) for part in parts]
        info = joined_info([info for _, info, _ in found], sizes, weights)
        return info, joined_priority([priority for _, _, priority in found])


def even(policy: Policy, batch: TransitionBatch, num_parts: int) -> TransitionBatch:
    return batch if policy.takes_whole_batches else batch[: len(batch) // num_parts * num_parts]


@pytest.mark.parametrize("num_parts", [pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", GRAD_PARAMS)
def test_a_shared_minibatch_teaches_what_the_whole_does(name: str, num_parts: int) -> None:
    case = GRAD_CASES[name]
    source, alone, shared = make(case), make(case), Shared(case, num_parts)
    before = copy.deepcopy(alone.learn_mode.state_dict()["model"])

    updates = 0
    for number, batch in enumerate(islice(batches_of(case, source), UPDATES)):
        rows = even(alone, batch, num_parts)
        whole = alone.minibatches(rows, rng_of(number))
        for minibatch, same in zip(whole, shared.owner.minibatches(rows, rng_of(number)), strict=True):
            wanted, wanted_priority = alone.grad(minibatch)
            alone.apply()
            info, priority = shared.update(same)
            updates += 1
            assert info.keys() == wanted.keys()
            for loss in (key for key in wanted if key.endswith("loss")):
                np.testing.assert_allclose(float(info[loss]), float(wanted[loss]), rtol=1e-4, atol=1e-5)
            if wanted_priority is not None:
                np.testing.assert_allclose(priority, wanted_priority, atol=1e-5)
        if updates >= UPDATES:
            break

    wanted_state, state = (tensors_of(policy.learn_mode.state_dict()) for policy in (alone, shared.owner))
    for path, value in wanted_state.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(
                state[path], value, rtol=1e-5, atol=2e-6, msg=lambda m, path=path: f"{path}: {m}"
            )
        else:
            assert state[path] == value, path
    after = alone.learn_mode.state_dict()["model"]
    assert max(float((after[name] - before[name]).abs().max()) for name in before) > 1e-4, "it learned"


def test_parts_stand_in_the_order_of_the_rows() -> None:
    policy = make(GRAD_CASES["dqn"])
    batch = next(batches_of(GRAD_CASES["dqn"], policy))[:12]

    parts = parts_of(policy, batch, 3)

    assert [part.share for part in parts] == [Share(0, 3), Share(1, 3), Share(2, 3)]
    np.testing.assert_array_equal(np.concatenate([part.rows["obs"] for part in parts]), batch["obs"])


def test_fewer_rows_than_workers_are_one_part() -> None:
    for name in ("dqn", "ppo", "impala"):
        policy = make(GRAD_CASES[name])
        batch = next(batches_of(GRAD_CASES[name], policy))[:2]

        parts = parts_of(policy, batch, 3)

        assert [(part.share, part.weight, len(part.rows)) for part in parts] == [(Share(), 1.0, 2)]


def test_rows_that_cannot_be_halved_are_refused_where_each_worker_draws_for_as_many() -> None:
    policy = make(GRAD_CASES["sac"])
    batch = next(batches_of(GRAD_CASES["sac"], policy))[:7]

    with pytest.raises(SchemaError, match="7 rows cannot be shared equally by 2"):
        parts_of(policy, batch, 2)


def test_a_policy_that_cannot_share_is_refused_with_the_reason() -> None:
    policy = make(GRAD_CASES["dqn"])
    check_sharing(policy, 2)
    check_sharing(make(GRAD_CASES["ppo"]), 3)

    with pytest.raises(ConfigError, match=r"batch_size is 16, which 3 gradient workers.*multiple of 3"):
        check_sharing(policy, 3)


def test_logs_of_parts_are_means_by_weight_and_rows_in_order() -> None:
    first = {"loss": torch.tensor(1.0), "q": torch.tensor([1.0, 2.0]), "cur_lr": 0.1, "kl": 0.3}
    second = {"loss": torch.tensor(4.0), "q": torch.tensor([3.0]), "cur_lr": 0.1, "kl": 0.6}

    info = joined_info([first, second], [2, 1], [2 / 3, 1 / 3])

    assert float(info["loss"]) == pytest.approx(2.0)
    assert info["q"].tolist() == [1.0, 2.0, 3.0]
    assert info["cur_lr"] == 0.1
    assert float(info["kl"]) == pytest.approx(0.4)


def test_a_weakened_gradient_keeps_what_is_no_gradient() -> None:
    policy = make(GRAD_CASES["ppo autograd target_kl"])
    batch = next(batches_of(GRAD_CASES["ppo autograd target_kl"], policy))
    policy.grad(next(policy.minibatches(batch, rng_of(0))))
    gradient = copy.deepcopy(policy.gradient())

    weak = weaken(policy, gradient, 0.5)

    torch.testing.assert_close(weak["vectors"]["0"], 0.5 * gradient["vectors"]["0"])
    assert torch.equal(weak["vectors"]["1"], gradient["vectors"]["1"])


def test_several_minibatches_at_once_draw_noise_of_their_own() -> None:
    case = GRAD_CASES["sac"]
    owner, replica = make(case), make(case)
    batch = next(batches_of(case, owner))
    drawn = []
    for seed in (1, 1, 2):
        replica.load_grad_state(owner.grad_state())
        use_part(replica, Share(), begun_of(owner), noise_seed=seed)
        replica.grad(batch)
        drawn.append(copy.deepcopy(replica.gradient()["vectors"]["0"]))

    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
