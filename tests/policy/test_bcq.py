"""BCQ: losses and gradients equal a slow walk over rows; what is unlike the data is neither taken nor followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from tests.policy.continuous import CASES, CENTRE, HALF, act, double, make_batch, make_policy, td_target, tensors, train
from tests.policy.values import ACTIONS, make_rows, with_masks
from tests.policy.values import make_policy as make_discrete

NUM, SIZE, LATENTS, LMBDA, PHI = 3, 2, 4, 0.7, 0.3


def make(**changes: Any) -> Any:
    learn = {"num_actions": NUM, "lmbda": LMBDA, **changes.pop("learn", {})}
    return make_policy("bcq", learn=learn, model=dict(vae_hidden_dims=[8], phi=PHI, num_candidates=9), **changes)


def perturbed(actor: Any, obs: Tensor, action: Tensor) -> Tensor:
    return (action + PHI * actor.main(torch.cat([obs, action], dim=1)).tanh()).clamp(-1, 1)


def slow_losses(policy: Any, batch: TransitionBatch, *, ignore_done: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Go row by row in float64: Fujimoto et al. 2019, algorithm 1."""
    model = policy.get_attribute("model")
    nets = {name: double(getattr(model, name)) for name in ("actor", "critic", "vae")}
    target_actor, target_critic = double(policy._actor.target), double(policy._critic.target)
    generator, rows = torch.Generator(), len(batch)
    generator.set_state(policy._noise.state)
    shapes = ((rows, LATENTS), (rows, NUM * LATENTS), (rows, LATENTS))
    of_vae, of_target, of_actor = (torch.randn(shape, generator=generator).double() for shape in shapes)
    losses: dict[str, list[Tensor]] = {name: [] for name in nets}
    for number, row in enumerate(batch):
        x, weight, vae = tensors(row), float(row.get("weight", 1.0)), nets["vae"]
        mean, log_sigma = vae.encoder(torch.cat([x.obs, x.action], dim=1)).chunk(2, dim=1)
        latent = mean + log_sigma.clamp(-4, 15).exp() * of_vae[number]
        found = vae.decoder(torch.cat([x.obs, latent], dim=1)).tanh()
        normal, standard = Normal(mean, log_sigma.clamp(-4, 15).exp()), Normal(0.0, 1.0)
        divergence = kl_divergence(normal, standard).mean()
        losses["vae"].append(weight * (((found - x.action) ** 2).mean() + 0.5 * divergence))
        candidates = []
        for latent in of_target[number].view(NUM, 1, LATENTS).clamp(-0.5, 0.5):
            action = perturbed(target_actor, x.next_obs, vae.decoder(torch.cat([x.next_obs, latent], dim=1)).tanh())
            both = target_critic(x.next_obs, action)
            candidates.append(LMBDA * both.min().item() + (1 - LMBDA) * both.max().item())
        y = td_target(row, max(candidates), ignore_done=ignore_done)
        q = nets["critic"](x.obs, x.action)
        losses["critic"].append(weight * ((q - y) ** 2).sum())
        latent = of_actor[number][None].clamp(-0.5, 0.5)
        action = vae.decoder(torch.cat([x.obs, latent], dim=1)).tanh().detach()
        losses["actor"].append(-nets["critic"](x.obs, perturbed(nets["actor"], x.obs, action))[0, 0])
    return {name: torch.stack(each).mean() for name, each in losses.items()}, nets


