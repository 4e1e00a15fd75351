"""`ding_like.pipeline.ray` offers what PyTorchRL's page of collection promises: a table made by `api_table.py`."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ding_like.pipeline import ray
from ding_like.pipeline.build.factories import SchemeFactories
from tests.pipeline.ray.api_check import compare_attributes, compare_class, read_table
from tests.pipeline.ray.api_table import make_table
from tests.pipeline.ray.collecting import make_worker, small_config

PAGE = read_table("collection_api.json")

EXAMPLE = """package
class some.package.module.AWorker(index, factory=<function AWorker.<lambda>>, listen_to=[], *args)[source]
Bases: some.base.worker.Worker
Does things.
Parameters
  • index (int) - Its index.
index
Index of it.
Type
int
run(number=None)[source]
Run.
Returns
a result
- class other.ThreadOfIt(left)[source]
Bases:
some.threading.ThreadThis class does things.
- stopped
Whether.
- Type
bool
- property version
A number.
- classmethod make(first)[source]
- queue
Holds things.
- Type
"""


def test_a_page_becomes_classes_with_their_parameters_attributes_and_members() -> None:
    assert make_table(EXAMPLE) == {
        "AWorker": {
            "bases": ["Worker"],
            "params": ["index", "factory='<lambda>'", "listen_to=[]", "*args"],
            "attributes": {"index": "int"},
            "members": {"run": {"params": ["number=None"]}},
        },
        "ThreadOfIt": {
            "bases": ["Thread"],
            "params": ["left"],
            "attributes": {"stopped": "bool", "queue": ""},
            "members": {"version": {"marks": ["property"]}, "make": {"params": ["first"], "marks": ["classmethod"]}},
        },
    }


@pytest.mark.parametrize("name", list(PAGE))
def test_class_is_as_on_the_page(name: str) -> None:
    faults = list(compare_class(getattr(ray, name), PAGE[name]))

    assert not faults, "\n" + "\n".join(faults)


def test_a_collect_worker_has_the_pages_attributes(tmp_path: Path) -> None:
    worker = make_worker(SchemeFactories.of(small_config(tmp_path), seed=0), tests=True)

    faults = list(compare_attributes(worker, PAGE["CWorker"]))

    worker.stop()
    assert not faults, "\n" + "\n".join(faults)


def test_a_set_of_collect_workers_has_the_pages_attributes(tmp_path: Path) -> None:
    factories = SchemeFactories.of(small_config(tmp_path), seed=0)
    workers = ray.CWorkerSet(1, 0, factories.algo, factories.actor, factories.storage)

    faults = list(compare_attributes(workers, PAGE["CWorkerSet"]))

    workers.stop()
    assert not faults, "\n" + "\n".join(faults)


def test_the_package_exports_the_names_of_schemes_and_loads_them_when_asked_for() -> None:
    assert set(ray.__all__) == {
        "Scheme", "Worker", "WorkerSet", "CWorker", "CWorkerSet", "GWorker", "GWorkerSet", "CollectorThread", "UWorker",
        "UpdaterThread", "Learner",
    }  # fmt: skip
    assert ray.CWorker is importlib.import_module("ding_like.pipeline.ray.c_worker").CWorker
    with pytest.raises(AttributeError, match=r"no attribute 'DWorker'; it exports .*CWorker"):
        _ = ray.DWorker


class Thing:
    """Be compared with pages that it differs from."""

    def __init__(self, number: int, listen_to: Any = (), resources: Any = MappingProxyType({"cpus": 1})) -> None:
        self.number = number

    def run(self) -> None: ...

    @classmethod
    def make(cls, first: int = 1) -> None: ...


MATCHING = {"bases": ["Thing"], "params": ["number", "listen_to=[]", "resources={'cpus': 1}"], "members": {}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"bases": ["Worker"]}, "Thing is no Worker"),
        ({"params": ["number", "listen_to=[1]", "resources={'cpus': 1}"]}, "listen_to has the default"),
        ({"params": ["number", "listen_to=[]", "resources={'cpus': 2}"]}, "resources has the default"),
        ({"params": ["number", "listen_to='<lambda>'", "resources={'cpus': 1}"]}, "listen_to has the default"),
        ({"members": {"stop": {"params": []}}}, "Thing.stop is missing"),
        ({"members": {"run": {"params": ["index"]}}}, "parameter index is missing"),
        ({"members": {"run": {"marks": ["property"]}}}, "Thing.run is no property"),
        ({"members": {"make": {"params": ["first=1"]}}}, "Thing.make is a classmethod, or not"),
        ({"members": {"make": {"params": ["first"], "marks": ["classmethod"]}}}, "first has the default 1"),
    ],
)
def test_the_comparison_finds_a_difference(change: dict[str, Any], said: str | None) -> None:
    faults = "\n".join(compare_class(Thing, {**MATCHING, **change}))

    assert said in faults if said else not faults


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"number": "int"}, ""),
        ({"number": "float"}, "has float"),
        ({"gone": "int"}, "is missing"),
        ({"number": ""}, ""),
    ],
)
def test_the_comparison_finds_an_attribute_that_differs(attributes: dict[str, str], said: str) -> None:
    faults = "\n".join(compare_attributes(Thing(3), {"attributes": attributes}))

    assert said in faults and bool(faults) == bool(said)


def test_a_class_of_the_package_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(ray.CWorker)) is ray.CWorker
