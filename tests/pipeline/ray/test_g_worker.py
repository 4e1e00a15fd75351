"""GWorkers compute what they are sent, hold nothing else, and pass on what is changed; the API of document 000."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.workers.states import pack_state, unpack_state
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.ray import GWorker, GWorkerSet
from ding_like.policy.share import Share
from ding_like.policy.sharing import begun_of
from tests.contracts.grad_cases import GRAD_CASES, batches_of
from tests.contracts.policy_cases import make
from tests.pipeline.ray.gradient_cases import HeldPolicy, Run, held


def remote(name: str = "dqn prioritised", **settings: Any) -> GWorker:
    return GWorker(1, partial(held, name, 100), **settings)


def call(worker: GWorker, owner: Any, rows: Any, *, since: Any = None, **changes: Any) -> dict[str, Any]:
    """Have a worker compute the gradient of rows with what has changed of an owner's state since a version."""
    given = dict(share=(0, 1), begun=pack_state(begun_of(owner)), version=7, **changes)
    return unpack_state(worker.get_grads(rows, pack_state(owner.grad_state(since)), **given))


def test_a_worker_computes_with_what_it_is_sent_and_not_with_its_own_weights() -> None:
    case = GRAD_CASES["dqn prioritised"]
    owner, worker = make(case), remote()
    batch = next(batches_of(case, owner))
    wanted, priority = owner.grad(batch)

    found = call(worker, owner, batch)

    torch.testing.assert_close(found["gradient"]["vectors"]["0"], owner.gradient()["vectors"]["0"], rtol=0, atol=0)
    np.testing.assert_array_equal(found["priority"], priority)
    assert float(found["info"]["total_loss"]) == float(wanted["total_loss"])
    assert found["version"] == worker.actor_version == 7


def test_a_worker_without_the_version_that_changes_are_since_says_so() -> None:
    case = GRAD_CASES["dqn"]
    owner, worker = make(case), remote("dqn")
    version = owner.grad_state()["version"]

    with pytest.raises(CheckpointError, match="since"):
        call(worker, owner, next(batches_of(case, owner)), since=version)


def test_the_gradient_of_one_worker_may_be_applied_by_another() -> None:
    case = GRAD_CASES["dqn"]
    owner, computes, applies = make(case), remote("dqn"), remote("dqn", compress_grads_to_send=True)
    batch = next(batches_of(case, owner))
    for worker in (computes, applies):
        worker.actor.learn_mode.load_state_dict(copy.deepcopy(owner.learn_mode.state_dict()))
    given: dict[str, Any] = dict(share=tuple(Share()), begun=pack_state(begun_of(owner)), version=0)

    applies.apply_gradients(computes.get_grads(batch, pack_state(owner.grad_state()), **given))
    owner.grad(batch)
    owner.apply()

    for name, value in owner.learn_mode.state_dict()["model"].items():
        assert torch.equal(applies.actor.learn_mode.state_dict()["model"][name], value)
    assert applies.actor_version == 1


def test_a_worker_elsewhere_has_no_rows_to_take_a_turn_with() -> None:
    worker = remote()

    for method in (worker.step, worker.get_data, lambda: worker.save_model("x")):
        with pytest.raises(ConfigError, match="has no rows and no learner"):
            method()
    worker.stop()
    assert worker.c_workers.is_stopped


def test_how_gradients_are_applied_is_chosen_once(tmp_path: Path) -> None:
    with Run("dqn", tmp_path) as run:
        run.u_worker.local_worker.step(distribute_gradients=False)
        with pytest.raises(ConfigError, match="decentralized_update_execution"):
            run.u_worker.local_worker.step(distribute_gradients=True)


def test_a_factory_makes_sets_for_a_device_and_a_parent() -> None:
    settings = dict(col_execution="Parallel", col_communication="asynchronous", col_fraction_workers=0.5)
    make_set = GWorkerSet.create_factory(
        2, col_workers_factory=partial(held, "dqn", 100), local_col_workers_factory=partial(held, "dqn", 200),
        compress_grads_to_send=True, grad_worker_resources=dict(num_cpus=0.5), **settings,
    )  # fmt: skip

    workers = make_set("cpu", 3)
    try:
        local = workers.local_gradient_worker
        assert (workers.index_parent, workers.num_workers, local.index_worker, local.device) == (3, 2, 0, "cpu")
        assert (local.col_execution, local.col_communication) == ("Parallel", "asynchronous")
        assert (local.col_fraction_workers, local.compress_grads_to_send) == (0.5, True)
        assert isinstance(local.c_workers, HeldPolicy)
        assert workers.worker_params["device"] is None
    finally:
        workers.stop()


def test_workers_that_are_given_a_gpu_are_told_to_compute_on_it() -> None:
    devices = []

    def note(device: Any, initial_weights: Any, index_parent: int) -> HeldPolicy:
        devices.append((index_parent, device))
        return held("dqn", 100, "cpu", initial_weights, index_parent)

    for num_gpus in (0, 0.5):
        GWorkerSet(
            1, 0, "cpu", "Central", "synchronous", note, grad_worker_resources=dict(num_cpus=1, num_gpus=num_gpus)
        ).stop()

    assert devices == [(0, "cpu"), (1, None), (0, "cpu"), (1, "cuda")]


def test_what_a_run_learns_with_is_not_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Run("dqn", tmp_path, execution="Central", num_workers=0) as run:
        assert not run.u_worker.replace_agent_component("algo", lambda device, actor: None)
        assert "stays as it is" in caplog.text
        assert run.u_worker.local_worker.actor is run.policy
