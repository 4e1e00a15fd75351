"""List slips with which several learners would not learn as one, or not notice that one of them is lost."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_STEP = "ding_like/pipeline/learners/lock_step.py"
_SHARES = "ding_like/pipeline/learners/shares.py"
_JOINED = "ding_like/pipeline/learners/joined.py"
_POINTS = "ding_like/pipeline/learners/points.py"
_STATISTICS = "ding_like/pipeline/learners/statistics.py"
_PROCESSES = "ding_like/pipeline/learners/processes.py"
_GROUP = "ding_like/comm/learner_group.py"
_HEARTS = "ding_like/comm/heartbeats.py"
_ENTRY = "ding_like/entry/learners.py"
_RANK = "ding_like/entry/learner_rank.py"

_OF_STEP = "tests/pipeline/learners/test_lock_step.py"
_OF_SHARES = "tests/pipeline/learners/test_shares.py"
_OF_POINTS = "tests/pipeline/learners/test_points.py"
_OF_GROUP = "tests/comm/test_learner_group.py"
_OF_HEARTS = "tests/comm/test_heartbeats.py"
_OF_WORDS = "tests/pipeline/learners/test_last_words.py"
_OF_PROCESSES = "tests/pipeline/learners/test_processes.py"
_OF_STATISTICS = "tests/pipeline/learners/test_learner_statistics.py"
_TWO = "tests/pipeline/learners/test_two_learners.py"

MUTATIONS = (
    # Each counts its own env steps only.
    Mutation(
        _STEP,
        "self._steps += int(self._group.sum_int([collector.envstep - self._steps])[0])",
        "self._steps = collector.envstep",
        (f"{_OF_STEP}::test_env_steps_are_those_of_all",),
    ),
    # The updates that follow a segment are those of its own env steps.
    Mutation(
        _STEP,
        "return rows.put(replace(segment, env_steps=self._steps - before))",
        "return rows.put(segment)",
        (f"{_OF_STEP}::test_env_steps_are_those_of_all",),
    ),
    # Each does what it wants.
    Mutation(
        _STEP,
        "signal, saves, evaluates = self._group.max_int(own).tolist()",
        "signal, saves, evaluates = own",
        (f"{_OF_STEP}::test_a_signal_at_any_learner_ends_the_turn_of_all",),
    ),
    # Statistics of envs stay apart.
    Mutation(
        _STEP,
        "self._parts.statistics.merge(self._group)",
        "pass",
        (f"{_OF_STEP}::test_statistics_are_merged_with_every_segment",),
    ),
    # The others begin with weights of their own.
    Mutation(
        _STEP,
        "                mode.load_state_dict(first)",
        "                pass",
        (f"{_OF_STEP}::test_all_begin_with_the_firsts_weights",),
    ),
    # Nobody looks whether points are of the same run.
    Mutation(
        _STEP,
        "        self._equality.check(self._parts.learner.train_iter)\n\n    def agree",
        "\n    def agree",
        (f"{_OF_STEP}::test_points_that_differ_are_refused",),
    ),
    # One updates, and the others have no rows yet.
    Mutation(
        _STEP,
        "if self._group.max_int([drawn is None])[0]:",
        "if drawn is None:",
        (f"{_OF_STEP}::test_no_learner_draws_until_all_can",),
    ),
    # Advantages are normalised over the rows of one.
    Mutation(
        _STEP,
        "return self._joined(drawn) if self._whole else drawn",
        "return drawn",
        (f"{_OF_STEP}::test_whole_batches_have_the_same_rows_in_the_same_order_everywhere",),
    ),
    # The first ends those that still save.
    Mutation(
        _STEP,
        'self._group.wait_for(f"left/{rank}", of=rank)',
        "pass",
        (f"{_OF_STEP}::test_the_first_learner_waits_until_all_have_saved",),
    ),
    # N learners keep N times as many rows.
    Mutation(
        _SHARES,
        '_STORED = (_BATCH_SIZE, "policy.other.replay_buffer.replay_buffer_size")',
        "_STORED = (_BATCH_SIZE,)",
        (f"{_OF_SHARES}::test_each_learner_has_its_part_of_envs_rows_batches_and_buffer",),
    ),
    # N learners learn from batches N times as large.
    Mutation(
        _SHARES,
        "return int(batch_size) // num_learners if takes_whole_batches(cfg.policy) else int(batch_size)",
        "return int(batch_size)",
        (f"{_OF_SHARES}::test_a_batch_of_whole_rows_is_drawn_in_parts_from_each_learners_buffer",),
    ),
    # All collect in the same envs.
    Mutation(
        _SHARES,
        "collect[share.of(len(collect))], evaluate",
        "collect[: len(collect) // share.num_learners], evaluate",
        (f"{_OF_SHARES}::test_the_envs_of_a_learner_follow_those_of_the_one_before",),
    ),
    # Each goes on from its own newest point.
    Mutation(
        _POINTS,
        "step = max(common)",
        "step = max(own)",
        (f"{_OF_POINTS}::test_all_go_on_from_the_newest_step_that_all_have_whole",),
    ),
    # A newer point of one stays, and is taken for one of the run that goes on.
    Mutation(
        _POINTS,
        "    store.forget_after(step)\n",
        "",
        (f"{_OF_POINTS}::test_newer_steps_are_forgotten_so_that_they_are_made_again_by_all",),
    ),
    # A point that only one has is said to be enough.
    Mutation(
        _ENTRY,
        "set.intersection(*",
        "set.union(*",
        (f"{_OF_WORDS}::test_a_run_can_go_on_from_points_that_all_have",),
    ),
    # Gradients are added up.
    Mutation(_GROUP, "            vector.mul_(weight)\n", "", (f"{_OF_GROUP}::test_gradients_are_averaged_by_weight",)),
    # Each learns from the same part.
    Mutation(
        _JOINED,
        "policy.set_share(Share(group.rank, group.world_size))",
        "policy.set_share(Share(0, group.world_size))",
        (f"{_TWO}::test_two_learners_that_join_by_themselves_equal_one",),
    ),
    # Learners that differ go on.
    Mutation(
        _JOINED,
        "        if differing:\n",
        "        if False:\n",
        (f"{_OF_STEP}::test_points_that_differ_are_refused",),
    ),
    # They are compared once.
    Mutation(
        _JOINED,
        "return train_iter // self._every != self._compared // self._every",
        "return train_iter == 0",
        (f"{_OF_STEP}::test_learners_are_compared_again_and_again",),
    ),
    # One learner's observations count for all.
    Mutation(
        _STATISTICS,
        "for data in group.all_gather_bytes(packed.tobytes()):",
        "for data in [packed.tobytes()]:",
        (f"{_OF_STATISTICS}::test_all_learners_normalise_by_what_all_have_observed",),
    ),
    # Nobody hears how a learner ended.
    Mutation(
        _PROCESSES,
        "                self._tell(rank, how)",
        "                pass",
        (f"{_OF_PROCESSES}::test_a_killed_learner_is_told_by_its_signal",),
    ),
    # Nor that the first has.
    Mutation(
        _RANK,
        "            self._has_ended = True\n",
        "",
        (f"{_OF_WORDS}::test_the_end_of_the_first_is_told_whenever_it_comes",),
    ),
    # Who waits for the first waits for one that is dead.
    Mutation(
        _GROUP,
        "is_lost = seen.ended is not None or seen.silent_s > self._timeout_s",
        "is_lost = False",
        (f"{_OF_GROUP}::test_waiting_for_the_first_ends_with_it",),
    ),
    # One that fails does not say why.
    Mutation(
        _HEARTS,
        '            self._store.set(f"ended/{self._rank}", self._last_word)\n',
        "",
        (f"{_OF_HEARTS}::test_a_rank_says_why_it_leaves",),
    ),
    # What was heard of a child stays with its parent.
    Mutation(
        _HEARTS,
        '            self._store.set(f"ended/{rank}", how)',
        "            pass",
        (f"{_OF_HEARTS}::test_what_one_is_told_of_a_rank_the_others_hear",),
    ),
    # An old beat counts for a new one.
    Mutation(
        _HEARTS,
        "if beat is not None and beat != self._beats.get(each):",
        "if beat is not None:",
        (f"{_OF_HEARTS}::test_an_old_beat_is_silence",),
    ),
)
