"""Workers that have no room are named before any is started, with what there is and what to lower."""

from __future__ import annotations

import logging

import pytest

from ding_like.comm.ray import cluster as needs
from ding_like.comm.ray.cluster import Need, Plan, RayCluster, Resources, plan_here, plan_on_cluster, resources_of
from ding_like.errors import ConfigError
from ding_like.utils import log
from ding_like.utils.machine import num_cores
from tests.ray_cluster import NUM_CPUS

GIB = 2**30


def node(cpus: float = 0.0, gpus: float = 0.0, memory: float = 0.0, **custom: float) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus, "memory": memory, **custom}


def plan(wanted: list[Need], *nodes: dict[str, float], free: dict[str, float] | None = None) -> Plan:
    return Plan(wanted, {f"10.0.0.{number}": each for number, each in enumerate(nodes, 1)}, free=free)


def test_workers_that_fit_are_let_through() -> None:
    found = plan([Need("collector", 3, Resources()), Need("learner", 1, Resources(2.0))], node(2), node(3))

    assert found.fits
    found.check()


def test_a_worker_must_fit_on_one_node() -> None:
    found = plan([Need("learner", 1, Resources(num_cpus=3))], node(2), node(2))

    with pytest.raises(ConfigError, match=r"1 of 1 learners \(3 CPU each\): no node has that") as error:
        found.check()
    assert "Lower the number of workers" in str(error.value)


def test_memory_and_kinds_of_the_clusters_own_count() -> None:
    wanted = [Need("learner", 2, Resources(0.0, memory=3 * GIB, custom={"disk": 1}))]
    one = node(0, memory=8 * GIB, disk=1)

    assert plan(wanted, one, one, free=node(0, memory=16 * GIB, disk=2)).fits
    assert not plan(wanted, one, free=one).fits


def test_what_other_programs_have_is_missing() -> None:
    found = plan([Need("collector", 4, Resources())], node(8), free=node(3))

    with pytest.raises(ConfigError, match="4 CPU are wanted in all, and 3 are free"):
        found.check()


def test_the_table_says_wanted_and_available() -> None:
    table = plan([Need("collector", 2, Resources(0.5)), Need("none", 0, Resources())], node(4)).table

    lines = {line[:14].strip(): line[14:].split() for line in table.splitlines()}
    assert lines["collector"] == ["2", "0.5", "-", "-"] and lines["wanted in all"] == ["2", "1", "-", "-"]
    assert lines["10.0.0.1"] == ["4", "-", "-"] and lines["free now"] == ["4", "-", "-"]
    assert "none" not in lines and table.endswith("fits")


def test_workers_share_the_cpus_of_a_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "num_cores", lambda: 2)
    found = plan_here([Need("collector", 3, Resources()), Need("standby", 1, Resources())])

    assert found.fits and found.nodes["this machine"]["CPU"] == 4
    assert "4 CPUs are asked of this machine's 2: the workers share them" in found.table


def test_a_small_plan_leaves_a_cluster_of_its_own_all_cpus() -> None:
    found = plan_here([Need("collector", 1, Resources(0.1))])

    assert found.nodes["this machine"]["CPU"] == num_cores()


def test_gpus_are_not_shared_beyond_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    found = plan_here([Need("learner", 1, Resources(num_gpus=1))])

    with pytest.raises(ConfigError, match=r"1 of 1 learners \(1 CPU, 1 GPU, 0.176 GiB memory each\): no node has that"):
        found.check()


def test_more_workers_than_memory_holds_do_not_fit_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "available_bytes", lambda: 22.0 * GIB)
    monkeypatch.setattr(needs, "object_store_bytes", lambda: 2 * GIB)

    assert plan_here([Need("collector", 100, Resources())]).fits
    found = plan_here([Need("collector", 1000, Resources())])
    with pytest.raises(ConfigError, match="176 GiB memory are wanted in all, and 20 GiB are free") as error:
        found.check()
    assert "system.ray.collect.workers" in str(error.value)


@pytest.mark.ray
def test_a_cluster_is_asked_for_what_it_has(ray_cluster: RayCluster) -> None:
    assert plan_on_cluster([Need("collector", NUM_CPUS, Resources())]).fits

    found = plan_on_cluster([Need("collector", NUM_CPUS + 1, Resources())])

    assert not found.fits and ray_cluster.address.split(":")[0] in found.table


# --- options of workers


def test_options_of_ray_are_read() -> None:
    found = resources_of({"num_cpus": 0.5, "num_gpus": 0.2, "memory": 2**30, "resources": {"licence": 1}})

    assert found == Resources(num_cpus=0.5, num_gpus=0.2, memory=2**30, custom={"licence": 1.0})


def test_without_options_a_worker_has_a_cpu() -> None:
    assert resources_of({}) == Resources(num_cpus=1.0, num_gpus=0.0, memory=None)


def test_that_object_store_memory_has_no_effect_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_warned", set())
    with caplog.at_level(logging.WARNING, "ding_like"):
        for _ in range(2):
            assert resources_of({"object_store_memory": 2**31}) == Resources()

    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "object_store_memory of workers has no effect"
    ]


def test_options_that_make_no_sense_are_refused() -> None:
    for options, words in (
        ({"cpus": 1}, r"cpus +unknown key; did you mean 'num_cpus'"),
        ({"num_cpus": -1}, r"num_cpus +is -1"),
        ({"num_gpus": "one"}, r"num_gpus +expected float, got str 'one'"),
        ({"num_cpus": True}, r"num_cpus +expected float, got bool True"),
        ({"num_cpus": float("nan")}, r"num_cpus +is float"),
        ({"num_cpus": None}, r"num_cpus +expected float, got None"),
        ({"resources": 3}, "expected a section"),
        ({"resources": {"licence": "x"}}, r"resources.licence +is 'x'"),
    ):
        with pytest.raises(ConfigError, match=words):
            resources_of(options)
