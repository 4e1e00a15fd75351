"""One forward pass for several clients: rows, recurrent state, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Version, Weights
from ding_like.comm.flat_state import flatten_state
from ding_like.comm.zmq.inference_messages import Refusal, Reply, Request, inputs_of
from ding_like.pipeline.roles.infer import ClientStates, InferRole
from tests.contracts.policy_cases import ACTING, OBS, make

DQN, R2D2, RAINBOW = ACTING["dqn"], ACTING["r2d2"], ACTING["rainbow"]
NAME = "server1.1"


def obs(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, OBS)).astype(np.float32)


def request(
    client: str, values: Any, *, number: int = 1, first: bool = True, columns: dict | None = None, **fields: Any
) -> Request:
    rows = len(values)
    own = {"lanes": np.arange(rows), "is_first": np.full(rows, first), "state": {}, "follows": NAME, **fields}
    return Request(client, 1, number, None, inputs=inputs_of(values, columns or {}), **own)


def plain(client: str, values: Any, **fields: Any) -> Request:
    return request(client, values, lanes=None, is_first=None, **fields)


def role(case: Any, name: str = NAME) -> InferRole:
    return InferRole(make(case, seed=1), name=name)


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
        columns = policy.collect_mode.actor._columns(rows, rng)
        asked.append(plain(f"actor{number}", values, columns=columns))

    answers = together.answer(asked)

    for each, answer in zip(asked, answers, strict=True):
        (expected,) = alone.answer([each])
        np.testing.assert_allclose(answer.output, expected.output, rtol=1e-5, atol=1e-6)
        assert len(answer.output) == each.rows


def test_recurrent_state_of_several_clients_moves_as_that_of_each_alone():
    together, alone = role(R2D2), role(R2D2)
    for number in range(1, 5):
        asked = [request(f"actor{k}", obs(2, 10 * number + k), number=number, first=number == 1) for k in range(3)]
        answers = together.answer(asked)
        for each, answer in zip(asked, answers, strict=True):
            (expected,) = alone.answer([each])
            np.testing.assert_allclose(answer.output, expected.output, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(answer.state["h"], expected.state["h"], rtol=1e-4, atol=1e-6)


def test_state_begins_anew_with_an_episode_and_goes_on_in_other_lanes():
    made, fresh = role(R2D2), role(R2D2)
    made.answer([request("actor1", obs(2))])
    first = np.array([True, False])

    (answer,) = made.answer([request("actor1", obs(2, 1), number=2, is_first=first)])

    (begun,) = fresh.answer([request("actor1", obs(2, 1))])
    np.testing.assert_allclose(answer.output[0], begun.output[0], rtol=1e-5)
    assert not np.allclose(answer.output[1], begun.output[1])


def state_of(answer: Any) -> dict[str, np.ndarray]:
    return dict(answer.state)


CANNOT_GO_ON = {
    "another server answered between": dict(number=2, follows="server2.1"),
    "a request is missing": dict(number=3),
    "another run of the client": dict(number=2, run_id=2),
}


@pytest.mark.parametrize("name", CANNOT_GO_ON)
def test_state_that_may_be_another_is_asked_for(name):
    made = role(R2D2)
    made.answer([request("actor1", obs(2))])
    changed = dict(CANNOT_GO_ON[name])
    run_id = changed.pop("run_id", 1)

    (answer,) = made.answer([request("actor1", obs(2, 1), first=False, **changed)._replace(run_id=run_id)])

    assert answer is None


def test_a_lane_that_was_never_seen_needs_its_state():
    made = role(R2D2)
    made.answer([request("actor1", obs(1))])

    (answer,) = made.answer([request("actor1", obs(2, 1), number=2, first=False)])

    assert answer is None


def test_state_that_is_given_goes_on_exactly():
    here, there = role(R2D2), role(R2D2, "server2.1")
    (first,) = here.answer([request("actor1", obs(2))])
    (expected,) = here.answer([request("actor1", obs(2, 1), number=2, first=False)])

    (moved,) = there.answer([request("actor1", obs(2, 1), number=2, first=False, state=state_of(first))])

    np.testing.assert_array_equal(moved.output, expected.output)
    for name, column in expected.state.items():
        np.testing.assert_array_equal(moved.state[name], column)
    (after,) = there.answer([request("actor1", obs(2, 2), number=3, first=False, follows="server2.1")])
    (wanted,) = here.answer([request("actor1", obs(2, 2), number=3, first=False)])
    np.testing.assert_array_equal(after.output, wanted.output)


def test_a_refused_request_stops_no_other():
    made = role(R2D2)
    state = {"h": np.zeros((2, 3), np.float32)}

    wrong, unnamed, right = made.answer(
        [request("actor1", obs(2), state=state), plain("actor2", obs(2)), request("actor3", obs(2))]
    )

    assert isinstance(wrong, Refusal) and "recurrent state of shapes" in wrong.text and wrong.is_final
    assert isinstance(unnamed, Refusal) and "does not name its lanes" in unnamed.text
    assert isinstance(right, Reply)


def test_state_for_a_network_without_any_is_refused():
    (answer,) = role(DQN).answer([plain("actor1", obs(1), state={"h": obs(1)})])

    assert isinstance(answer, Refusal) and "this network has none" in answer.text


def test_observations_that_the_network_does_not_take_are_refused_beside_others():
    wrong = np.zeros((2, OBS + 1), np.float32)

    first, second = role(DQN).answer([plain("actor1", wrong), plain("actor2", obs(2))])

    assert isinstance(first, Refusal) and "does not take 'obs' float32[4]" in first.text
    assert isinstance(second, Reply)


def test_a_network_that_breaks_is_an_error_of_the_server():
    made = role(DQN)
    made.answer([plain("actor1", obs(1))])

    def broken(*_: object) -> None:
        raise RuntimeError("the GPU fell off the bus")

    made._forward = broken

    with pytest.raises(RuntimeError, match="fell off"):
        made.answer([plain("actor1", obs(1))])


def test_replies_keep_their_numbers_when_the_memory_of_a_batch_is_used_again():
    made = role(ACTING["ddpg"])
    (first,) = made.answer([plain("actor1", obs(2, 1))])
    kept = first.output.copy()

    made.answer([plain("actor1", obs(2, 2))])

    np.testing.assert_array_equal(first.output, kept)


def test_weights_are_loaded_when_they_are_newer():
    made, learned = role(DQN), make(DQN, seed=2)
    weights = flatten_state(learned.collect_mode.state_dict())

    made.take(Weights("policy", Version(1, 4), weights))
    (answer,) = made.answer([plain("actor1", obs(2))])
    made.take(Weights("policy", Version(1, 3), flatten_state(make(DQN, seed=3).collect_mode.state_dict())))
    (after,) = made.answer([plain("actor1", obs(2))])

    expected, _ = learned.collect_mode.actor.infer.forward(obs(2), {})
    np.testing.assert_array_equal(answer.output, expected)
    np.testing.assert_array_equal(after.output, expected)
    assert answer.version == after.version == Version(1, 4)


def test_lanes_of_forgotten_clients_make_room_for_others():
    states = ClientStates({"h": np.zeros(2, np.float32)}, server=NAME, max_lanes=3)
    for number in range(10):
        assert states.prepare(request(f"actor{number}", obs(2)))
        states.forget(f"actor{number}")

    assert states.num_lanes == 0
    assert states.prepare(request("one", obs(2)))
    with pytest.raises(ConnectionError, match="of 3 lanes, no more"):
        states.prepare(request("other", obs(2)))
