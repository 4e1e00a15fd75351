"""List slips in what rows in DI-engine's style are given and taken: dicts, infos, ids, priorities, limits."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_ROWS = "ding_like/data/rows.py"
_LIMITER = "ding_like/worker/replay_buffer/limiter.py"
_PRIORITISED = "ding_like/worker/replay_buffer/prioritised.py"
_RECORDS = "ding_like/worker/replay_buffer/row_records.py"
_WIDENING = "ding_like/worker/replay_buffer/widening.py"
_LEARNER = "ding_like/worker/learner/base.py"

_STYLE = "tests/worker/test_di_engine_style_policy.py::"
_BUFFER = "tests/worker/replay_buffer/test_advanced_rows.py::"
_LEARNERS = "tests/worker/learner/test_base_learner.py::"

MUTATIONS = (
    # Learners hand over flat keys.
    Mutation(
        _ROWS,
        "    nested = nest(row)\n    flags",
        "    nested = dict(row)\n    flags",
        (f"{_STYLE}test_nested_observations_reach_collect_eval_and_learn_as_the_env_gives_them",),
    ),
    # An info is the env's own, which it writes into again.
    Mutation(
        _ROWS,
        "value.copy() if isinstance(value, np.ndarray) else value",
        "value",
        (f"{_STYLE}test_a_transition_is_told_what_the_env_said_in_info",),
    ),
    # The return of an episode lacks its last reward.
    Mutation(
        _ROWS,
        "float(returns[lane] + answer.reward[row])",
        "float(returns[lane])",
        (f"{_STYLE}test_a_transition_is_told_what_the_env_said_in_info",),
    ),
    # Rows of a policy that reads infos and of one that does not in one log.
    Mutation(
        "ding_like/worker/collector/loop.py",
        "        if keeps_info != self._keeps_info:\n",
        "        if False:\n",
        (f"{_STYLE}test_rows_of_another_style_are_dropped_when_a_policy_takes_over",),
    ),
    # An end by a time limit is one of the task.
    Mutation(
        "ding_like/policy/di_engine_view.py",
        '"terminated": is_done and not truncated,',
        '"terminated": is_done,',
        ("tests/policy/test_di_engine_view.py::test_a_time_limit_does_not_terminate[True-info3-False-True]",),
    ),
    # Who says no priority gets 1, whatever others in the list say.
    Mutation(
        _RECORDS,
        "np.maximum(default, said.max(initial=0.0))",
        "default",
        (f"{_BUFFER}test_rows_without_a_priority_get_the_largest_beside_rows_that_have_one",),
    ),
    # A sample of nothing lets stale rows go.
    Mutation(
        _PRIORITISED,
        "        if size:\n            self.priorities.expire(train_iter)",
        "        self.priorities.expire(train_iter)",
        (f"{_BUFFER}test_a_sample_of_nothing_anneals_nothing_and_removes_nothing[columns]",),
    ),
    # A whole number that a float32 does not hold becomes one.
    Mutation(
        _WIDENING,
        "2 ** (np.finfo(dtype).nmant + 1)",
        "2 ** (np.finfo(dtype).nmant + 2)",
        (f"{_BUFFER}test_floats_after_whole_numbers_widen_the_column_exactly_and_say_so_once",),
    ),
    # What is asked for does not count: limits are passed by a batch.
    Mutation(
        _LIMITER,
        "self._min_ratio * (self._sampled + rows)",
        "self._min_ratio * self._sampled",
        (f"{_BUFFER}test_a_sample_that_would_go_below_the_rate_is_refused_at_once",),
    ),
    # Limits closer together than a push and a sample stop both for good.
    Mutation(
        _LIMITER,
        " or not self._is_enough_for(self._last_size)",
        "",
        (f"{_BUFFER}test_a_narrow_rate_never_stops_pushes_and_samples_for_good",),
    ),
    # The id of another buffer's row is taken for one of ours.
    Mutation(
        "ding_like/data/row_ids.py",
        "return number if each == as_text(instance_name, number) else _FOREIGN",
        "return number",
        (f"{_BUFFER}test_an_update_passes_over_rows_of_another_buffer[list]",),
    ),
    # Iterations that were loaded count as trained.
    Mutation(
        _LEARNER,
        "end = self._cfg.train_iterations + self.train_iter - before",
        "end = self._cfg.train_iterations",
        (f"{_LEARNERS}test_start_trains_so_many_iterations_on_top_of_those_it_loaded",),
    ),
)