@pytest.mark.parametrize("case", CASES)
def test_an_update_equals_a_slow_walk_over_rows(case: str) -> None:
    columns, changes = CASES[case]
    policy, batch = make(**changes), make_batch(**columns)
    losses, networks = slow_losses(policy, batch, ignore_done=case == "ignore_done")

    info, _ = policy.grad(batch)

    for name, loss in losses.items():
        assert float(info[f"{name}_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
        gradient = torch.autograd.grad(loss, list(networks[name].parameters()), retain_graph=True)
        found = policy._networks()[name].params.grad_vector.double()
        torch.testing.assert_close(found, torch.cat([each.flatten() for each in gradient]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["acting", "one noise", "exported"])
def test_the_best_of_the_candidates_is_taken(form: str) -> None:
    policy, obs = make(), make_batch(5)["obs"]
    model = policy.get_attribute("model")
    normal = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 9 * LATENTS), dtype=np.float32))
    latents = normal.clamp(-0.5, 0.5).view(5, 9, LATENTS)  # of each row its own

    if form == "acting":
        found = (act(policy.eval_mode.actor, obs) - CENTRE) / HALF
    else:
        latents = (latents[0] if form == "one noise" else model.latents).expand(5, 9, LATENTS)
        found = model.act(torch.from_numpy(obs), *((normal[0],) if form == "one noise" else ())).detach().numpy()

    for row, own, action in zip(torch.from_numpy(obs), latents, found, strict=True):
        candidates = [perturbed(model.actor, row[None], model.vae.decode(row[None], latent[None])) for latent in own]
        best = max(candidates, key=lambda each, row=row: model.critic(row[None], each)[0].item())
        np.testing.assert_allclose(action, best[0].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_noise_of_another_size_is_refused_and_what_is_given_stays_as_it_is() -> None:
    model = make().get_attribute("model")
    obs, noise = torch.zeros(5, 3), torch.full((5, model.noise_size), 2.0)

    model.act(obs, noise)

    assert (noise == 2.0).all()
    with pytest.raises(SchemaError, match=r"draw `noise_size` numbers"):
        model.act(obs, noise[:, 1:])


def test_actions_stay_near_those_of_the_data_though_others_look_better() -> None:
    policy = make_policy("bcq", learn=dict(learning_rate=3e-3), model=dict(vae_hidden_dims=[32], phi=0.05))
    for seed in range(300):
        batch = make_batch(64, seed=seed, terminated=np.ones(64, bool))
        inside = np.random.default_rng(seed).uniform(-0.2, 0.2, (64, SIZE))  # of the data
        action, reward = (CENTRE + HALF * inside).astype(np.float32), inside.sum(axis=1).astype(np.float32)
        train(policy, [batch.with_columns(action=action, reward=reward)])

    taken = (act(policy.eval_mode.actor, make_batch(200, seed=999)["obs"]) - CENTRE) / HALF

    assert np.abs(taken).max() < 0.4  # 0.2, and what an auto-encoder of so few units misses
    assert taken.mean() > 0.05  # the better half of the data


# ---- discrete actions


def slow_loss(policy: Any, batch: TransitionBatch) -> Tensor:
    """Go row by row, and action by action: Fujimoto et al. 2019b, algorithm 1."""
    learn, online, target, losses = policy.cfg.learn, policy.get_attribute("model"), policy._target_model, []
    for row in batch:
        legal, obs, next_obs = list(range(ACTIONS)), row["obs"], row["next_obs"]
        if isinstance(next_obs, dict):
            legal = np.flatnonzero(next_obs["action_mask"]).tolist()
            obs, next_obs = obs["board"], next_obs["board"]
        obs, next_obs = torch.tensor(obs)[None], torch.tensor(next_obs)[None]
        y = float(row["reward"])
        if not row["terminated"] and legal:
            logits, q = online.logits(next_obs)[0], online.q(next_obs)[0]
            probability = {a: logits[a].exp().item() for a in legal}
            likely = [a for a in legal if probability[a] / max(probability.values()) >= learn.threshold]
            best = max(likely, key=lambda a, q=q: q[a].item())
            y += float(row["discount"]) * target.q(next_obs)[0, best].item()
        error, logits = online.q(obs)[0, int(row["action"])] - y, online.logits(obs)[0]
        huber = error**2 / 2 if abs(error.item()) <= 1 else error.abs() - 0.5
        imitation = -(logits[int(row["action"])].exp() / logits.exp().sum()).log()
        losses.append(float(row["weight"]) * (huber + imitation + learn.logit_weight * (logits**2).mean()))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("threshold", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_a_discrete_update_equals_a_slow_walk_over_rows_and_actions(masked: bool, threshold: float) -> None:
    learn = dict(threshold=threshold, logit_weight=0.3)
    policy = make_discrete("discrete_bcq", priority_IS_weight=True, priority=True, learn=learn)
    policy._target_params.data_vector.add_(0.3 * torch.randn_like(policy._target_params.data_vector))
    batch = with_masks(make_rows()) if masked else make_rows()
    loss = slow_loss(policy, batch)
    gradient = torch.autograd.grad(loss, policy._params.parameters())

    info, _ = policy.grad(batch)

    assert float(info["total_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    expected = torch.cat([each.flatten() for each in gradient])
    torch.testing.assert_close(policy._params.grad_vector, expected, rtol=1e-4, atol=1e-6)


def test_an_action_that_the_data_do_not_have_is_not_taken_though_its_value_is_the_largest() -> None:
    policy, obs = make_discrete("discrete_bcq"), make_rows(8)["obs"]
    model = policy.get_attribute("model")
    with torch.no_grad():  # action 3 is worth most, and the data have 0 and 1 alone
        for network, bias in ((model.values, [0.0, 1.0, 2.0, 3.0]), (model.imitator, [5.0, 4.9, -5.0, -5.0])):
            last = [each for each in network.head.modules() if isinstance(each, torch.nn.Linear)][-1]
            last.weight.zero_()
            last.bias.copy_(torch.tensor(bias))

    actor = policy.eval_mode.actor
    taken = actor.act(obs, lanes=np.arange(8), is_first=np.ones(8, bool), rng=np.random.default_rng(0))["action"]

    assert (taken == 1).all()
