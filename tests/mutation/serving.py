"""List slips in what a policy server reads, answers and reloads."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_EVALUATIONS, _RELOAD = "tests/serve/test_evaluations.py", "tests/serve/test_reload.py"
_HTTP, _POLICIES = "tests/serve/test_http.py", "tests/serve/test_policies.py"
_WRONG = f"{_HTTP}::test_a_wrong_body_gets_one_error_that_says_what_was_expected"
_LOADED, _EXPORTED = "tests/pipeline/agent/test_load.py", "tests/pipeline/agent/test_export.py"
_KEPT = f"{_RELOAD}::test_a_checkpoint_that_cannot_be_served_keeps_the_old_one_and_is_told_once"
_EVALUATED = f"{_EVALUATIONS}::test_served_actions_are_those_of_the_evaluator"

MUTATIONS = (
    Mutation(
        "ding_like/pipeline/agent/checkpoints.py",
        "if updates > last or is_again:",
        "if updates != last or is_again:",
        (f"{_RELOAD}::test_the_newest_is_that_of_most_updates_whatever_its_name_and_age",),
    ),
    Mutation(
        "ding_like/pipeline/agent/checkpoints.py",
        "if stamp is not None and (served is None or served[0].stamp != stamp):",
        "if stamp is not None and served is None:",
        (f"{_RELOAD}::test_one_file_is_taken_again_when_it_is_replaced",),
    ),
    Mutation(
        "ding_like/pipeline/serve/agent.py",
        "if name in expected and tensor.dtype != expected[name].dtype:",
        "if name not in expected:",
        (_KEPT,),
    ),
    Mutation(
        "ding_like/pipeline/agent/weights.py",
        "if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):",
        "if tensor.is_floating_point() and bool(torch.isnan(tensor).all()):",
        (_KEPT,),
    ),
    Mutation(
        "ding_like/pipeline/serve/agent.py",
        "is_first = np.full(rows.num, state is None)",
        "is_first = np.full(rows.num, True)",
        (f"{_POLICIES}::test_without_the_state_a_policy_that_remembers_acts_as_at_the_start_of_an_episode",),
    ),
    Mutation(
        "ding_like/pipeline/serve/served.py",
        "return agent.act(*read)",
        "return self._agent.act(*read)._replace(version=agent.version._asdict())",
        (f"{_RELOAD}::test_an_answer_is_of_one_version_even_if_the_weights_change_meanwhile",),
    ),
    Mutation(
        "ding_like/pipeline/serve/served.py",
        "        if file not in self._logged:",
        "        if file is not None:",
        (f"{_RELOAD}::test_a_checkpoint_that_is_gone_is_told_and_served_on",),
    ),
    Mutation(
        "ding_like/pipeline/agent/wrappers.py",
        "adopt_wrapper_states(stack, [lane[:own] for lane in statistics])",
        "adopt_wrapper_states(stack, [lane[:own] for lane in statistics[:1]])",
        (_EVALUATED,),
    ),
    Mutation(
        "ding_like/pipeline/agent/wrappers.py",
        "self._obs_wrappers = [layer for layer in reversed(layers) if",
        "self._obs_wrappers = [layer for layer in layers[:0] if",
        (_EVALUATED,),
    ),
    Mutation(
        "ding_like/pipeline/agent/wrappers.py",
        "each = [layer.action(one) for one in each]",
        "each = [one for one in each]",
        (_EVALUATED,),
    ),
    Mutation(
        "ding_like/pipeline/agent/observations.py",
        "if not np.isfinite(cast).all():",
        "if not np.isfinite(array).all():",
        (_WRONG,),
    ),
    Mutation(
        "ding_like/pipeline/agent/observations.py",
        "if ((array < low) | (array > high)).any():",
        "if (array > high).any():",
        (f"{_HTTP}::test_wrong_entries_of_a_dict_are_named",),
    ),
    Mutation(
        "ding_like/comm/serve/access.py",
        "return secrets.compare_digest(said, self._expected)",
        "return self._expected.startswith(said)",
        (f"{_HTTP}::test_with_a_token_only_those_who_have_it_are_answered",),
    ),
    Mutation(
        "ding_like/comm/serve/draining.py",
        "if not channel.requests and not channel.total_outbufs_len and channel.request is None:",
        "if not channel.total_outbufs_len and channel.request is None:",
        (f"{_HTTP}::test_closing_answers_what_has_come_and_frees_the_port",),
    ),
    Mutation(
        "ding_like/pipeline/agent/memory.py",
        "stack.reset()[0] if is_first[row] else",
        "stack.reset()[0] if is_first.all() else",
        (f"{_LOADED}::test_rows_of_a_batch_are_episodes_of_their_own",),
    ),
    Mutation(
        "ding_like/pipeline/agent/loaded.py",
        "first: Array = ~self._begun[: rows.num]",
        "first: Array = np.zeros(rows.num, bool)",
        (f"{_LOADED}::test_a_folder_of_an_older_version_is_read_by_making_its_env",),
    ),
    Mutation(
        "ding_like/pipeline/agent/layers.py",
        "return is_fit and (fed.num_resets, fed.num_steps) == (1, _TRIED_STEPS)",
        "return is_fit",
        (f"{_LOADED}::test_a_wrapper_is_applied_without_its_env_only_where_that_works",),
    ),
    Mutation(
        "ding_like/pipeline/agent/export_check.py",
        "if largest > _TOLERANCE:",
        "if largest > 1.0:",
        (f"{_EXPORTED}::test_a_file_that_acts_otherwise_is_not_written",),
    ),
    Mutation(
        "ding_like/pipeline/agent/export_module.py",
        "return normal.clamp(-clip, clip)",
        "return obs.to(torch.float32)",
        (f"{_EXPORTED}::test_a_file_acts_alike_in_a_process_without_ding_like",),
    ),
)
