"""List slips in rows, buffers, collectors, evaluators, envs and saved points that nobody would see."""

from __future__ import annotations

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "ding_like/data/rollout.py",
        "time >= lanes.length - keep",
        "time > lanes.length - keep",
        ("tests/data/test_rollout.py::test_lanes_and_kept_rows_equal_a_list_per_lane",),
    ),
    Mutation(
        "ding_like/data/rollout.py",
        "stays[mine[len(mine) - rows :]] = False",
        "stays[mine[:rows]] = False",
        ("tests/data/test_rollout.py::test_drop_last_forgets_rows_of_one_lane_only",),
    ),
    Mutation(
        "ding_like/data/rollout.py",
        "(uniform and self._is_rectangular)",
        "self._is_rectangular",
        ("tests/data/test_rollout.py::test_drop_last_forgets_rows_of_one_lane_only",),
    ),
    Mutation(
        "ding_like/data/segment_file.py",
        "if hashlib.sha256(data).hexdigest() != sha256:",
        "if len(sha256) != 64:",
        ("tests/data/test_segment_file.py::test_bad_segments_are_told_apart",),
    ),
    Mutation(
        "ding_like/data/sum_tree.py",
        "np.where(children > 0, children, np.inf)",
        "np.where(children >= 0, children, np.inf)",
        ("tests/data/test_sum_tree.py::test_random_operations_are_as_on_a_plain_array",),
    ),
    Mutation(
        "ding_like/data/sum_tree.py",
        "first, last = min(first, self._dirty[0]), max(last, self._dirty[1])",
        "first, last = min(first, self._dirty[0]), last",
        ("tests/data/test_sum_tree.py::test_random_operations_are_as_on_a_plain_array",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/priorities.py",
        "(leaves**-self.beta)",
        "(leaves**self.beta)",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_weights_follow_the_formula",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/priorities.py",
        "self.max_priority = max(self.max_priority, largest)",
        "self.max_priority = self.max_priority",
        ("tests/worker/replay_buffer/test_largest_priority.py::test_an_update_raises_it",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/prioritised.py",
        "self.priorities.raise_largest(records.priority)",
        "pass",
        ("tests/worker/replay_buffer/test_largest_priority.py::test_saved_data_raise_it",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/priorities.py",
        "self.beta = min(self.beta + self._settings.beta_step, 1.0)",
        "self.beta = self.beta + self._settings.beta_step",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_beta_rises_to_one_within_the_anneal_steps",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/limiter.py",
        "self._sampled *= left",
        "self._sampled *= 1.0",
        ("tests/worker/replay_buffer/test_limiter.py::test_counts_fade_to_one_percent_in_a_window",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/row_records.py",
        "np.add.at(self.use, places, 1)",
        "self.use[places] += 1",
        ("tests/worker/replay_buffer/test_largest_priority.py::test_a_row_that_comes_twice_in_a_sample_is_used_twice",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/row_records.py",
        "return next_id - capacity + (places - next_row) % capacity",
        "return next_id - capacity + 1 + (places - next_row) % capacity",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_new_rows_get_the_largest_priority_so_far",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/row_records.py",
        "return (given + _EPSILON).astype(np.float32)",
        "return given.astype(np.float32)",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_update_stores_what_is_given_and_a_little_more",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/sampler.py",
        "ages.start + picks * ages.step",
        "ages.start + picks",
        ("tests/worker/replay_buffer/test_naive_buffer.py::test_sample_range_is_by_age",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/storage.py",
        "self.count = min(self.count + size, self.capacity)",
        "self.count = min(self.count + size, self.capacity - 1)",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_ids_count_rows_and_places_go_around",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/storage.py",
        "self._write(source, slice(0, size - skipped - first), slice(skipped + first, size))",
        "self._write(source, slice(0, size - skipped - first), slice(skipped, size - first))",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_ids_count_rows_and_places_go_around",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/storage.py",
        "return [deepcopy(self._objects[row]) for row in rows.tolist()]",
        "return [self._objects[row] for row in rows.tolist()]",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_duplicates_are_independent",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/streams.py",
        "total = (2 - follows).cumsum()",
        "total = np.ones(len(follows), np.int64).cumsum()",
        ("tests/worker/replay_buffer/test_sequence_buffer.py::test_windows_are_those_of_a_slow_list",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/streams.py",
        "follows &= ~(is_first & self.is_cut[streams])",
        "follows &= ~is_first",
        ("tests/worker/replay_buffer/test_sequence_buffer.py::test_a_lane_that_is_new_gets_its_part",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/windows.py",
        "waiting = 0 if self.shape.padding else self.shape.num_steps - 1",
        "waiting = 0 if self.shape.padding else self.shape.num_steps - 2",
        (
            "tests/worker/replay_buffer/test_prioritised_windows.py::test_windows_and_priorities_are_those_of_a_slow_list",
        ),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/windows.py",
        "self.priorities.raise_largest(priorities)",
        "pass",
        (
            "tests/worker/replay_buffer/test_prioritised_windows.py::test_a_window_has_the_priority_that_its_first_row_was_pushed_with",
        ),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/windows.py",
        "still = (self._ids[places] == ids) & self.priorities.records.is_live(places)",
        "still = self._ids[places] == ids",
        (
            "tests/worker/replay_buffer/test_prioritised_windows.py::test_windows_leave_after_max_use_and_are_not_brought_back",
        ),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/windows.py",
        "self._move(*storage.moved)",
        "pass",
        (
            "tests/worker/replay_buffer/test_prioritised_windows.py::test_a_lane_that_is_new_moves_windows_with_their_priorities",
        ),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/streams.py",
        'self._turn(state["next"])',
        "pass",
        ("tests/worker/replay_buffer/test_prioritised_windows.py::test_a_loaded_state_goes_on_with_equal_samples",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/store.py",
        "storage.next_row, storage.count = first_place, 0",
        "storage.next_row, storage.count = 0, 0",
        ("tests/worker/replay_buffer/test_advanced_buffer.py::test_a_loaded_state_samples_as_the_saved_one",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/buffer.py",
        "limiter.add(sampled=size)",
        "limiter.add(sampled=0)",
        ("tests/worker/replay_buffer/test_composition.py::test_a_limiter_refuses_samples_until_pushes_catch_up",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/buffer.py",
        'self._limiter.load_state_dict(_state_dict["limiter"])',
        "pass",
        ("tests/worker/replay_buffer/test_composition.py::test_state_goes_on_with_equal_samples",),
    ),
    Mutation(
        "ding_like/worker/replay_buffer/interface.py",
        "if given != unit:",
        "if given != unit and unit == 'row':",
        ("tests/pipeline/test_windows.py::test_rows_are_refused_by_a_policy_that_learns_from_windows",),
    ),
    Mutation(
        "ding_like/worker/learner/base.py",
        'getattr(data, "per_window", {})',
        "{}",
        ("tests/pipeline/test_windows.py::test_priorities_of_windows_come_back_from_the_learner",),
    ),
    Mutation(
        "ding_like/worker/collector/loop.py",
        "self._open_version.fill(policy_version)",
        "pass",
        ("tests/worker/collector/test_loop.py::test_rows_carry_the_version_of_the_policy_that_acted",),
    ),
    Mutation(
        "ding_like/worker/collector/loop.py",
        "self._open_rows[:] = keep",
        "self._open_rows[:] = 0",
        ("tests/worker/collector/test_open_rows.py::test_rows_that_a_policy_keeps_count_as_open",),
    ),
    Mutation(
        "ding_like/worker/collector/loop.py",
        "self.rollout.drop_last(lane, int(self._open_rows[lane]))",
        "self.rollout.drop_last(lane, int(self._length[lane]))",
        ("tests/worker/collector/test_open_rows.py::test_rows_kept_or_added_since_the_last_batch_are_dropped",),
    ),
    Mutation(
        "ding_like/worker/collector/row_taker.py",
        "            self._loop.forget_rows()\n",
        "            pass\n",
        (
            "tests/worker/collector/test_sample.py::test_on_policy_rows_begin_after_the_last_call_and_open_episodes_go_on",
        ),
    ),
    Mutation(
        "ding_like/worker/evaluator/base.py",
        "stop_value is not None and mean >= stop_value and train_iter > 0",
        "stop_value is not None and mean >= stop_value",
        ("tests/worker/evaluator/test_battle_evaluator.py::test_it_stops_only_after_training_began",),
    ),
    Mutation(
        "ding_like/worker/evaluator/base.py",
        "if mean > self.best_return or (if_equal and mean == self.best_return):",
        "if mean >= self.best_return:",
        ("tests/worker/evaluator/test_interaction.py::test_a_new_best_is_saved_once",),
    ),
    Mutation(
        "ding_like/worker/evaluator/base.py",
        "if mean > self.best_return or (if_equal and mean == self.best_return):",
        "if mean > self.best_return:",
        ("tests/pipeline/test_final_evaluation.py::test_the_closing_evaluation_counts_for_the_best_model",),
    ),
    Mutation(
        "ding_like/pipeline/serial.py",
        "put_best_back(self._cfg.exp_name)",
        "pass",
        (
            "tests/pipeline/test_final_evaluation.py"
            "::test_a_run_that_goes_on_and_gets_worse_has_the_best_model_of_one_that_never_stopped",
        ),
    ),
    Mutation(
        "ding_like/pipeline/report/video.py",
        "[(len(played) - 1) // 2]",
        "[0]",
        ("tests/pipeline/report/test_video.py::test_film_shows_the_episode_with_the_median_return_of_ten",),
    ),
    Mutation(
        "ding_like/utils/repeats.py",
        "return self._seen[key] == 1",
        "return True",
        ("tests/utils/test_log.py::test_equal_warnings_are_shown_once_and_counted",),
    ),
    Mutation(
        "ding_like/pipeline/report/plot.py",
        "_LONE_DOT if len(self.x) == 1 else 0.0",
        "0.0",
        ("tests/pipeline/report/test_curve.py::test_runs_of_one_point_are_seen",),
    ),
    Mutation(
        "ding_like/worker/evaluator/interaction.py",
        "rng = self._rng_of(number)",
        "rng = self._rng_of(0)",
        (
            "tests/worker/evaluator/test_interaction.py::test_each_evaluation_has_seeds_of_its_own_and_a_number_repeats_them",
        ),
    ),
    Mutation(
        "ding_like/worker/learner/base.py",
        "self._priority_info = {}\n        self.call_hook",
        "self.call_hook",
        ("tests/worker/learner/test_base_learner.py::test_priority_info_is_of_the_last_call_only",),
    ),
    Mutation(
        "ding_like/worker/learner/base.py",
        "            self._reducer.reduce()\n            mode.apply()",
        "            mode.apply()\n            self._reducer.reduce()",
        ("tests/worker/learner/test_base_learner.py::test_train_applies_each_minibatch_after_its_gradient",),
    ),
    Mutation(
        "ding_like/comm/local.py",
        "self._granted = self._allowed",
        "pass",
        ("tests/comm/test_local.py::test_updates_that_too_few_rows_cannot_give_are_not_made_up_later",),
    ),
    Mutation(
        "ding_like/pipeline/roles/evaluate.py",
        "number=_FINAL_NUMBER)",
        "number=0)",
        ("tests/pipeline/test_final_evaluation.py::test_the_last_model_is_judged_by_fresh_episodes",),
    ),
    Mutation(
        "ding_like/envs/manager/base.py",
        "terminated[row], truncated[row] = is_terminated, is_truncated",
        "terminated[row], truncated[row] = is_terminated or is_truncated, False",
        ("tests/contracts/test_env_manager.py::test_transitions_are_those_of_the_envs_stepped_by_hand",),
    ),
    Mutation(
        "ding_like/envs/manager/base.py",
        "batch = _report(rows, take_lanes(after, rows), reward_row, ended, infos)",
        "batch = _report(rows, after, reward_row, ended, infos)",
        ("tests/contracts/test_env_manager.py::test_transitions_are_those_of_the_envs_stepped_by_hand",),
    ),
    Mutation(
        "ding_like/envs/manager/lane.py",
        "len(self.journal) <= self._replay_steps",
        "True",
        ("tests/contracts/test_env_manager.py::test_a_stretch_over_the_cap_is_lost_and_begins_anew",),
    ),
    Mutation(
        "ding_like/envs/wrappers/normalization.py",
        "(var + (mean - joint) ** 2)",
        "var",
        ("tests/envs/test_wrappers.py::test_adopted_statistics_are_those_of_one_that_saw_everything",),
    ),
    Mutation(
        "ding_like/envs/wrappers/normalization.py",
        "self.discounted_reward = np.zeros(1)",
        "pass",
        ("tests/envs/test_wrappers.py::test_reward_norm_divides_by_the_deviation_of_the_discounted_return",),
    ),
    Mutation(
        "ding_like/envs/wrappers/normalization.py",
        "        _load(self.obs_rms, _joined(states))\n        self.update_running_mean = False",
        "        _load(self.obs_rms, _joined(states))",
        ("tests/envs/test_wrappers.py::test_an_env_that_adopted_learns_no_more",),
    ),
    Mutation(
        "ding_like/envs/wrappers/returns.py",
        '{"eval_episode_return": self._return, **info}',
        '{**info, "eval_episode_return": self._return}',
        ("tests/envs/test_wrappers.py::test_the_innermost_report_of_a_return_wins",),
    ),
    Mutation(
        "ding_like/league/payoff.py",
        "rate if home == pair[0] else 1.0 - rate",
        "rate",
        ("tests/league/test_league.py::test_the_win_rate_is_that_of_the_slow_obvious_way",),
    ),
    Mutation(
        "ding_like/league/rating.py",
        "self.elo[away] -= change",
        "self.elo[away] += change",
        ("tests/league/test_league.py::test_elo_is_that_of_the_formula",),
    ),
    Mutation(
        "ding_like/utils/metrics.py",
        "os.truncate(self.path, expected)",
        "pass",
        ("tests/utils/test_metrics.py::test_load_cuts_back_to_where_the_state_was_taken",),
    ),
    Mutation(
        "ding_like/utils/resume.py",
        'if size != expected["bytes"] or _hash(path) != expected["sha256"]:',
        'if size != expected["bytes"]:',
        ("tests/utils/test_resume.py::test_other_contents_of_the_same_size_are_refused",),
    ),
    Mutation(
        "ding_like/utils/resume.py",
        "for step in self.steps()[self._keep :]:",
        "for step in self.steps()[: -self._keep]:",
        ("tests/utils/test_resume.py::test_newest_step_comes_back_whole",),
    ),
    Mutation(
        "ding_like/utils/resume.py",
        "            os.fsync(file.fileno())",
        "            file.fileno()",
        ("tests/utils/test_resume.py::test_a_durable_point_waits_for_the_disk_before_it_takes_its_place",),
    ),
    Mutation(
        "ding_like/utils/seeding.py",
        "keys = tuple(zlib.crc32(name.encode()) for name in names)",
        "keys = tuple(len(name) for name in names)",
        ("tests/utils/test_seeding.py::test_stream_is_the_same_in_every_version",),
    ),
)
