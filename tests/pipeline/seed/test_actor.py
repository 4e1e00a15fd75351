from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.comm.workers.processes import ChildThread
from ding_like.errors import EnvError
from ding_like.pipeline.seed.actor import Actor, ActorSettings
from ding_like.pipeline.settings import Config
from tests.comm.workers.scripted_children import is_running
from tests.pipeline.seed.scripted_env import ScriptedEnv, normalised
from tests.pipeline.seed.stage import SOON_S, Stage, end_thread, kinds, scripted_factories, stage
from tests.support import wait_until


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Stage]:
    with stage(scripted_factories(tmp_path)) as found:
        yield found


@pytest.fixture
def in_threads() -> Iterator[Any]:
    """Return what runs an actor's threads in this process."""
    with ExitStack() as opened:

        def run(at: Stage, **settings: Any) -> ChildThread:
            actor = ChildThread(Actor(ActorSettings(at.agent, at.rows.endpoint, **settings)))
            actor.start()
            opened.callback(end_thread, actor)
            return actor

        yield run


def told(actor: ChildThread, *, until: str) -> list[Any]:
    """Return what an actor tells, up to a message of a kind."""
    found: list[Any] = []
    wait_until(lambda: bool(found.extend(actor.take_messages()) or until in kinds(found)))
    return found


def seeds_of(batch: Any) -> set[int]:
    return set(batch["obs"][:, 1].astype(int).tolist())


def test_each_thread_says_hello_under_its_number_and_brings_the_rows_of_its_own_envs(at: Stage, in_threads):
    in_threads(at, threads=(3, 4))

    assert at.state("actor3").role == "actor"
    came = {name: at.collect(name) for name in ("actor3", "actor4")}

    assert [len(each.segment.batch) for each in came.values()] == [8, 8]
    assert [each.segment.env_steps for each in came.values()] == [8, 8]
    assert seeds_of(came["actor3"].segment.batch).isdisjoint(seeds_of(came["actor4"].segment.batch))


def test_rows_say_which_weights_acted(at: Stage, in_threads):
    in_threads(at)
    assert at.collect("actor1").segment.version == Version(1, 0)

    at.publish(Version(1, 5))

    assert at.collect("actor1", newest=Version(1, 5)).segment.version == Version(1, 5)


def test_the_first_steps_of_a_run_need_no_server(tmp_path: Path, in_threads):
    with stage(scripted_factories(tmp_path, random_collect_size=40), serves=False) as at:
        actor = in_threads(at)

        came = at.collect("actor1", newest=Version(1, 0), env_step=0)

        assert len(came.segment.batch) == 8
        assert came.segment.version == Version(1, 0)
        end_thread(actor)


def test_a_thread_that_fails_starts_anew_under_the_next_run_id_while_others_go_on(at: Stage, in_threads, tmp_path):
    actor = in_threads(at, threads=(1, 2))
    before = at.collect("actor1")
    run_id = at.state("actor1").run_id
    (tmp_path / "raise").touch()
    at.give("actor1")

    messages = told(actor, until="lost")
    (tmp_path / "raise").unlink()
    messages += told(actor, until="back")

    lost = next(message for message in messages if message["kind"] == "lost")
    assert (lost["worker"], lost["type"]) == ("actor1", "EnvError")
    assert "the door is stuck" in lost["text"]
    ((source, text),) = at.rows.errors()
    assert source == "actor1"
    assert "the door is stuck" in text and "Traceback" in text
    assert "ready" in kinds(messages)
    after = at.collect("actor1")
    assert at.state("actor1").run_id > run_id
    assert seeds_of(before.segment.batch).isdisjoint(seeds_of(after.segment.batch))
    assert len(at.collect("actor2").segment.batch) == 8


def test_a_budget_that_is_spent_is_the_end_of_a_thread(at: Stage, in_threads, tmp_path):
    actor = in_threads(at, failure=FailurePolicy(restarts_per_10min=0))
    told(actor, until="ready")
    (tmp_path / "raise").touch()
    at.give("actor1")

    assert kinds(told(actor, until="failed")) == ["lost", "gone", "failed"]
    assert isinstance(actor.error(), EnvError)


def test_what_a_thread_cannot_begin_for_ends_the_actor_at_once(at: Stage, in_threads, tmp_path):
    (tmp_path / "raise-make").touch()
    actor = in_threads(at, threads=(1, 2))

    messages = told(actor, until="failed")

    assert kinds(messages) == ["failed"]
    assert "there is no door" in str(actor.error())


