"""`ding_like.pipeline.ray` offers what PyTorchRL's page of collection promises: tables of its pages."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pytest

from ding_like.pipeline import ray
from ding_like.pipeline.scheme_parts import SchemeFactories
from tests.pipeline.ray.api_check import compare_attributes, compare_class, read_table
from tests.pipeline.ray.collecting import make_worker, small_config

COLLECTION, UPDATES = read_table("collection_api.json"), read_table("updates_api.json")


def test_classes_are_as_on_the_pages() -> None:
    faults = [
        fault
        for page in (COLLECTION, UPDATES)
        for name, entry in page.items()
        for fault in compare_class(getattr(ray, name), entry)
    ]

    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.usefixtures("in_tmp")
def test_instances_have_the_attributes_of_the_pages(tmp_path: Path) -> None:
    factories = SchemeFactories.of(small_config(tmp_path), seed=0)
    worker = make_worker(factories, tests=True)
    workers = ray.CWorkerSet(0, 0, factories.algo, factories.actor, factories.storage)
    scheme = ray.Scheme(factories.algo, factories.learning_actor, factories.storage, factories.train_envs)
    faults = [
        *compare_attributes(worker, COLLECTION["CWorker"]),
        *compare_attributes(workers, COLLECTION["CWorkerSet"]),
        *compare_attributes(scheme.update_worker, UPDATES["UWorker"]),
        *compare_attributes(scheme.update_worker.updater, UPDATES["UpdaterThread"]),
    ]
    for each in (worker, workers, scheme):
        each.stop()

    assert not faults, "\n" + "\n".join(faults)


def test_the_package_exports_the_names_of_schemes_and_loads_them_when_asked_for() -> None:
    assert set(ray.__all__) == {
        "Scheme", "Worker", "WorkerSet", "CWorker", "CWorkerSet", "GWorker", "GWorkerSet", "CollectorThread", "UWorker",
        "UpdaterThread", "Learner",
    }  # fmt: skip
    assert ray.CWorker is importlib.import_module("ding_like.pipeline.ray.workers").CWorker
    with pytest.raises(AttributeError, match=r"no attribute 'DWorker'; it exports .*CWorker"):
        _ = ray.DWorker


def test_a_class_of_the_package_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(ray.CWorker)) is ray.CWorker
