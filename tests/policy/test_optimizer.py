from types import SimpleNamespace

import pytest
import torch

from ding_like.errors import TrainingError
from ding_like.model.flat_params import FlatParams
from ding_like.policy.optimizer import FlatOptimizer


def make(clip: float | None = None, most: int = 3) -> tuple[torch.nn.Linear, FlatParams, FlatOptimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    params = FlatParams(model)
    return model, params, FlatOptimizer(params, learning_rate=0.1, grad_clip_norm=clip, max_nonfinite_steps=most)


def backward(model: torch.nn.Linear, params: FlatParams, scale: float = 1.0) -> torch.Tensor:
    loss = (model(torch.ones(4, 3)) * scale).pow(2).mean()
    params.zero_grad()
    loss.backward()
    return loss


def test_step_equals_torch_adam_on_the_module():
    model, params, optimizer = make()
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    adam = torch.optim.Adam(twin.parameters(), lr=0.1)

    for _ in range(5):
        optimizer.step(backward(model, params))
        adam.zero_grad()
        twin(torch.ones(4, 3)).pow(2).mean().backward()
        adam.step()

    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-6)


def test_clipping_equals_torch():
    model, params, optimizer = make(clip=0.5)
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    twin(torch.ones(4, 3)).pow(2).mean().backward()
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)

    norm = optimizer.step(backward(model, params))

    torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_is_never_applied(scale):
    model, params, optimizer = make()
    optimizer.step(backward(model, params))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moments = [value.clone() for value in (*optimizer.state_dict()["moments"], optimizer.state_dict()["num_steps"])]

    optimizer.step(backward(model, params, scale))

    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    after = [*optimizer.state_dict()["moments"], optimizer.state_dict()["num_steps"]]
    torch.testing.assert_close(after, moments, rtol=0, atol=0)
    assert optimizer.check() == 1


def test_an_infinite_loss_with_a_finite_gradient_is_not_applied():
    model, params, optimizer = make()
    backward(model, params)
    before = params.data_vector.clone()

    optimizer.step(torch.tensor(float("inf")))

    assert torch.equal(params.data_vector, before)


def test_several_in_a_row_end_the_run_and_one_good_step_breaks_the_row():
    model, params, optimizer = make(most=3)
    for scale in (float("nan"), float("nan"), 1.0, float("nan"), float("nan")):
        optimizer.step(backward(model, params, scale))
    assert optimizer.check() == 4

    optimizer.step(backward(model, params, float("nan")))

    with pytest.raises(TrainingError, match="3 updates in a row"):
        optimizer.check()


def test_state_round_trip_goes_on_equally():
    model, params, optimizer = make()
    optimizer.step(backward(model, params))
    other_model, other_params, other = make()
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())

    for m, p, o in ((model, params, optimizer), (other_model, other_params, other)):
        o.step(backward(m, p))

    assert torch.equal(params.data_vector, other_params.data_vector)


def test_adam_eps_is_passed_on():
    # The first step of Adam is g / (|g| + eps) times the learning rate: half of it where eps is as large as g.
    _, params, _ = make()
    optimizer = FlatOptimizer(params, learning_rate=0.1, adam_eps=1.0)
    before = params.data_vector.clone()
    params.grad_vector.fill_(1.0)

    optimizer.step(torch.zeros(()))

    torch.testing.assert_close(params.data_vector, before - 0.05)


def test_config_may_name_eps_and_the_largest_norm_as_di_engine_does():
    _, params, _ = make()
    learn = SimpleNamespace(
        learning_rate=0.1,
        grad_clip_norm=None,
        nonfinite="skip",
        max_nonfinite_steps=5,
        adam_eps=1e3,
        grad_clip_value=2.0,
    )
    optimizer = FlatOptimizer.from_config(params, learn)
    before = params.data_vector.clone()
    params.grad_vector.fill_(1.0)

    optimizer.step(torch.zeros(()))

    # A gradient of norm sqrt(8) is cut to norm 2, and the large eps all but stops the step.
    torch.testing.assert_close(params.grad_vector, torch.full((8,), 2 / 8**0.5))
    assert (params.data_vector - before).abs().max() < 1e-4
