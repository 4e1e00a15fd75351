"""Inference servers behind a proxy: what happens to clients when servers come and go, and what servers report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version
from ding_like.errors import CommError
from ding_like.pipeline.seed.servers import InferenceServer
from tests.contracts.policy_cases import ACTING, make
from tests.pipeline.seed.inference_rig import FIRST, Rig, lanes, remote, rig
from tests.pipeline.seed.test_remote_actors import assert_equal
from tests.support import wait_until

DQN, R2D2, RAINBOW = (ACTING[name] for name in ("dqn", "r2d2", "rainbow"))


def steps(actor: Any, begin: int, end: int, *, num_lanes: int = 3) -> list[dict[str, np.ndarray]]:
    """Act in steps `begin` to `end` of a made-up env, in which episodes end now and then."""
    found = []
    for step in range(begin, end):
        rng = np.random.default_rng(step)
        obs = rng.normal(size=(num_lanes, 3)).astype(np.float32)
        is_first = rng.random(num_lanes) < 0.2 if step else np.ones(num_lanes, bool)
        found.append(actor.act(obs, lanes=lanes(num_lanes), is_first=is_first, rng=rng, eps=0.2))
    return found


def local_steps(case: Any, end: int) -> list[dict[str, np.ndarray]]:
    return steps(make(case, seed=1).collect_mode.actor, 0, end)


def remote_actor(run: Rig, case: Any, **client: Any) -> tuple[Any, Any]:
    """Return an actor whose network is elsewhere, and its client."""
    policy, found = make(case, seed=2), run.client(**client)
    return remote(policy, found), found


@pytest.mark.parametrize("case", [R2D2, RAINBOW], ids=["memory", "noise"])
def test_nothing_is_lost_with_a_server(case):
    with rig(lambda: make(case, seed=3)) as run:
        run.publish(make(case, seed=1))
        ends = [run.serve(name="server1")]
        actor, _ = remote_actor(run, case)
        acted = steps(actor, 0, 5)
        for number in (2, 3):
            ends.append(run.serve(name=f"server{number}"))
            ends[-2]()
            acted += steps(actor, 5 * (number - 1), 5 * number)

    assert_equal(acted, local_steps(case, 15))


def test_an_actor_that_is_reset_or_loaded_goes_on_from_there():
    local, expected = make(R2D2, seed=1).collect_mode.actor, []
    with rig(lambda: make(R2D2, seed=3)) as run:
        run.publish(make(R2D2, seed=1))
        run.serve()
        actor, _ = remote_actor(run, R2D2)
        acted = []
        for found, one in ((acted, actor), (expected, local)):
            found += steps(one, 0, 4)
            saved = one.state_dict()
            one.reset(np.array([1]))
            found += steps(one, 4, 6)
            one.load_state_dict(saved)
            found += steps(one, 6, 8)

    assert_equal(acted, expected)


def test_a_new_run_of_an_actor_begins_with_the_initial_state():
    with rig(lambda: make(R2D2, seed=3)) as run:
        run.publish(make(R2D2, seed=1))
        run.serve()
        steps(remote_actor(run, R2D2, run_id=1)[0], 0, 4)
        acted = steps(remote_actor(run, R2D2, run_id=2)[0], 0, 4)

    assert_equal(acted, local_steps(R2D2, 4))


def test_replies_say_which_weights_answered():
    with rig(lambda: make(DQN, seed=3)) as run:
        run.publish(make(DQN, seed=1))
        run.serve()
        actor, client = remote_actor(run, DQN)
        steps(actor, 0, 2)
        assert client.take_version() == FIRST
        run.publish(make(DQN, seed=4), Version(0, 9))
        client.least = Version(0, 9)
        acted = steps(actor, 2, 4)

    assert client.take_version() == Version(0, 9)
    assert_equal(acted, steps(make(DQN, seed=4).collect_mode.actor, 2, 4))


def test_weights_that_never_come_are_an_error_that_names_them():
    with rig(lambda: make(DQN, seed=3)) as run:
        run.publish(make(DQN, seed=1))
        run.serve(hold_s=0.2)
        actor, client = remote_actor(run, DQN, request_timeout_s=0.4, patience_s=1.9)
        client.least = Version(7, 0)
        with pytest.raises(CommError, match=r"has weights \(0, 1\), and waited 0.2 s for \(7, 0\)"):
            steps(actor, 0, 1)


def test_a_server_reports_what_it_does():
    with rig(lambda: make(DQN, seed=3)) as run:
        run.publish(make(DQN, seed=1))
        run.serve()
        actor, _ = remote_actor(run, DQN)
        steps(actor, 0, 10)
        wait_until(lambda: run.rows.sources()["server1"].stats.get("requests") == 10)
        stats = dict(run.rows.sources()["server1"].stats)

    assert stats["observations"] == 30 and stats["batches"] == 10 and stats["mean_batch"] == 3.0
    assert 0 < stats["p50_ms"] <= stats["p99_ms"]
    assert (stats["version"], stats["garbled"], stats["queue"]) == ([0, 1], 0, 0)


@pytest.fixture(autouse=True)
def keeps_denormals() -> Iterator[None]:
    """Undo what a server that runs in the test's own thread sets there."""
    yield
    torch.set_flush_denormal(False)


def test_no_weights_at_all_are_an_error_that_says_who_publishes():
    with rig(lambda: make(DQN, seed=3)) as run:
        settings = run.settings(start_timeout_s=0.5)
        with pytest.raises(CommError, match="sent no weights within 0.5 s"):
            InferenceServer(settings).serve(threading.Event())
        reported = run.rows.errors()

    assert [source for source, _ in reported] == ["server1"] and "sent no weights" in reported[0][1]


@pytest.mark.slow
def test_nothing_is_lost_with_a_server_process_that_is_killed():
    with rig(partial(make, R2D2, seed=3)) as run:
        run.publish(make(R2D2, seed=1))
        servers = [run.start_process(f"server{number}") for number in (1, 2)]
        actor, _ = remote_actor(run, R2D2)
        acted = steps(actor, 0, 5)
        busy: list[int] = []
        wait_until(
            lambda: busy.extend(n for n in (1, 2) if run.rows.sources()[f"server{n}"].stats.get("requests")) or busy
        )
        servers.pop(busy[0] - 1).kill()
        acted += steps(actor, 5, 10)
        servers[0].terminate()
        servers[0].join(60)

    assert servers[0].exitcode == 0
    assert_equal(acted, local_steps(R2D2, 10))
