"""Weight updaters do what TorchRL's page says, for each kind of worker id and weights, and say what went wrong."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.comm import DistributedWeightUpdater, WeightUpdateError, WeightUpdaterBase
from ding_like.comm.tensors import from_bytes
from ding_like.comm.weight_updater import Push
from ding_like.errors import CommError, SchemaError
from tests.comm.weights.fake_nodes import FakeNodes
from tests.comm.weights.test_encode import tensordict_of


class Updater(DistributedWeightUpdater):
    """Keeps what it sends, and fails for `broken` ranks; with `is_held` it sends once `release` is set."""

    def __init__(self, *args: Any, broken: Sequence[int] = (), is_held: bool = False, **kwargs: Any) -> None:
        self.pushes: list[tuple[int, Push]] = []
        self.broken = broken
        self.release = threading.Event()
        if not is_held:
            self.release.set()
        super().__init__(*args, **kwargs)

    def _send_weights(self, rank: int, push: Push) -> None:
        assert self.release.wait(60.0)
        self.pushes.append((rank, push))
        if rank in self.broken:
            raise CommError("Connection closed by peer.")

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, _ in self.pushes]

    @property
    def sent(self) -> Mapping[str, torch.Tensor]:
        """The state that was sent last."""
        return self.pushes[-1][1].weights.state


class Collector:
    def __init__(self) -> None:
        self.versions = 0

    def increment_version(self) -> None:
        self.versions += 1


def policy(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def updater_of(nodes: Any, *, num_workers: int = 3, sync: bool = True, **kwargs: Any) -> Updater:
    return Updater(nodes, kwargs.pop("weights", policy()), num_workers, sync, **kwargs)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> FakeNodes:
    found = FakeNodes()
    found.use_clock(monkeypatch)
    return found


# --- whom a push is for


def test_a_push_without_arguments_reaches_every_rank_with_the_weights_of_the_updater(nodes: FakeNodes) -> None:
    updater = updater_of(nodes)

    assert updater.push_weights() is None

    assert nodes.told() == [1, 2, 3] == sorted(updater.ranks)
    assert torch.equal(updater.sent["weight"], policy().state_dict()["weight"])
    assert not [key for key in nodes.values if key.endswith("_out")]  # answers are taken out


def test_ranks_count_from_one_alone_and_in_lists() -> None:
    for worker_ids, ranks in ((2, [2]), ([1], [1]), ([3, 1], [3, 1]), ([2, 2], [2]), ([], [])):
        nodes, hooks = FakeNodes(), []
        updater = updater_of(nodes)
        updater.register_post_hook(lambda hooks=hooks: hooks.append("called"))

        updater.push_weights(worker_ids=worker_ids)

        assert nodes.told() == ranks and sorted(updater.ranks) == sorted(ranks), worker_ids
        assert updater.version == len(hooks) == bool(ranks), worker_ids
        assert updater.all_worker_ids() == [1, 2, 3]


def test_what_names_no_rank_is_refused_before_anything_is_sent(nodes: FakeNodes) -> None:
    updater = updater_of(nodes)
    for worker_ids, error, said in (
        (0, RuntimeError, "worker_rank must be at least 1, got 0"),
        ([1, 2, -1], RuntimeError, "worker_rank must be at least 1, got -1"),
        (4, ValueError, "no worker rank 4: ranks go from 1 to 3"),
        ([1, 2, 3, 4], ValueError, "no worker rank 4: ranks go from 1 to 3"),
        (True, ValueError, "a worker id is .*; expected a rank from 1 to 3"),
        ([[1]], ValueError, "a worker id is .*; expected a rank from 1 to 3"),
        (torch.device("cuda:1"), ValueError, "no worker is known to be on cuda:1: devices=None"),
    ):
        with pytest.raises(error, match=said):
            updater.push_weights(worker_ids=worker_ids)

    assert nodes.told() == [] and updater.ranks == []


def test_a_device_names_the_workers_that_are_on_it(nodes: FakeNodes) -> None:
    updater = updater_of(nodes, devices=["cuda:0", "cuda:1", "cuda:0"])

    updater.push_weights(worker_ids=torch.device("cuda:1"))
    updater.push_weights(worker_ids=[torch.device("cuda:0")])

    assert nodes.told() == [2, 1, 3]


# --- in which order


def test_all_ranks_receive_the_word_before_any_is_awaited(nodes: FakeNodes) -> None:
    updater_of(nodes).push_weights()

    assert nodes.events[:3] == [("set", f"NODE_{r}_in") for r in (1, 2, 3)]
    assert sorted(nodes.events[3:]) == [("get", f"NODE_{r}_out") for r in (1, 2, 3)]


def test_ranks_that_do_not_answer_cost_the_timeout_once(nodes: FakeNodes) -> None:
    nodes.answers = {1: None, 2: None}

    with pytest.raises(WeightUpdateError) as raised:
        updater_of(nodes, timeout_s=7.0).push_weights()

    assert nodes.now == pytest.approx(7.0, abs=0.01)
    assert raised.value.updated == (3,) and set(raised.value.failed) == {1, 2}


def test_the_trainer_says_that_it_is_alive_until_it_is_closed(nodes: FakeNodes) -> None:
    with updater_of(nodes):
        assert nodes.values["TRAINER_status"] == b"alive"

    assert "TRAINER_status" not in nodes.values


def test_an_answer_to_an_earlier_push_does_not_count(nodes: FakeNodes) -> None:
    nodes.values["NODE_1_out"] = b"updated"  # it came before
    nodes.values["NODE_2_done"] = b"an earlier push"  # it comes late
    nodes.answers = {1: None, 2: b"updated"}

    with pytest.raises(WeightUpdateError, match="rank 1: it has not answered within 5 s") as raised:
        updater_of(nodes, num_workers=2, timeout_s=5.0).push_weights()

    assert set(raised.value.failed) == {1, 2}


# --- what comes of it


def test_hooks_are_called_in_order_after_success(nodes: FakeNodes) -> None:
    updater, calls = updater_of(nodes), []
    for number in range(3):
        updater.register_post_hook(lambda number=number: calls.append((number, updater.version, len(nodes.told()))))

    updater.push_weights()

    assert calls == [(0, 1, 3), (1, 1, 3), (2, 1, 3)] and len(updater.post_hooks) == 3


def test_a_bad_status_is_a_runtime_error_that_says_who_has_the_weights(nodes: FakeNodes) -> None:
    nodes.answers = {2: b"failed: of another model"}
    updater = updater_of(nodes)
    updater.register_post_hook(lambda: pytest.fail("a hook was called"))
    updater.register_collector(collector := Collector())
    updater.register_post_hook(updater.increment_version)

    with pytest.raises(RuntimeError, match="Expected 'updated' but got status 'failed: of another model'") as raised:
        updater.push_weights()

    error = raised.value
    assert isinstance(error, WeightUpdateError) and isinstance(error, CommError)
    assert error.updated == (1, 3) and list(error.failed) == [2] and error.not_tried == ()
    assert "reached ranks [1, 3], and not [2]" in str(error)
    assert updater.version == 0 and collector.versions == 0


def test_ranks_behind_a_lost_store_are_not_tried(nodes: FakeNodes) -> None:
    nodes.lost_at = "NODE_2_in"

    with pytest.raises(
        WeightUpdateError, match=r"the store is lost \(Connection reset by peer\).*Not tried: \[3\]"
    ) as raised:
        updater_of(nodes).push_weights()

    error = raised.value
    assert (error.updated, list(error.failed), error.not_tried) == ((1,), [2], (3,))


def test_a_rank_that_cannot_be_sent_to_has_failed_and_its_word_is_deleted(nodes: FakeNodes) -> None:
    with pytest.raises(WeightUpdateError, match=r"rank 2: Connection closed by peer\.") as raised:
        updater_of(nodes, broken=[2]).push_weights()

    assert raised.value.updated == (1, 3)
    assert "NODE_2_in" not in nodes.values  # the word is taken back


def test_a_push_after_a_failure_is_a_newer_version_on_its_way(nodes: FakeNodes) -> None:
    nodes.answers = {1: b"busy"}
    updater = updater_of(nodes, num_workers=1)
    with pytest.raises(WeightUpdateError):
        updater.push_weights()
    nodes.answers = {}

    updater.push_weights()

    (_, first), (_, second) = updater.pushes
    assert second.weights.version > first.weights.version and second.push_id != first.push_id
    assert updater.version == 1


def test_batches_since_the_last_update_are_counted_by_rank(nodes: FakeNodes) -> None:
    updater = updater_of(nodes)
    assert updater._batches_since_weight_update == [0, 0, 0]
    for rank in (1, 2, 2, 3):
        updater.count_batch(rank)
    nodes.answers = {3: b"no"}

    with pytest.raises(WeightUpdateError):
        updater.push_weights(worker_ids=[2, 3])

    assert updater._batches_since_weight_update == [1, 0, 1]


# --- weights of every kind


def test_every_kind_of_weights_is_pushed_to_an_updater_of_another_kind() -> None:
    other = policy(1)
    kinds = [other, other.state_dict(), dict(other.state_dict()), tensordict_of(other)]
    expected = other.state_dict()
    for place, weights in enumerate(kinds):
        updater = updater_of(FakeNodes(), num_workers=1, weights=kinds[place - 1])

        updater.push_weights(weights)

        found = updater.sent
        assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_weights_of_another_model_are_refused_before_anything_is_sent(nodes: FakeNodes) -> None:
    updater, weight, bias = updater_of(nodes), torch.ones(2, 3), torch.ones(2)
    for weights, said in (
        ({"weight": torch.ones(2, 4), "bias": bias}, r"'weight' as float32 \[2, 4\]; expected float32 \[2, 3\]"),
        ({"weight": weight.double(), "bias": bias}, "'weight' as float64"),
        ({"weight": weight}, "lack 'bias'"),
        ({"weight": weight, "bias": bias, "scale": torch.ones(1)}, "have 'scale'"),
        ({}, "no numbers to send"),
        ("weights.pt", "cannot be taken from a str"),
    ):
        with pytest.raises(SchemaError, match=said):
            updater.push_weights(weights)

    assert nodes.told() == [] and updater.ranks == []


def test_nested_dicts_of_arrays_and_numbers_are_weights(nodes: FakeNodes) -> None:
    state = {"model": {"w": torch.ones(2)}, "returns": {"mean": np.zeros(3), "count": 2}}
    updater = updater_of(nodes, num_workers=1, weights=state)
    updater.push_weights()
    updater.push_weights(state)

    for _, push in updater.pushes:
        assert set(push.weights.state) == {"model/w", "returns/mean~array", "returns/count~int"}


def test_a_nested_dict_has_the_names_of_a_tensordict() -> None:
    """As TensorDict.to_dict() makes it."""
    model = nn.Sequential(policy())
    nested = {"0": dict(policy(1).state_dict())}
    updater = updater_of(FakeNodes(), num_workers=1, weights=tensordict_of(model))
    other = updater_of(FakeNodes(), num_workers=1, weights=nested)

    updater.push_weights(nested)
    other.push_weights(model)

    assert set(updater.sent) == {"0.weight", "0.bias"} and set(other.sent) == {"0/weight", "0/bias"}
    assert torch.equal(updater.sent["0.weight"], nested["0"]["weight"])


def test_a_push_copies_the_weights_that_the_policy_has_then(nodes: FakeNodes) -> None:
    model = policy()
    updater = updater_of(nodes, num_workers=1, weights=model)
    with torch.no_grad():
        model.weight.fill_(5.0)  # type: ignore[operator, union-attr]

    updater.push_weights()

    with torch.no_grad():
        model.weight.fill_(6.0)  # type: ignore[operator, union-attr]
    assert updater.sent["weight"].eq(5.0).all()


def test_weights_travel_as_bfloat16_if_asked(nodes: FakeNodes) -> None:
    exact, half = updater_of(nodes, num_workers=1), updater_of(nodes, num_workers=1, dtype="bfloat16")
    exact.push_weights()
    half.push_weights()

    own, rounded = policy().state_dict()["weight"], half.sent["weight"]
    for updater, dtype in ((exact, torch.float32), (half, torch.bfloat16)):
        assert from_bytes(updater.pushes[0][1].encoded)[0]["weight"].dtype == dtype
    assert rounded.dtype == torch.float32 and torch.equal(rounded, own.bfloat16().float())


# --- without sync


def test_without_sync_a_handle_comes_at_once_and_version_and_hooks_follow() -> None:
    nodes, hooks = FakeNodes(), threading.Event()
    updater = updater_of(nodes, num_workers=2, sync=False, is_held=True)
    updater.count_batch(1)
    updater.register_post_hook(hooks.set)

    handle = updater.push_weights()

    assert handle is not None and not handle.done()
    assert (nodes.told(), updater.version, updater._batches_since_weight_update) == ([1, 2], 0, [1, 0])
    updater.release.set()
    handle.wait(60.0)
    assert handle.done() and hooks.is_set()
    assert (updater.version, updater._batches_since_weight_update) == (1, [0, 0])


def test_a_handle_raises_what_a_push_with_sync_does() -> None:
    updater = updater_of(FakeNodes({2: b"no"}), num_workers=2, sync=False, is_held=True)
    updater.register_post_hook(lambda: pytest.fail("a hook was called"))

    handle = updater.push_weights()
    updater.release.set()

    assert handle is not None
    for _ in range(2):  # as often as it is asked
        with pytest.raises(WeightUpdateError, match="Expected 'updated' but got status 'no'") as raised:
            handle.wait(60.0)
    assert raised.value.updated == (1,) and updater.version == 0


def test_a_second_push_waits_for_the_answers_to_the_first() -> None:
    nodes = FakeNodes()
    updater = updater_of(nodes, num_workers=2, sync=False, is_held=True)
    first = updater.push_weights()
    seconds: list[Any] = []
    second = threading.Thread(target=lambda: seconds.append(updater.push_weights()))

    second.start()
    second.join(0.05)
    told_meanwhile = nodes.told()
    updater.release.set()
    second.join(60.0)
    seconds[0].wait(60.0)

    assert told_meanwhile == [1, 2] and nodes.told() == [1, 2, 1, 2]
    assert first is not None and first.done() and updater.version == 2


def test_a_hook_may_push_again() -> None:
    updater = updater_of(FakeNodes(), num_workers=1, sync=False)
    more: list[Any] = []

    def push_once_more() -> None:
        if updater.version == 1:
            more.append(updater.push_weights())

    updater.register_post_hook(push_once_more)

    handle = updater.push_weights()

    assert handle is not None
    handle.wait(60.0)
    more[0].wait(60.0)
    assert updater.version == 2


def test_nothing_is_pushed_after_close(nodes: FakeNodes) -> None:
    updater = updater_of(nodes)
    updater.close()
    updater.close()

    with pytest.raises(CommError, match="after the updater was closed"):
        updater.push_weights()


# --- collectors


def test_a_push_leaves_the_version_of_a_collector_to_who_wants_it_counted() -> None:
    updater, collector = updater_of(FakeNodes()), Collector()
    updater.register_collector(collector)
    assert updater.collector is collector and updater.collectors == [collector]

    updater.push_weights()
    assert collector.versions == 0 and updater.version == 1
    updater.register_post_hook(updater.increment_version)
    updater.push_weights()

    assert collector.versions == 1 and updater.version == 2


def test_a_second_collector_is_refused_unless_many_are_asked_for() -> None:
    updater, first, second = updater_of(FakeNodes()), Collector(), Collector()
    updater.register_collector(first)
    updater.register_collector(first)  # the same is no other
    with pytest.raises(RuntimeError, match="has a collector already"):
        updater.register_collector(second)
    assert updater.collector is first
    updater.register_collector(second, many=True)

    updater.increment_version()

    assert updater.collectors == [first, second] and (first.versions, second.versions) == (1, 1)


def test_a_collector_is_not_kept_alive_and_skipped_when_it_is_gone() -> None:
    updater, collector = updater_of(FakeNodes()), Collector()
    updater.register_collector(collector)
    del collector

    updater.increment_version()

    assert updater.collector is None and updater.collectors is None
    updater.register_collector(other := Collector())
    assert updater.collector is other


# --- the base, and what does not fit


class Local(WeightUpdaterBase):
    """Updater as a user writes one, without a call of __init__."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, Any]] = []

    def _get_server_weights(self) -> Any:
        return {"w": 1}

    def _maybe_map_weights(self, server_weights: Any) -> Any:
        return {name.upper(): value for name, value in server_weights.items()}

    def _sync_weights_with_worker(self, worker_id: Any = None, server_weights: Any = None) -> None:
        self.done.append((worker_id, server_weights))

    def all_worker_ids(self) -> list[int]:
        return [4, 5]


