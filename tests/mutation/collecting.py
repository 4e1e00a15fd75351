"""List slips in collect workers: when they stop, whose weights act, which seeds they have, what their frames hold."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_COLUMNS = "ding_like/comm/workers/columns.py"
_END = "ding_like/pipeline/build/collect_end.py"
_FACTORIES = "ding_like/pipeline/build/factories.py"
_HELD = "ding_like/pipeline/build/held_weights.py"
_WORKER = "ding_like/pipeline/ray/c_worker.py"
_PARTS = "ding_like/pipeline/build/collecting_parts.py"
_SET = "ding_like/pipeline/ray/c_worker_set.py"

_FRAMES = "tests/comm/workers/test_columns.py::"
_WORKERS = "tests/pipeline/ray/test_c_worker.py::"
_SETS = "tests/pipeline/ray/test_c_worker_set.py::"
_STOPS = f"{_WORKERS}test_a_collection_that_is_told_to_stop_ends_with_the_first_step_at_which_it_may"

MUTATIONS = (
    # Stops as soon as it is told to, however little there is.
    Mutation(_END, "return taken & reduce(", "return reduce(", (_STOPS,)),
    # Stops at the fraction although nobody said so.
    Mutation(_END, "taken & reduce(lambda one, other: one | other, signals)", "taken", (_STOPS,)),
    # One step fewer than the fraction says.
    Mutation(_END, "least = math.ceil(", "least = math.floor(", (_STOPS,)),
    # 0.55 of 20 steps are 12.
    Mutation(_END, "* steps_per_row(self._cfg.policy) - 1e-9)", "* steps_per_row(self._cfg.policy))", (_STOPS,)),
    # A worker that is to take all stops.
    Mutation(
        _END,
        "if fraction >= 1 or not signals:",
        "if not signals:",
        (f"{_WORKERS}test_a_worker_that_is_to_take_all_makes_all_rows_whatever_it_is_told",),
    ),
    # All keywords that it listens to have to be told.
    Mutation(
        _END,
        "one | other, signals",
        "one & other, signals",
        (f"{_WORKERS}test_a_worker_hears_the_keywords_that_it_listens_to",),
    ),
    # A late signal of an earlier round stops this one.
    Mutation(
        "ding_like/worker/collector/stop_rule.py",
        "rule(number) for keyword, number in named]",
        "rule(0) for keyword, number in named]",
        (f"{_WORKERS}test_a_late_signal_does_not_stop_a_later_round_and_a_newer_one_stops_an_earlier",),
    ),
    # The number that was ordered in place of the number that came.
    Mutation(
        _END,
        '"NumberSamples": len(segment.batch),',
        '"NumberSamples": segment.env_steps,',
        (f"{_WORKERS}test_a_worker_says_how_it_fared",),
    ),
    # Every worker plays the same episodes, or explores alike.
    Mutation(
        _FACTORIES,
        "place = max(index_worker - 1, 0) + index_parent * _WORKERS_PER_PARENT",
        "place = index_parent * _WORKERS_PER_PARENT",
        (f"{_WORKERS}test_workers_play_apart_from_one_another",),
    ),
    Mutation(
        _FACTORIES,
        "is_first = index_worker <= 1 and index_parent == 0",
        "is_first = True",
        (
            f"{_SETS}test_remote_workers_are_1_to_n_and_play_as_those_of_their_index",
            f"{_WORKERS}test_workers_play_apart_from_one_another",
        ),
    ),
    # The first worker explores apart from a serial run.
    Mutation(
        _FACTORIES,
        "is_first = index_worker <= 1 and index_parent == 0",
        "is_first = False",
        (f"{_WORKERS}test_a_synchronous_worker_gives_the_rows_of_a_serial_collector_bit_for_bit",),
    ),
    # A worker that is made in the run's process seeds the run's generators anew.
    Mutation(
        _FACTORIES,
        "        if not self.is_at_home:\n            yield",
        "        if True:\n            yield",
        (f"{_WORKERS}test_the_generators_of_the_run_are_as_they_were_after_a_worker_is_made_in_its_process",),
    ),
    # All workers of a process share a model of the user's.
    Mutation(
        _FACTORIES,
        "model = copy.deepcopy(self.model)",
        "model = self.model",
        ("tests/pipeline/build/test_factories.py::test_envs_and_a_model_of_ones_own_are_used",),
    ),
    # Older weights that come late take the place of newer ones.
    Mutation(
        _HELD,
        "if self._received.newest(weights.policy_id, newer_than=weights.version) is None:",
        "if True:",
        (f"{_WORKERS}test_of_weights_that_come_during_a_collection_the_newest_act_next_in_whatever_order_they_came",),
    ),
    # Weights change in the middle of a segment.
    Mutation(
        _HELD,
        "if self._busy.acquire(blocking=False):",
        "if self._busy.acquire(timeout=0.01) or True:",
        (f"{_WORKERS}test_weights_that_come_during_a_collection_act_in_the_next_one",),
    ),
    # Weights of another model are half loaded before that is noticed.
    Mutation(
        _HELD,
        "    check_alike(expected, kinds_of(own))\n",
        "",
        (f"{_WORKERS}test_weights_that_do_not_fit_are_refused_and_change_nothing",),
    ),
    # An actor that is replaced acts with the weights that it was made with.
    Mutation(
        _HELD,
        "            self.policy, self.version = policy, UNTRAINED\n",
        "            self.policy = policy\n",
        (f"{_WORKERS}test_another_actor_is_given_the_weights_that_came_before_it",),
    ),
    # Envs that are replaced stay open.
    Mutation(
        _PARTS,
        "        if before is not None:\n            before.close()\n        if envs",
        "        if envs",
        (f"{_WORKERS}test_recurrent_state_is_seen_and_begins_anew_with_other_envs",),
    ),
    # Random actions go on for ever.
    Mutation(
        _WORKER,
        "end.role.random_steps = self.algo.start_steps",
        "end.role.random_steps = 10**12",
        (f"{_WORKERS}test_actions_are_random_until_the_run_has_had_its_start_steps",),
    ),
    # The local worker collects beside the remote ones.
    Mutation(
        _SET,
        "if holds_parameters or num_workers > 0:",
        "if holds_parameters:",
        (f"{_SETS}test_envs_are_where_rows_are_collected",),
    ),
    # Sets of all parents collect.
    Mutation(
        _SET,
        "holds_parameters = total_parent_workers > 0 and index_parent > 0",
        "holds_parameters = False",
        (f"{_SETS}test_envs_are_where_rows_are_collected",),
    ),
    # A frame without a checksum; one that is unpacked however much it holds; one with more behind it.
    Mutation(
        _COLUMNS,
        "content_checksum=True",
        "content_checksum=False",
        (f"{_FRAMES}test_a_byte_that_was_changed_is_noticed_wherever_it_is",),
    ),
    Mutation(
        _COLUMNS,
        "if not 0 < claimed <= max_nbytes:",
        "if False:",
        (f"{_FRAMES}test_a_frame_that_says_it_holds_too_much_is_refused_before_it_is_unpacked",),
    ),
    Mutation(
        _COLUMNS,
        "or not decompressor.eof or decompressor.unused_data:",
        "or not decompressor.eof:",
        (f"{_FRAMES}test_more_behind_a_frame_is_refused",),
    ),
    # Columns come back in the format's order, or read-only.
    Mutation(
        _COLUMNS,
        "    for key in names:\n",
        "    for key in sorted(names):\n",
        (f"{_FRAMES}test_rows_and_statistics_come_back_bit_for_bit_in_order_and_may_be_written",),
    ),
    # A lone number becomes a list of one.
    Mutation(
        "ding_like/comm/column_bytes.py",
        'np.asarray(column, order="C")',
        "np.ascontiguousarray(column)",
        (f"{_FRAMES}test_rows_and_statistics_come_back_bit_for_bit_in_order_and_may_be_written",),
    ),
)
