"""List slips in what the processes of a parallel run agree on."""

from __future__ import annotations

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "ding_like/comm/rest/wire.py",
        "if kind is Floats and not np.isfinite(array).all():",
        "if kind is Ints and not np.isfinite(array).all():",
        ("tests/comm/rest/test_wire.py::test_arrays_with_numbers_that_are_not_finite_are_refused",),
    ),
    Mutation(
        "ding_like/comm/rest/wire.py",
        "if len(found) != len(pairs):",
        "if len(found) > len(pairs):",
        ("tests/comm/rest/test_wire.py::test_what_is_no_message_is_refused",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/ledger.py",
        "if number <= self._last_number.get(worker_id, -1):",
        "if number < self._last_number.get(worker_id, -1):",
        ("tests/pipeline/parallel/test_core.py::test_a_segment_counts_once_however_often_it_is_sent",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/ledger.py",
        "self.granted_updates = min(self.granted_updates, learner_iter)",
        "self.granted_updates = self.granted_updates",
        ("tests/pipeline/parallel/test_core_faults.py::test_what_a_dead_learner_had_not_saved_is_granted_again",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/ledger.py",
        "return self._ratio.allowed_updates(self._progress) - self.granted_updates",
        "return self._ratio.allowed_updates(self._progress)",
        (
            "tests/pipeline/parallel/test_core.py::test_batches_are_granted_by_the_ratio_and_rows_are_those_of_the_index",
        ),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/run.py",
        "if each.deadline_s <= now]:",
        "if each.deadline_s <= now - 1e6]:",
        (
            "tests/pipeline/parallel/test_core_doubts.py"
            "::test_a_silent_worker_is_removed_from_the_table_and_its_task_is_free",
        ),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/index.py",
        "still = self._unique_ids[places] == unique_ids",
        "still = np.ones(len(places), bool)",
        (
            "tests/pipeline/parallel/test_core_index.py"
            "::test_a_priority_for_a_row_that_is_gone_is_not_written_to_the_one_in_its_place",
        ),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/state.py",
        'self._db.execute("ROLLBACK")',
        'self._db.execute("COMMIT")',
        ("tests/pipeline/parallel/test_core_state.py::test_what_was_written_of_a_block_before_a_fault_is_taken_back",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/state.py",
        "            if self._depth == 1:\n                self._pending.clear()",
        "            if self._depth == 0:\n                self._pending.clear()",
        ("tests/pipeline/parallel/test_state_blocks.py::test_changes_of_a_failed_block_are_not_saved_with_the_next",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/index.py",
        "while self._live[0].first_row + self._live[0].rows <= self.num_rows - self.size:",
        "while self._live[0].first_row + self._live[0].rows < self.num_rows - self.size:",
        (
            "tests/pipeline/parallel/test_core.py::test_files_go_when_their_rows_are_overwritten_and_the_learner_has_passed",
        ),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/on_policy_index.py",
        "self.used_up_to = self.next_serial - 1",
        "self.used_up_to = 0",
        ("tests/pipeline/parallel/test_on_policy_core.py::test_rows_are_used_once_in_order_and_nobody_waits_for_ever",),
    ),
    Mutation(
        "ding_like/pipeline/update_ratio.py",
        "max(0, env_step - self.warmup_steps) * self.updates // self.steps",
        "env_step * self.updates // self.steps",
        ("tests/pipeline/parallel/test_core.py::test_updates_are_allowed_by_env_steps",),
    ),
    Mutation(
        "ding_like/pipeline/update_ratio.py",
        "needed = self.warmup_steps + -(-granted * self.steps // self.updates)",
        "needed = self.warmup_steps + granted * self.steps // self.updates",
        ("tests/pipeline/test_update_ratio.py::test_a_started_update_counts_as_a_whole_one",),
    ),
    Mutation(
        "ding_like/pipeline/update_ratio.py",
        "return max(0, batch_steps - warmup_steps) + segment_steps + -(-steps // updates)",
        "return max(0, batch_steps - warmup_steps) + segment_steps",
        (
            "tests/pipeline/test_update_ratio.py::test_the_least_lead_holds_a_batch_a_segment_and_the_steps_of_an_update",
        ),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/tasks.py",
        "if attempt != task.attempt or",
        "if attempt > task.attempt or",
        ("tests/pipeline/parallel/test_core_faults.py::test_a_dead_process_gives_its_task_back_at_once",),
    ),
    Mutation(
        "ding_like/pipeline/parallel/core/tasks.py",
        "task.status == LEASED and task.deadline_s <= now_s",
        "task.status == LEASED and task.deadline_s < now_s - 5",
        ("tests/pipeline/parallel/test_task_table.py::test_a_lease_is_over_when_its_time_is_and_not_before",),
    ),
    Mutation(
        "ding_like/comm/rest/mirror.py",
        "is_free = self._unique_ids[places] < unique_ids",
        "is_free = self._unique_ids[places] != unique_ids",
        ("tests/comm/rest/test_batch_source.py::test_late_rows_do_not_take_places_of_newer_ones",),
    ),
    Mutation(
        "ding_like/worker/commander/naive.py",
        "version - self._evaluated >= self._eval_freq",
        "version - self._evaluated > self._eval_freq",
        ("tests/pipeline/parallel/test_core.py::test_evaluations_come_at_version_0_and_every_eval_freq",),
    ),
    Mutation(
        "ding_like/worker/commander/naive.py",
        "mean >= self._stop_value and version > 0",
        "mean >= self._stop_value",
        (
            "tests/worker/commander/test_stop_needs_training.py::test_an_evaluation_stops_the_run_only_after_training_began",
        ),
    ),
)
