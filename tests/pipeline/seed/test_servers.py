"""Inference servers: whole processes, and one forward pass for several clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import flatten_state
from ding_like.comm.zmq.inference import Refusal, Reply, Request, inputs_of
from ding_like.errors import CommError
from ding_like.pipeline.seed.servers import InferenceServer, Network
from ding_like.rl_utils.exploration import factorised_noise
from tests.contracts.policy_cases import ACTING, OBS, make
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


DQN, R2D2, RAINBOW = ACTING["dqn"], ACTING["r2d2"], ACTING["rainbow"]


def obs(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, OBS)).astype(np.float32)


def request(client: str, values: Any, *, columns: dict | None = None, state: dict | None = None) -> Request:
    return Request(client, 1, 1, None, inputs_of(values, columns or {}, state or {}))


def state(rows: int) -> dict[str, np.ndarray]:
    initial = make(R2D2, seed=1).collect_mode.actor.forward.initial_state
    return {name: np.stack([value] * rows) for name, value in initial.items()}


def role(case: Any) -> Network:
    return Network(make(case, seed=1))


@pytest.mark.parametrize("case", [DQN, RAINBOW, ACTING["qmix"], ACTING["sac"], ACTING["dqn autograd"]])
def test_several_clients_are_answered_as_each_alone_to_rounding(case):
    together, alone = role(case), role(case)
    policy = make(case, seed=1)
    asked = []
    for number, rows in enumerate((1, 3, 2)):
        rng = np.random.default_rng(number)
        values = obs(rows, number)
        if case.policy == "qmix":
            values = {"agents": rng.normal(size=(rows, 2, OBS)), "state": rng.normal(size=(rows, 5))}
            values = {key: value.astype(np.float32) for key, value in values.items()}
        size = getattr(policy.get_attribute("model"), "noise_size", 0)
        columns = {"noise": factorised_noise(rows, size, rng=rng)} if size else {}
        asked.append(request(f"actor{number}", values, columns=columns))

    answers = together.answer(asked)

    for each, answer in zip(asked, answers, strict=True):
        (expected,) = alone.answer([each])
        np.testing.assert_allclose(answer.output, expected.output, rtol=1e-5, atol=1e-6)
        assert len(answer.output) == each.rows


def test_recurrent_state_of_several_clients_moves_as_that_of_each_alone():
    together, alone = role(R2D2), role(R2D2)
    states = [state(2)] * 3
    for number in range(1, 5):
        asked = [request(f"actor{k}", obs(2, 10 * number + k), state=states[k]) for k in range(3)]
        answers = together.answer(asked)
        for each, answer in zip(asked, answers, strict=True):
            (expected,) = alone.answer([each])
            np.testing.assert_allclose(answer.output, expected.output, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(answer.state["h"], expected.state["h"], rtol=1e-4, atol=1e-6)
        states = [dict(answer.state) for answer in answers]
    assert not np.allclose(states[0]["h"], state(2)["h"])


def test_a_refused_request_stops_no_other():
    wrong, without, right = role(R2D2).answer(
        [
            request("actor1", obs(2), state={"h": np.zeros((2, 3), np.float32)}),
            request("actor2", obs(2)),
            request("actor3", obs(2), state=state(2)),
        ]
    )

    for refused in (wrong, without):
        assert isinstance(refused, Refusal) and "recurrent state of shapes" in refused.text and refused.is_final
    assert isinstance(right, Reply)


def test_state_for_a_network_without_any_is_refused():
    (answer,) = role(DQN).answer([request("actor1", obs(1), state={"h": obs(1)})])

    assert isinstance(answer, Refusal) and "expected {}" in answer.text


def test_observations_that_the_network_does_not_take_are_refused_beside_others():
    wrong = np.zeros((2, OBS + 1), np.float32)

    first, second = role(DQN).answer([request("actor1", wrong), request("actor2", obs(2))])

    assert isinstance(first, Refusal) and "does not take 'obs' float32[4]" in first.text
    assert isinstance(second, Reply)


def test_a_network_that_breaks_is_an_error_of_the_server():
    made = role(DQN)
    made.answer([request("actor1", obs(1))])

    def broken(*_: object) -> None:
        raise RuntimeError("the GPU fell off the bus")

    made._forward = broken

    with pytest.raises(RuntimeError, match="fell off"):
        made.answer([request("actor1", obs(1))])


def test_replies_keep_their_numbers_when_the_memory_of_a_batch_is_used_again():
    made = role(ACTING["ddpg"])
    (first,) = made.answer([request("actor1", obs(2, 1))])
    kept = first.output.copy()

    made.answer([request("actor1", obs(2, 2))])

    np.testing.assert_array_equal(first.output, kept)


def test_weights_are_loaded_when_they_are_newer():
    made, learned = role(DQN), make(DQN, seed=2)
    weights = flatten_state(learned.collect_mode.state_dict())

    made.take(Weights("policy", Version(1, 4), weights))
    (answer,) = made.answer([request("actor1", obs(2))])
    made.take(Weights("policy", Version(1, 3), flatten_state(make(DQN, seed=3).collect_mode.state_dict())))
    (after,) = made.answer([request("actor1", obs(2))])

    expected, _ = learned.collect_mode.actor.forward(obs(2), {})
    np.testing.assert_array_equal(answer.output, expected)
    np.testing.assert_array_equal(after.output, expected)
    assert answer.version == after.version == Version(1, 4)