def test_threads_end_once_the_driver_wants_no_more(at: Stage, in_threads, tmp_path):
    actor = in_threads(at, threads=(1, 2))
    told(actor, until="ready")

    at.rows.stop_all()

    assert kinds(told(actor, until="done")) == ["done"]
    wait_until(lambda: not actor.is_alive())
    assert actor.exitcode == 0
    assert len(list(tmp_path.glob("closed-*"))) >= 4  # two envs of each; another was opened to look at its spaces


def test_a_request_without_an_answer_does_not_keep_a_thread_from_ending(tmp_path: Path, in_threads):
    with stage(scripted_factories(tmp_path), serves=False) as at:
        actor = in_threads(at)
        at.give("actor1")
        wait_until(lambda: bool(at.state("actor1").orders))
        closed = len(list(tmp_path.glob("closed-*")))

        actor.terminate()
        wait_until(lambda: not actor.is_alive())

        assert actor.exitcode == 0
        assert len(list(tmp_path.glob("closed-*"))) == closed + 2


@pytest.mark.slow
def test_a_silent_driver_is_given_up_after_patience_s(at: Stage, in_threads):
    actor = in_threads(at, patience_s=0.5)
    told(actor, until="ready")

    at.rows.close()

    lost = told(actor, until="lost")[-1]
    assert "has not answered actor1" in lost["text"]


def test_what_envs_are_normalised_by_comes_with_orders(tmp_path: Path, in_threads):
    with stage(scripted_factories(tmp_path, env=normalised)) as at:
        in_threads(at)
        observed = at.collect("actor1").segment.observed
        assert observed["0.ObsNorm/count"] > 0

        far = {"count": np.array(1e6), "mean": np.full(2, 1e5), "m2": np.full(2, 1e6)}
        at.rows.use_statistics({f"0.ObsNorm/{name}": value for name, value in far.items()})
        at.collect("actor1")
        rows = at.collect("actor1").segment.batch

        assert (rows["obs"] == -10.0).all()  # all that was seen is far below the mean: it is clipped


def test_the_documents_signature_makes_the_same_actor(at: Stage, tmp_path: Path):
    environment = partial(ScriptedEnv, folder=str(tmp_path / "elsewhere"))

    made = Actor(at.agent, Config(actor_threads=3), environment, 5001, 5002)

    assert made.settings.threads == (1, 2, 3)
    assert (made.settings.endpoint, made.settings.clients) == ("tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002")
    assert made.settings.agent.env_setting[0] is environment
    assert made.daemon


def test_later_starts_draw_numbers_of_their_own(at: Stage):
    settings = [ActorSettings(at.agent, "ipc://x", attempt=attempt) for attempt in (1, 2)]

    runs = [settings[0].first_run_id, settings[0].first_run_id + 1, settings[1].first_run_id]
    made = [settings[0].agent_of(run_id) for run_id in runs]

    assert runs == sorted(runs)
    assert made[0] == at.agent
    assert len({each.lane_seed(1) for each in made}) == 3


# --- in processes


@pytest.fixture
def process(at: Stage) -> Iterator[Actor]:
    actor = Actor(ActorSettings(at.agent, at.rows.endpoint, threads=(1, 2)))
    actor.start()
    yield actor
    actor.end()


@pytest.mark.slow
def test_sigterm_ends_an_actor_process_with_its_envs_closed(at: Stage, process: Actor, tmp_path: Path):
    process.wait_ready(timeout_s=SOON_S)
    assert len(at.collect("actor2").segment.batch) == 8

    process.terminate()
    process.join(60.0)

    assert process.exitcode == 0
    assert len(list(tmp_path.glob(f"closed-{process.pid}-*"))) == 4


@pytest.mark.slow
def test_an_env_that_hangs_does_not_keep_an_actor_process(at: Stage, process: Actor, tmp_path: Path):
    process.wait_ready(timeout_s=SOON_S)
    (tmp_path / "hang").touch()
    at.give("actor1")
    wait_until((tmp_path / "hanging").exists)

    process.terminate()
    process.join(60.0)

    assert process.exitcode == 1


@pytest.mark.slow
def test_a_killed_actor_leaves_no_env_processes(tmp_path: Path):
    with stage(scripted_factories(tmp_path, manager="subprocess")) as at:
        before = set(tmp_path.glob("made-*"))
        actor = Actor(ActorSettings(at.agent, at.rows.endpoint))
        actor.start()
        try:
            actor.wait_ready(timeout_s=SOON_S)
            pids = [int(path.name.partition("-")[2]) for path in set(tmp_path.glob("made-*")) - before]
            assert pids and actor.pid not in pids

            os.kill(actor.pid, signal.SIGKILL)
            actor.join(60.0)

            wait_until(lambda: not any(map(is_running, pids)))
        finally:
            actor.end()