def test_a_subclass_says_how_weights_are_found_mapped_and_brought() -> None:
    updater, calls = Local(), []
    updater.register_post_hook(lambda: calls.append(len(updater.done)))

    updater.push_weights()
    updater.update_weights({"w": torch.ones(1)}, worker_ids=5)
    updater({"w": torch.ones(1)}, 4)

    assert updater.done[:2] == [(4, {"W": 1}), (5, {"W": 1})]
    assert updater.done[2][0] == 5 and torch.equal(updater.done[2][1]["W"], torch.ones(1))
    assert calls == [2, 3, 4] and updater.done[3][0] == 4


def test_the_base_leaves_to_subclasses_what_it_cannot_know() -> None:
    base = WeightUpdaterBase()

    assert base.all_worker_ids() is None and base.collector is None and base.post_hooks == []
    assert base.init(1, lr=2) is None and WeightUpdaterBase.from_policy(policy()) is None
    base.increment_version()  # of no collector
    with pytest.raises(NotImplementedError, match="has no weights of its own"):
        base.push_weights()


def test_arguments_that_mean_nothing_are_refused() -> None:
    for change, said in (
        (dict(num_workers=0), "num_workers is 0"),
        (dict(timeout_s=float("nan")), "timeout_s is nan"),
        (dict(devices=["cpu"]), "1 devices for 3 workers"),
        (dict(dtype="int8"), "the dtype of weights is 'int8'"),
    ):
        with pytest.raises((SchemaError, CommError), match=said):
            updater_of(FakeNodes(), **change)
    with pytest.raises(ValueError, match="has to be callable"):
        updater_of(FakeNodes()).register_post_hook(3)  # type: ignore[arg-type]
    with pytest.raises(CommError, match="a list is no store"):
        DistributedWeightUpdater([], policy(), 1, True)


def test_one_worker_can_be_brought_weights_without_hooks(nodes: FakeNodes) -> None:
    updater = updater_of(nodes)
    updater.register_post_hook(lambda: pytest.fail("a hook was called"))

    updater._sync_weights_with_worker(worker_id=2, server_weights=policy(1))  # TorchRL's name

    assert nodes.told() == [2] and updater.from_policy(policy()) is None
