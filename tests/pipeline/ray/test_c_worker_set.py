"""A set of collect workers has envs where rows are collected, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import CollectRequest
from ding_like.comm.ray.actors import load_ray
from ding_like.errors import ConfigError
from ding_like.pipeline.collect import segment_of
from ding_like.pipeline.ray import CWorker, CWorkerSet
from ding_like.pipeline.scheme_parts import SchemeFactories
from tests.pipeline.ray.collecting import make_worker, small_config

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

MakeSet = Callable[..., CWorkerSet]


@pytest.fixture
def factories(tmp_path: Path) -> SchemeFactories:
    return SchemeFactories.of(small_config(tmp_path), seed=3)


@pytest.fixture
def make_set(factories: SchemeFactories) -> Iterator[MakeSet]:
    made = []

    def make(number: int, parent: int = 0, **params: Any) -> CWorkerSet:
        parts = (factories.algo, factories.actor, factories.storage)
        own = {"train_envs_factory": factories.train_envs, "worker_remote_config": {"num_cpus": 0.5}}
        made.append(CWorkerSet(number, parent, *parts, **{**own, **params}))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def results(workers: CWorkerSet, method: str, **kwargs: Any) -> list[Any]:
    return [reply.value for reply in workers.call(method, **kwargs)]


@pytest.mark.parametrize(
    ("number", "parent", "parents", "num_remote", "local_collects"),
    [
        (2, 0, 0, 2, False),
        (0, 0, 0, 0, True),  # no other worker does
        (2, 0, 3, 0, False),  # the local gradient worker of several holds parameters
        (2, 1, 3, 2, False),  # each of the others has collectors
        (0, 1, 3, 0, True),  # or collects by itself
    ],
)
def test_envs_are_where_rows_are_collected(
    number: int, parent: int, parents: int, num_remote: int, local_collects: bool, make_set: MakeSet
) -> None:
    workers = make_set(number, parent, total_parent_workers=parents)

    local = workers.local_worker()
    assert isinstance(local, CWorker) and (local.index_worker, local.index_parent) == (0, parent)
    assert (local.envs_train is not None) == local_collects
    assert workers.num_workers == len(workers.remote_workers()) == num_remote
    if workers.num_workers:
        for _, info in results(workers, "collect_data"):
            assert info["NumberSamples"] == 8
    workers.stop()


def test_remote_workers_are_1_to_n_and_play_as_those_of_their_index(
    factories: SchemeFactories, make_set: MakeSet
) -> None:
    order = CollectRequest(False, 24, 0, None)
    workers = make_set(2)
    names = [worker.name for worker in workers.remote_workers()]
    found = [segment_of(*each) for each in results(workers, "collect_data", order=order)]
    workers.stop()

    assert names == ["collector1", "collector2"]
    for index, segment in enumerate(found, start=1):
        alone = make_worker(factories, index=index)
        expected, _ = alone.collect_data(order=order)
        alone.stop()
        assert all(np.array_equal(segment.batch[name], column) for name, column in expected.items())


def test_params_config_and_factory_are_the_documents(factories: SchemeFactories) -> None:
    resources = {"num_cpus": 0.5}
    make = CWorkerSet.create_factory(
        1,
        factories.algo,
        factories.actor,
        factories.storage,
        factories.test_envs,
        factories.train_envs,
        col_fraction_samples=0.5,
        compress_data_to_send=True,
        col_worker_resources=resources,
    )
    resources["num_cpus"] = 99.0
    weights = {"version": 0, "weights": factories.actor().collect_mode.state_dict()}

    workers = make("cpu", weights, 0)

    try:
        assert workers.worker_class is CWorker and workers.remote_config == {"num_cpus": 0.5}
        assert workers.worker_params["fraction_samples"] == 0.5 and workers.worker_params["compress_data_to_send"]
        assert workers.local_worker().device == torch.device("cpu") and workers.num_workers == 1
    finally:
        workers.stop()


def test_the_local_workers_actor_may_be_another(factories: SchemeFactories, make_set: MakeSet) -> None:
    policy = factories.learning_actor()

    workers = make_set(0, local_params=dict(actor_factory=lambda device: policy))

    assert workers.local_worker().actor is policy
    assert workers.local_worker().update_algorithm_parameter("lr", 0.5)
    assert workers.local_worker().algo.lr == 0.5


def test_sets_of_other_parents_have_names_of_their_own(make_set: MakeSet) -> None:
    names = [worker.name for parent in (0, 1, 2) for worker in make_set(2, parent).remote_workers()]

    assert names == [
        "collector1", "collector2", "collector1_1", "collector1_2", "collector2_1", "collector2_2",
    ]  # fmt: skip


def test_a_worker_that_cannot_be_made_is_told_of_and_leaves_nothing(make_set: MakeSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fraction_samples"):
        make_set(1, fraction_samples=2.0)


def test_the_documents_share_of_a_gpu_is_refused_at_once_where_there_is_none(factories: SchemeFactories) -> None:
    with pytest.raises(ConfigError, match="2 of 2 collectors .*0.2 GPU.*: no node has that"):
        CWorkerSet(2, 0, factories.algo, factories.actor, factories.storage)


def test_initial_weights_may_be_in_rays_store(factories: SchemeFactories, make_set: MakeSet) -> None:
    state = factories.actor().collect_mode.state_dict()
    weights = load_ray().put({"version": 4, "weights": state})

    workers = make_set(1, initial_weights=weights)

    assert workers.local_worker().actor_version == 4
    assert results(workers, "collect_data")[0][1]["ActorVersion"] == {"DataCollection": 4}
