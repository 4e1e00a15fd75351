"""List slips in what learns from sequences, and in quantiles at fractions, that would change what is learned."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_ROWS = "tests/policy/test_sequence_rows.py::test_each_step_is_learned_from_once_with_what_came_before_and_after_it"
_R2D2 = "tests/policy/test_r2d2.py::test_loss_and_priorities_equal_a_slow_walk_over_rows_and_steps"
_VTRACE = "tests/rl_utils/test_vtrace.py::test_targets_and_advantages_equal_the_papers_sum"

MUTATIONS = (
    Mutation(
        "ding_like/policy/sequence_rows.py",
        "first = start[stretch] + number * shape.num_steps",
        "first = start[stretch] + number * shape.length",
        (_ROWS,),
    ),
    Mutation(
        "ding_like/policy/sequence_rows.py",
        "obs[np.arange(count), num_steps] = next_column[windows.row[:, -1]]",
        "obs[np.arange(count), num_steps] = column[windows.row[:, -1]]",
        (_ROWS,),
    ),
    Mutation(
        "ding_like/policy/sequence_rows.py",
        "mask[:, :burn_in] &= begins[:, None]",
        "mask[:, :burn_in] = False",
        (_ROWS,),
    ),
    Mutation(
        "ding_like/policy/sequence_rows.py",
        "out[name] = column[row[:, 0]]",
        "out[name] = column[row[:, -1]]",
        (_ROWS,),
    ),
    Mutation(
        "ding_like/policy/r2d2.py",
        "following = torch.arange(self._nstep, self._nstep + self._shape.length, device=best.device)",
        "following = torch.arange(1, 1 + self._shape.length, device=best.device)",
        (_R2D2,),
    ),
    Mutation(
        "ding_like/policy/r2d2.py",
        "ETA * error.amax(dim=1) + (1.0 - ETA) * error.sum(dim=1) / num_steps",
        "(1.0 - ETA) * error.amax(dim=1) + ETA * error.sum(dim=1) / num_steps",
        (_R2D2,),
    ),
    Mutation(
        "ding_like/policy/r2d2.py",
        "rest, _ = run(map_obs(lambda part: part[:, burn_in:], obs), warm)",
        "rest, _ = run(map_obs(lambda part: part[:, burn_in:], obs), state)",
        (_R2D2,),
    ),
    Mutation(
        "ding_like/rl_utils/value_rescale.py",
        "super().backup(reward, value_unscale(next_value), discount=discount, terminated=terminated)",
        "super().backup(reward, next_value, discount=discount, terminated=terminated)",
        ("tests/rl_utils/test_value_rescale.py::test_a_target_is_backed_up_on_the_scale_of_returns",),
    ),
    Mutation(
        "ding_like/policy/recurrent.py",
        "return output[:, 0].cpu().numpy(), {name: column.cpu().numpy() for name, column in after.items()}",
        "return output[:, 0].cpu().numpy(), dict(state)",
        (
            "tests/pipeline/test_recurrent_runs.py::test_a_minibatch_holds_what_the_env_did_and_the_state_that_its_steps_lead_to",
        ),
    ),
    Mutation(
        "ding_like/rl_utils/vtrace.py",
        "decay = (gamma * lambda_ * ratio.clamp(max=c_clip)).masked_fill(~goes_on, 0.0)",
        "decay = (gamma * lambda_ * ratio.clamp(max=rho_clip)).masked_fill(~goes_on, 0.0)",
        (_VTRACE,),
    ),
    Mutation(
        "ding_like/rl_utils/vtrace.py",
        "next_target = next_value + correction[:, 1:].masked_fill(~goes_on, 0.0)",
        "next_target = next_value",
        (_VTRACE,),
    ),
    Mutation(
        "ding_like/policy/impala.py",
        "            values[:, 1:],\n",
        "            values[:, :-1],\n",
        ("tests/policy/test_impala.py::test_loss_equals_a_slow_walk_over_the_sequences",),
    ),
    Mutation(
        "ding_like/policy/ppo_recurrent.py",
        "{name: column[edge] for name, column in behind.items()}",
        "{name: column[edge] for name, column in state.items()}",
        (
            "tests/policy/test_ppo_recurrent.py::test_advantages_equal_a_slow_walk_with_the_state_behind_a_truncated_step",
        ),
    ),
    Mutation(
        "ding_like/rl_utils/implicit_quantile.py",
        "side = np.abs(fractions[:, :, None] - (difference < 0))",
        "side = np.abs(fractions[:, :, None] - (difference > 0))",
        ("tests/rl_utils/test_implicit_quantile.py::test_by_hand_loss_and_gradient_are_those_of_autograd",),
    ),
    Mutation(
        "ding_like/policy/fqf.py",
        "grad[:, :-1] += slope[:, ::-1].cumsum(axis=1)[:, ::-1]",
        "grad[:, :-1] += slope.cumsum(axis=1)",
        ("tests/policy/test_iqn.py::test_both_backends_learn_the_same",),
    ),
)
