"""What a policy's section may not say, or says without effect, is named with the key and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.config import compile_config, deep_merge
from ding_like.errors import ConfigError


# Any: a config holds anything.
def compile_with(policy: str, changes: dict[str, Any]) -> Any:
    main = dict(env=dict(env_id="CartPole-v1"), policy=changes)
    create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))
    return compile_config(main, create, seed=0, save=False)


_SEQUENCES = dict(burnin_step=2, learn_unroll_len=4, nstep=3)
# Policy, what its section says, and what the message has.
CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("ppo", dict(learn=dict(adv_norm="epoch")), "adv_norm.*must be True, False or 'batch'"),
    ("ppo", dict(learn=dict(backend="jit")), "backend.*'auto' or 'autograd'"),
    ("ppo", dict(learn=dict(clip_ratio=0.0)), "clip_ratio.*above 0"),
    ("ppo", dict(learn=dict(dual_clip=0.5)), "dual_clip.*above 1"),
    ("ppo", dict(learn=dict(epoch_per_collect=0)), "epoch_per_collect.*give a number from 1"),
    ("ppo", dict(learn=dict(grad_clip_type="clip_value")), "grad_clip_type.*'clip_norm'"),
    ("ppo", dict(learn=dict(grad_clip_norm=1.0, grad_clip_value=1.0)), "both set"),
    ("ppo", dict(action_bound="wrap"), "action_bound.*'clip' or 'tanh'"),
    ("ppo", dict(collect=dict(gae_lambda=1.5)), "gae_lambda.*from 0 to 1"),
    ("ppo", dict(nstep=3), "nstep.*gae_lambda"),
    ("ppo", dict(priority=True), "priority.*no use"),
    ("ppo_offpolicy", dict(recompute_adv=True), "recompute_adv.*where rows come from a buffer"),
    ("ppo_offpolicy", dict(learn=dict(target_kl=0.1)), "target_kl.*where rows come from a buffer"),
    ("ppo_offpolicy", dict(learn=dict(epoch_per_collect=2)), "epoch_per_collect.*where rows come from a buffer"),
    ("ppg_offpolicy", dict(learn=dict(epoch_per_collect=2)), "epoch_per_collect.*where rows come from a buffer"),
    ("sac_recurrent", dict(random_collect_size=100), "random_collect_size.*without the recurrent state"),
    ("sac_recurrent", dict(unroll_len=7), "unroll_len.*burnin_step . learn_unroll_len is 30"),
    ("ppo_recurrent", dict(learn=dict(seq_len=0)), "seq_len.*give 1 or more"),
    ("ppo_recurrent", dict(learn=dict(backend="autograd")), "backend.*has no effect.*recurrent"),
    ("pg", dict(collect=dict(gae_lambda=0.9)), "collect.gae_lambda.*policy 'a2c' for a shorter mean"),
    ("ppg", dict(learn=dict(aux_freq=0)), "learn.aux_freq.*give 1 or more"),
    ("ppg", dict(learn=dict(aux_train_epoch=0)), "learn.aux_train_epoch.*give a number from 1"),
    ("impala", dict(unroll_len=0), "unroll_len.*give 1 or more"),
    ("impala", dict(discount_factor=0.9, learn=dict(discount_factor=0.8)), "learn.discount_factor is set too"),
    ("impala", dict(nstep=3), "nstep.*no use with V-trace"),
    ("impala", dict(learn=dict(rho_clip_ratio=0.0)), "rho_clip_ratio.*above 0"),
    ("impala", dict(learn=dict(lambda_=1.5)), "lambda_.*from 0 to 1"),
    ("impala", dict(learn=dict(clip_value=1.0, grad_clip_norm=1.0)), "both set"),
    ("impala", dict(action_space="continuous", random_collect_size=8), "random_collect_size.*discrete actions"),
    ("impala", dict(priority_IS_weight=True), "needs priority=True"),
    ("sqn", dict(learn=dict(learning_rate_policy=0.1)), "learning_rate_policy.*no network of an actor"),
    ("d4pg", dict(model=dict(n_atom=0)), "n_atom.*1 or more"),
    ("c51", dict(learn=dict(loss="huber")), "learn.loss.*cross entropy"),
    ("qrdqn", dict(learn=dict(loss="huber")), "learn.loss.*learn.kappa"),
    ("qrdqn", dict(learn=dict(kappa=0.0)), "learn.kappa.*above 0"),
    ("rainbow", dict(learn=dict(loss="huber")), r"policy\.learn\.loss +is 'huber', but has no effect"),
    ("iqn", dict(learn=dict(kappa=0.0)), "learn.kappa.*above 0"),
    ("iqn", dict(learn=dict(num_quantiles=0)), "learn.num_quantiles.*1 or more"),
    ("iqn", dict(learn=dict(num_target_quantiles=-1)), "learn.num_target_quantiles.*1 or more"),
    ("iqn", dict(learn=dict(loss="huber")), "learn.loss.*no effect"),
    ("fqf", dict(learn=dict(learning_rate=1e-3)), "learn.learning_rate .*learning_rate_fraction"),
    ("fqf", dict(learn=dict(ent_coef=-1.0)), "learn.ent_coef.*0 or more"),
    ("r2d2", dict(random_collect_size=100), r"random_collect_size.*other\.eps\.start=1\.0"),
    ("r2d2", dict(**_SEQUENCES, unroll_len=10), r"unroll_len.*burnin_step \+ learn_unroll_len is 6"),
    ("r2d2", dict(**_SEQUENCES, collect=dict(unroll_len=10)), r"collect\.unroll_len.*is 6"),
    ("r2d2", dict(_SEQUENCES, nstep=9), "nstep.*learn_unroll_len: lower it"),
    ("r2d2", dict(_SEQUENCES, burnin_step=-1), "burnin_step.*give 0 or more"),
    ("r2d2", dict(_SEQUENCES, learn_unroll_len=0, nstep=1), "learn_unroll_len.*give 1 or more"),
    ("r2d2", dict(**_SEQUENCES, learn=dict(backend="auto")), "backend.*recurrent networks"),
    ("ngu", dict(nstep=3), "nstep.*must be 1, got 3: rewards are given step by step"),
    ("ngu", dict(discount_factor=1.0), "discount_factor.*set it below 1"),
    ("ngu", dict(discount_factor=0.9), "discount_factor_min.*is 0.99, above discount_factor 0.9"),
    ("ngu", dict(model=dict(num_arms=1)), "model.num_arms.*2 or more"),
    ("ddpg", dict(learn=dict(target_theta=1.5)), "learn.target_theta.*at most 1"),
    ("td3", dict(learn=dict(actor_update_freq=0)), "learn.actor_update_freq.*1 or more"),
    ("td3", dict(learn=dict(noise_range=dict(min=0.5, max=-0.5))), "learn.noise_range.*min must not be above max"),
    ("sac", dict(learn=dict(alpha=0.0)), "learn.alpha.*above 0"),
    ("pdqn", dict(learn=dict(update_circle=0)), "learn.update_circle.*1 or more"),
    ("pdqn", dict(other=dict(eps=dict(type="step"))), "other.eps.type.*'exp' or 'linear'"),
    ("pdqn", dict(collect=dict(noise=False, noise_sigma=0.3)), "collect.noise_sigma.*collect.noise is False"),
    ("dqn", dict(learn=dict(optimizer=dict(type="sgd"))), "'adam', 'adamw' or 'rmsprop', got 'sgd'"),
    ("dqn", dict(learn=dict(optimizer=dict(betas=[0.9]))), "betas .*two numbers"),
    ("dqn", dict(learn=dict(optimizer=dict(betas=[0.9, 1.0]))), "betas .*two numbers"),
    ("dqn", dict(learn=dict(optimizer=dict(alpha=0.9))), "alpha .*no use with type 'adam'"),
    ("dqn", dict(learn=dict(optimizer=dict(type="rmsprop", betas=[0.5, 0.9]))), "betas .*no use with type 'rmsprop'"),
    ("dqn", dict(learn=dict(optimizer=dict(type="rmsprop", momentum=1.5))), "momentum .*from 0 to 1"),
    ("dqn", dict(learn=dict(optimizer=dict(weight_decay=-0.1))), "weight_decay .*is -0.1; give 0 or more"),
]


@pytest.mark.parametrize(("policy", "changes", "message"), CONTRADICTIONS)
def test_a_contradiction_is_told(policy: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compile_with(policy, changes)


def test_keys_that_go_together_are_taken() -> None:
    both = deep_merge(_SEQUENCES, dict(unroll_len=6, collect=dict(unroll_len=6)))
    assert compile_with("r2d2", both).policy.unroll_len == 6
    plain = dict(learn=dict(loss="huber"), model=dict(distributional=False))
    assert compile_with("rainbow", plain).policy.learn.loss == "huber"
    learn = compile_with("ppo", dict(learn=dict(grad_clip_norm=2.0))).policy.learn
    assert (learn.grad_clip_norm, learn.grad_clip_value) == (2.0, None)
    learn = compile_with("ppo", dict(learn=dict(optimizer=dict(eps=1e-3)))).policy.learn
    assert (learn.adam_eps, learn.optimizer.eps) == (None, 1e-3)
