import copy

import torch

from tests.policy.continuous import (
    make_batch,
    make_policy,
    train,
)

# Every update is one of the actor's, and a narrow range cuts much of the noise.


def test_actor_and_targets_move_with_every_second_update_of_the_critics():
    policy = make_policy("td3")
    moved = []
    for seed in range(4):
        before = [
            policy._critic.params,
            policy._actor.params,
            policy._critic.target_params,
            policy._actor.target_params,
        ]
        copies = [params.data_vector.clone() for params in before]
        train(policy, [make_batch(seed=seed)])
        moved.append(
            [not torch.equal(params.data_vector, was) for params, was in zip(before, copies, strict=True)],
        )

    waits, acts = [True, False, False, False], [True, True, True, True]
    assert moved == [waits, acts, waits, acts]


def test_targets_may_move_in_every_update_of_the_critics():
    policy = make_policy("td3", learn={"target_update_freq": 1})
    moved = []
    for seed in range(4):
        parts = [policy._actor.params, policy._critic.target_params, policy._actor.target_params]
        before = [params.data_vector.clone() for params in parts]
        train(policy, [make_batch(seed=seed)])
        moved.append([not torch.equal(now.data_vector, was) for now, was in zip(parts, before, strict=True)])

    assert moved == [[False, True, True], [True, True, True]] * 2


def test_ddpg_with_what_td3_adds_is_td3():
    learn = {"actor_update_freq": 2, "noise": True}
    ddpg, td3 = make_policy("ddpg", model={"twin_critic": True}, learn=learn), make_policy("td3")
    td3.get_attribute("model").load_state_dict(ddpg.get_attribute("model").state_dict())
    td3.learn_mode.load_state_dict(copy.deepcopy(ddpg.learn_mode.state_dict()))

    for policy in (ddpg, td3):
        train(policy, [make_batch(seed=seed) for seed in range(3)])

    for name, value in td3.get_attribute("model").state_dict().items():
        assert torch.equal(value, ddpg.get_attribute("model").state_dict()[name]), name
