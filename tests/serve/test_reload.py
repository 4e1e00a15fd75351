"""Newer checkpoints are taken while requests are under way; what cannot be served leaves the old one where it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch

from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import CheckpointError
from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
from ding_like.utils.checkpoint import load_state, save_state
from tests.serve.runs import Run, ask, question, serving

QAC = dict(model=dict(actor_head_hidden_size=8, critic_head_hidden_size=8))
OBS = [0.5, -1.0, 2.0]
BEST = "ckpt_best.pth.tar"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "exp", "sac", QAC, action="box")
    made.save(1)
    return made


@contextmanager
def served_policy(run: Run, which: str = "newest") -> Iterator[ServedPolicy]:
    """Yield a policy that looks for newer checkpoints when `look` is called."""
    choice = CheckpointChoice(run.folder, which)
    with ServedPolicy(Blueprint(run.folder), choice, reload_s=600.0) as served:
        yield served


def action_of(run: Run, train_iter: int) -> Any:
    """Return what the weights of an iteration do, by a policy of its own."""
    actor = adapt_eval_mode(run.policy(train_iter).eval_mode).actor
    rows = np.array([OBS], np.float32)
    first = np.ones(1, bool)
    return actor.act(rows, lanes=np.arange(1), is_first=first, rng=np.random.default_rng(0))["action"][0]


def acted(served: ServedPolicy) -> tuple[int, Any]:
    answer = served.act(question(OBS))
    return answer.version["train_iter"], answer.action[0]


def test_a_newer_checkpoint_is_taken_whole_with_its_version(run: Run) -> None:
    with served_policy(run) as served:
        before = served.act(question(OBS))
        run.save(2)
        took = served.look()
        after = served.act(question(OBS))

    assert took
    assert before.version == {"number": 1, "file": "iteration_1.pth.tar", "train_iter": 1, "env_step": 8}
    assert after.version == {"number": 2, "file": "iteration_2.pth.tar", "train_iter": 2, "env_step": 16}
    np.testing.assert_array_equal(before.action[0], action_of(run, 1))
    np.testing.assert_array_equal(after.action[0], action_of(run, 2))


def test_the_newest_is_that_of_most_updates_whatever_its_name_and_age(run: Run) -> None:
    run.save(30)
    run.save(7)
    run.save(40, name=BEST)

    with served_policy(run) as served:
        first = acted(served)[0]
        run.save(35)
        stays = served.look()
        run.save(50, name=BEST)
        goes = served.look()
        last = acted(served)[0]

    assert (first, stays, goes, last) == (40, False, True, 50)


def test_the_newest_of_a_run_is_taken_where_the_one_after_it_is_torn(run: Run) -> None:
    whole = run.save(9).read_bytes()

    with served_policy(run) as served:
        run.save(20)
        run.put(whole[:-300], "iteration_30.pth.tar")
        served.look()

        assert acted(served)[0] == 20


def test_the_best_is_that_of_the_run_even_if_it_had_fewer_updates(run: Run) -> None:
    run.save(40, name=BEST)

    with served_policy(run, "best") as served:
        first = served.act(question(OBS)).version
        run.save(100)
        ignored = served.look()
        run.save(20, name=BEST)
        served.look()
        second = served.act(question(OBS)).version

    assert not ignored
    assert (first["train_iter"], second["train_iter"]) == (40, 20)
    assert second["number"] == first["number"] + 1


def test_one_file_is_taken_again_when_it_is_replaced(run: Run) -> None:
    path = run.save(3, name="mine.pth.tar")

    with served_policy(run, str(path)) as served:
        same = served.look()
        run.save(4, name="mine.pth.tar")
        served.look()

        assert not same and acted(served)[0] == 4


def test_a_checkpoint_without_its_number_of_updates_is_served_as_such(run: Run) -> None:
    state = load_state(run.save(3))
    save_state(run.folder / "ckpt" / BEST, {"model": state["model"]})

    with served_policy(run, "best") as served:
        version = served.act(question(OBS)).version

    assert version == {"number": 1, "file": BEST, "train_iter": None, "env_step": None}


Spoil = Callable[[Run, Path], object]


def of_bytes(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda run, path: run.put(change(path.read_bytes()), path.name)


def of_state(change: Callable[[Any], Any]) -> Spoil:
    return lambda run, path: save_state(path, change(load_state(path)))


def of_tensor(change: Callable[[torch.Tensor], torch.Tensor], name: str = "") -> Spoil:
    """Change the named tensor of the model, else its first one."""
    return of_state(
        lambda state: {**state, "model": {k: change(v) if k == (name or next(iter(state["model"]))) else v
                                          for k, v in state["model"].items()}}
    )  # fmt: skip


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def one_nan(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[0] = torch.nan
    return changed


def make_folder(run: Run, path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILERS: dict[str, Spoil] = {
    "torn": of_bytes(lambda data: data[:-200]),
    "flipped": of_bytes(flipped),
    "foreign": of_bytes(lambda data: b"nothing of ours"),
    "pickled": lambda run, path: torch.save({"model": Path("/"), "last_iter": 9}, path),
    "of another model": of_state(lambda state: {**state, "model": dict(list(state["model"].items())[:-1])}),
    "of another shape": of_tensor(lambda tensor: tensor[:1]),
    "of another dtype": of_tensor(lambda tensor: tensor.double()),
    "not finite": of_tensor(one_nan),
    "not finite in the critic": of_tensor(one_nan, "critic.q.biases.2"),
    "without model": of_state(lambda state: {"last_iter": 9}),
    "of texts": of_state(lambda state: {"model": {"a": "b"}, "last_iter": 9}),
    "a folder": make_folder,
}


@pytest.mark.parametrize("fault", SPOILERS)
def test_a_checkpoint_that_cannot_be_served_keeps_the_old_one_and_is_logged_once(
    fault: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with served_policy(run) as served, caplog.at_level(logging.INFO):
        before = acted(served)
        SPOILERS[fault](run, run.save(9))
        looks = [served.look() for _ in range(3)]
        health = served.health()
        during = acted(served)
        run.save(10)
        served.look()
        after = served.health()

    assert looks == [False] * 3 and during[0] == before[0] == 1
    np.testing.assert_array_equal(during[1], before[1])
    assert health["reload"]["fault"]["file"] == "iteration_9.pth.tar"
    assert len([r for r in caplog.records if r.levelno == logging.WARNING and "Serving goes on" in r.message]) == 1
    assert after["reload"]["fault"] is None and after["version"]["train_iter"] == 10


def test_a_checkpoint_that_was_deleted_is_logged_and_served_on(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    path = run.save(5, name=BEST)

    with served_policy(run, "best") as served:
        path.unlink()
        looks = [served.look() for _ in range(3)]
        fault = served.health()["reload"]["fault"]
        during = acted(served)[0]
        run.save(6, name=BEST)
        back = served.look()

        assert looks == [False] * 3 and during == 5 and "was deleted" in fault["message"]
        assert len([r for r in caplog.records if "was deleted" in r.message]) == 1
        assert back and served.health()["reload"]["fault"] is None


def test_an_unexpected_fault_does_not_end_the_watch(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make, looked = Blueprint.make, threading.Semaphore(0)

    def breaks(self: Any, *args: Any, **kwargs: Any) -> Any:
        looked.release()
        if len(failed) < 2:
            failed.append(1)
            raise ZeroDivisionError("unheard of")
        return make(self, *args, **kwargs)

    failed: list[int] = []
    blueprint, choice = Blueprint(run.folder), CheckpointChoice(run.folder, "newest")
    with ServedPolicy(blueprint, choice, reload_s=0.02) as served:
        monkeypatch.setattr(Blueprint, "make", breaks)
        run.save(2)
        for _ in range(3):
            assert looked.acquire(timeout=60)
    took = acted(served)[0]

    assert took == 2
    assert len([r for r in caplog.records if "unheard of" in r.message]) == 1


def test_nothing_to_serve_is_an_error_at_the_start(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "sac", QAC, action="box")

    with pytest.raises(CheckpointError, match="this run has saved none yet"):
        CheckpointChoice(run.folder, "newest")
    with pytest.raises(CheckpointError, match="has not been evaluated yet. --checkpoint newest"):
        CheckpointChoice(run.folder, "best")
    (run.folder / "result.json").touch()
    with pytest.raises(CheckpointError, match="its files were moved or deleted; put one back"):
        CheckpointChoice(run.folder, "best")
    with pytest.raises(CheckpointError, match="takes best, newest or a file"):
        CheckpointChoice(run.folder, "oldest")


def test_a_torn_first_checkpoint_is_an_error_at_the_start(run: Run) -> None:
    SPOILERS["torn"](run, run.save(1))

    with pytest.raises(CheckpointError, match="torn or damaged"):
        ServedPolicy(Blueprint(run.folder), CheckpointChoice(run.folder, "newest"))


def test_requests_are_answered_during_reloads_and_name_the_version_of_their_action(run: Run) -> None:
    clients, each, newer = 3, 40, (2, 3)
    expected = {train_iter: action_of(run, train_iter) for train_iter in (1, *newer)}
    reached = {train_iter: threading.Event() for train_iter in expected}

    def client(number: int) -> list[int]:
        versions = []
        with requests.Session() as session:
            while len(versions) < each or not reached[newer[-1]].is_set():
                rows = [OBS] * 4 if number % 2 else OBS
                response = session.post(f"{server.url}/act", json={"obs": rows}, timeout=60)
                assert response.status_code == 200, response.text
                answer = response.json()
                version = answer["version"]["train_iter"]
                for action in answer["action"] if number % 2 else [answer["action"]]:
                    np.testing.assert_allclose(action, expected[version], rtol=1e-5)
                versions.append(version)
                reached[version].set()
                assert len(versions) < 20_000, "the newest checkpoint is never served"
        return versions

    with serving(run, reload_s=0.02) as server, ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(client, number) for number in range(clients)]
        for train_iter in newer:
            assert reached[train_iter - 1].wait(60)
            run.save(train_iter)
        seen = [future.result(60) for future in futures]
        found = ask(server.url, OBS)["version"]

    assert found["number"] == 3 and found["train_iter"] == 3
    assert sum(map(len, seen)) >= clients * each
    for versions in seen:
        assert versions == sorted(versions), "a version never goes back"
    assert set(seen[0]) | set(seen[1]) | set(seen[2]) == {1, 2, 3}


@pytest.mark.parametrize("before", ["read", "act"])
def test_an_answer_is_of_one_version_even_if_the_weights_change_meanwhile(
    before: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_policy(run) as served:
        agent = served.agent
        method = getattr(agent, before)

        def reload_first(*args: Any) -> Any:
            run.save(2)
            assert served.look()
            return method(*args)

        monkeypatch.setattr(agent, before, reload_first)
        answer = served.act(question([OBS, OBS]))

    assert answer.version["train_iter"] == 1
    for action in answer.action:
        np.testing.assert_allclose(action, action_of(run, 1), rtol=1e-5)
