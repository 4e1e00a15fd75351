"""One forward pass for several clients: rows, recurrent state, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import flatten_state
from ding_like.comm.zmq.inference import Refusal, Reply, Request, inputs_of
from ding_like.pipeline.seed.servers import Network
from ding_like.rl_utils.exploration import factorised_noise
from tests.contracts.policy_cases import ACTING, OBS, make

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
