from types import SimpleNamespace

import pytest
import torch

from ding_like.errors import CheckpointError, TrainingError
from ding_like.model.flat_params import FlatParams
from ding_like.model.optimizer import OPTIMIZER_CONFIG, FlatOptimizer, build_rule


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


def test_clipping_equals_torch():
    model, params, optimizer = make(clip=0.5)
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    twin(torch.ones(4, 3)).pow(2).mean().backward()
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)

    norm = optimizer.step(backward(model, params))

    torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)


def test_several_in_a_row_end_the_run_and_one_good_step_breaks_the_row():
    model, params, optimizer = make(most=3)
    for scale in (float("nan"), float("nan"), 1.0, float("nan"), float("nan")):
        optimizer.step(backward(model, params, scale))
    assert optimizer.check() == 4

    optimizer.step(backward(model, params, float("nan")))

    with pytest.raises(TrainingError, match="3 updates in a row"):
        optimizer.check()


TORCH = {
    "adam": (dict(type="adam", betas=[0.8, 0.95], eps=1e-4), torch.optim.Adam, dict(betas=(0.8, 0.95), eps=1e-4)),
    "adam with decay": (dict(type="adam", weight_decay=0.1), torch.optim.Adam, dict(weight_decay=0.1)),
    "adamw": (dict(type="adamw"), torch.optim.AdamW, {}),
    "adamw with decay": (dict(type="adamw", weight_decay=0.3), torch.optim.AdamW, dict(weight_decay=0.3)),
    "rmsprop": (dict(type="rmsprop"), torch.optim.RMSprop, {}),
    "rmsprop with all": (
        dict(type="rmsprop", alpha=0.9, momentum=0.5, eps=1e-3, weight_decay=0.1),
        torch.optim.RMSprop,
        dict(alpha=0.9, momentum=0.5, eps=1e-3, weight_decay=0.1),
    ),
}


def make_of(section: dict | None, **learn: float) -> tuple[torch.nn.Module, FlatParams, FlatOptimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    params = FlatParams(model)
    given = dict(learning_rate=0.02, grad_clip_norm=None, nonfinite="skip", max_nonfinite_steps=5, optimizer=section)
    return model, params, FlatOptimizer.from_config(params, SimpleNamespace(**{**given, **learn}))


def test_config_may_name_eps_and_the_largest_norm_as_di_engine_does():
    _, params, optimizer = make_of(None, adam_eps=1e3, grad_clip_value=2.0)
    before = params.data_vector.clone()
    params.grad_vector.fill_(1.0)

    optimizer.step(torch.zeros(()))

    # A gradient of norm sqrt(26) is cut to norm 2, and the large eps all but stops the step.
    torch.testing.assert_close(params.grad_vector, torch.full((26,), 2 / 26**0.5))
    assert (params.data_vector - before).abs().max() < 1e-4


def draw_gradients(steps: int = 50) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(26, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("name", TORCH)
def test_each_type_steps_as_torchs_does(name):
    section, cls, keywords = TORCH[name]
    model, params, optimizer = make_of(section)
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    twin.load_state_dict(model.state_dict())
    of_twin, theirs = FlatParams(twin), cls(twin.parameters(), lr=0.02, **keywords)

    for grad in draw_gradients():
        params.grad_vector.copy_(grad)
        optimizer.step(torch.zeros(()))
        of_twin.grad_vector.copy_(grad)
        theirs.step()

    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw with decay", "rmsprop with all"])
def test_each_type_goes_on_from_its_state_bit_by_bit(name):
    gradients = draw_gradients()
    model, params, optimizer = make_of(TORCH[name][0])
    other_model, other_params, other = make_of(TORCH[name][0])

    for number, grad in enumerate(gradients):
        if number == 20:
            other_model.load_state_dict(model.state_dict())
            other.load_state_dict(optimizer.state_dict())
        for p, o in ((params, optimizer), (other_params, other)) if number >= 20 else ((params, optimizer),):
            p.grad_vector.copy_(grad)
            o.step(torch.zeros(()))

    assert torch.equal(params.data_vector, other_params.data_vector)


@pytest.mark.parametrize("name", ["adam", "adamw with decay", "rmsprop with all"])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_no_type_applies_what_is_not_finite(name, where):
    _, params, optimizer = make_of(TORCH[name][0], grad_clip_norm=1.0)
    params.grad_vector.fill_(0.5)
    optimizer.step(torch.zeros(()))
    before = [params.data_vector.clone(), *(moment.clone() for moment in optimizer.state_dict()["moments"])]

    params.grad_vector.fill_(0.5 if where == "loss" else float("nan"))
    optimizer.step(torch.full((), float("inf") if where == "loss" else 0.0))

    after = [params.data_vector, *optimizer.state_dict()["moments"]]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert optimizer.check() == 1


def test_the_moments_of_another_kind_are_refused_and_those_of_old_checkpoints_are_adams():
    adam, rmsprop = make_of(dict(type="adam"))[2], make_of(dict(type="rmsprop"))[2]
    old = {name: value for name, value in adam.state_dict().items() if name != "type"}

    make_of(dict(type="adamw"))[2].load_state_dict(old)
    with pytest.raises(CheckpointError, match="moments of 'adam'.*asks for 'rmsprop'"):
        rmsprop.load_state_dict(old)


def test_an_eps_of_the_optimizer_replaces_adam_eps():
    rules = (build_rule({**OPTIMIZER_CONFIG, "eps": 1e-3}, adam_eps=1e-5), build_rule(OPTIMIZER_CONFIG, adam_eps=1e-5))

    assert [rule.step.keywords["eps"] for rule in (*rules, build_rule(None))] == [1e-3, 1e-5, 1e-8]
