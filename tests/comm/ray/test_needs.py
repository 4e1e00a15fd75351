"""Workers that have no room are named before any is started, with what there is and what to lower."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.ray import cluster as needs
from ding_like.comm.ray.actors import ENVIRONMENT, load_ray
from ding_like.comm.ray.cluster import (
    ClusterWatch,
    Need,
    Plan,
    RayCluster,
    Resources,
    StoreUse,
    plan_here,
    plan_on_cluster,
    resources_of,
)
from ding_like.comm.tensors import pack_rows, pack_state, unpack_rows, unpack_state
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError
from ding_like.utils import log
from ding_like.utils.processes import num_cores
from tests.ray_cluster import NUM_CPUS
from tests.support import wait_until

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


WIDE = np.arange(40.0).reshape(10, 4)
ROWS = TransitionBatch(
    {
        "obs/image": np.arange(240, dtype=np.uint8).reshape(5, 3, 4, 4),
        "action": np.arange(5),
        "reward": np.array([np.nan, np.inf, -0.0, 1.0, 2.0], np.float32),
        "a/view": WIDE[::2, 1:3],
        "terminated": np.arange(5) > 3,
    }
)

W = torch.arange(6.0).reshape(2, 3)
STATE: dict[str, Any] = {
    "version": {"origin": 2**47, "number": 3},
    "parts": {"model": {"encoder.0/w": W, "tied": W, "transposed": W.T, "empty": torch.zeros(0)}},
    "rng": torch.arange(5, dtype=torch.uint8),
    "priority": np.float32([1.0, 2.0]),
    "lr": 1e-3,
    "done": True,
    "none": {},
}


def test_rows_come_back_bit_for_bit_in_order_and_may_be_written() -> None:
    found = unpack_rows(pack_rows(ROWS)).columns

    assert list(found) == list(ROWS.columns)
    for name, column in ROWS.columns.items():
        assert found[name].dtype == column.dtype and found[name].shape == column.shape, name
        assert found[name].tobytes() == column.tobytes() and found[name].flags.writeable, name


def test_repeated_numbers_become_small() -> None:
    assert len(pack_rows(TransitionBatch({"obs": np.zeros((1000, 84), np.float32)}))) < 7_000
    state = {"w": torch.zeros(100_000)}
    assert pack_state(state, compress=True).size < pack_state(state).size / 50


def test_frames_that_were_cut_off_or_changed_are_refused() -> None:
    frame = pack_rows(ROWS)
    changed = bytearray(frame)
    changed[len(frame) // 2] ^= 0x40
    for wrong in (b"", frame[:7], frame[:-1], bytes(changed), b"no frame"):
        with pytest.raises(CommError):
            unpack_rows(wrong)


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("compress", [False, True])
def test_a_state_comes_back_as_it_was_and_may_be_written(compress: bool) -> None:
    packed = pack_state(STATE, compress=compress)
    assert_same(unpack_state(packed), STATE)
    unpack_state(packed)["parts"]["model"]["tied"].add_(1.0)
    assert_same(unpack_state(packed), STATE)
    assert unpack_state(pack_state({}, compress=compress)) == {}


def test_other_bytes_are_no_state() -> None:
    for body in (pack_state(STATE)[:-1], pack_state(STATE, compress=True)[:-10], np.zeros(20, np.uint8)):
        with pytest.raises(CommError, match="bytes are no"):
            unpack_state(body)


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(CommError, match="a list at 'info/losses'"):
        pack_state({"info": {"losses": [1.0]}})


def test_without_lz4_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        pack_rows(ROWS)


MIB = 2**20


@pytest.mark.ray
def test_a_cluster_that_lives_is_not_lost(ray_cluster: RayCluster) -> None:
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:
        wait_until(lambda: watch.store().total > 0)
        assert watch.lost is None


@pytest.mark.ray
@pytest.mark.slow
def test_what_the_object_store_holds_is_said(ray_cluster: RayCluster) -> None:
    ray = load_ray()
    with ClusterWatch(ray_cluster, interval_s=0.2) as watch:
        kept = ray.put(np.zeros(32 * MIB, np.uint8))
        wait_until(lambda: 32 * MIB <= watch.store().used < 40 * MIB)
        assert watch.store().total == 256 * MIB and watch.store().spilled == 0

        del kept
        wait_until(lambda: watch.store().used < 32 * MIB)


@pytest.mark.ray
@pytest.mark.slow
def test_an_object_store_that_is_nearly_full_is_warned_of_once(
    ray_cluster: RayCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ray = load_ray()
    with caplog.at_level(logging.WARNING), ClusterWatch(ray_cluster, interval_s=0.1) as watch:
        kept = [ray.put(np.zeros(55 * MIB, np.uint8)) for _ in range(4)]
        wait_until(lambda: "object store is full or nearly so" in caplog.text)
        threading.Event().wait(0.5)  # time for a second warning, which there is not to be
        del kept
        wait_until(lambda: watch.store().used < 55 * MIB)

    assert caplog.text.count("object store is full") == 1


@pytest.mark.ray
def test_a_cluster_that_cannot_be_asked_is_lost(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:

        def refuse() -> None:
            raise ConnectionError("no head")

        monkeypatch.setattr(load_ray(), "nodes", refuse)

        wait_until(lambda: watch.lost is not None)
        assert watch.lost is not None and "ConnectionError: no head" in watch.lost


@pytest.mark.ray
def test_an_answer_that_does_not_come_is_a_loss(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = threading.Event()
    with ClusterWatch(ray_cluster, interval_s=0.05, answer_s=0.3) as watch:
        monkeypatch.setattr(load_ray(), "nodes", lambda: silent.wait(30.0) and [])

        wait_until(lambda: watch.lost is not None)
        silent.set()

    assert watch.lost == "its head (GCS) has not answered for 0.3 s"


@pytest.mark.ray
def test_a_node_that_is_gone_is_a_loss(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = load_ray()
    here = ray.nodes()
    other = {"NodeID": "ff", "NodeManagerAddress": "10.0.0.9", "Alive": True}
    monkeypatch.setattr(ray, "nodes", lambda: [*here, dict(other)])
    with ClusterWatch(ray_cluster, interval_s=0.05) as watch:
        wait_until(lambda: watch.store().total > 0)
        other["Alive"] = False

        wait_until(lambda: watch.lost is not None)

    assert watch.lost == "its node 10.0.0.9 has ended"


def test_use_is_said_in_one_line_and_as_numbers_for_the_metrics() -> None:
    assert str(StoreUse(3 * MIB, 100 * MIB, None)) == "3 of 100 MiB"
    assert str(StoreUse(3 * MIB, 100 * MIB, 5 * MIB)) == "3 of 100 MiB, 5 MiB on disk"
    assert StoreUse(3, 100, None).numbers() == {"store_used_bytes": 3.0, "store_total_bytes": 100.0}
    assert StoreUse(3, 100, 5).numbers()["store_spilled_bytes"] == 5.0


ROOT = Path(__file__).parents[3]


def run(code: str, **environment: str) -> str:
    """Return what a fresh Python prints."""
    env = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**env, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_where_ray_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("ding_like.comm.ray.actors.ENVIRONMENT", {})

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[ray\]"'):
        load_ray()


def test_schemes_and_their_workers_load_without_ray() -> None:
    code = "import sys, ding_like.comm.ray.actors, ding_like.pipeline.ray.scheme; print('ray' in sys.modules)"

    assert run(code) == "False\n"


@pytest.mark.ray
@pytest.mark.slow
def test_workers_are_told_to_run_at_normal_priority_unless_the_user_has_said_otherwise() -> None:
    code = "from ding_like.comm.ray.actors import load_ray; load_ray(); import os; print(os.environ[{!r}])"
    code = code.format("RAY_worker_niceness")

    assert run(code) == "0\n"
    assert run(code, RAY_worker_niceness="5") == "5\n"


@pytest.mark.ray
@pytest.mark.slow
def test_pages_of_the_node_manager_are_not_printed_and_lines_of_workers_are() -> None:
    code = """
from ding_like.comm.ray.actors import load_ray
ray = load_ray()
assert load_ray() is ray
for pid, line in (("raylet", "a page"), (17, "a line")):
    ray._private.worker.print_to_stdstream({"lines": [line], "pid": pid, "is_err": False, "ip": "", "job": ""}, True)
"""

    assert run(code) == "a line\n"
