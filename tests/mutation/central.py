"""List slips in central inference's turns: what is acknowledged, learned, sent and ordered when."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_ROUND = "ding_like/pipeline/roles/shared_round.py"
_TURNS = "ding_like/pipeline/seed/turns.py"
_OURS = "tests/pipeline/seed/test_turns.py::"

MUTATIONS = (
    # Rows are forgotten by their sender before they are kept.
    Mutation(
        _TURNS,
        "            self._intake.put([_collected(arrived)], order)\n            self._acknowledge([arrived])\n",
        "            self._acknowledge([arrived])\n            self._intake.put([_collected(arrived)], order)\n",
        (f"{_OURS}test_rows_are_acknowledged_once_they_are_in_the_buffer",),
    ),
    # A round may be computed with older weights.
    Mutation(
        _TURNS,
        'least = self._published if self._settings.comm == "sync" else self._first',
        "least = self._first",
        (f"{_OURS}test_a_round_wants_the_weights_of_all_updates_before_it",),
    ),
    # Actors of a resumed run act by what nobody has trained.
    Mutation(
        _TURNS,
        "self._published, self._first = newest, self._first or newest",
        "self._published, self._first = newest, self._first or Version(0, 0)",
        (f"{_OURS}test_no_actor_acts_with_weights_from_before_this_stretch_of_the_run",),
    ),
    # Actors run ahead of a slow learner.
    Mutation(
        _TURNS,
        "if order.rows and not self._is_leaving():",
        "if not self._is_leaving():",
        (f"{_OURS}test_no_order_is_given_while_updates_are_behind",),
    ),
    # Updates that were missed are made up for in a burst.
    Mutation(
        _TURNS,
        "(self._next_s if now - self._next_s < self._period_s else now) + self._period_s",
        "max(self._next_s, 0.0) + self._period_s",
        (f"{_OURS}test_updates_keep_the_beat_of_the_clock",),
    ),
    # Weights go out although their period has not passed.
    Mutation(
        _TURNS,
        "        if self._broadcasts.is_due:\n            self.publish()\n",
        "        self.publish()\n",
        (f"{_OURS}test_a_broadcast_period_keeps_weights_back_until_it_has_passed",),
    ),
    # The rows of a round are in the order in which they came.
    Mutation(
        _ROUND,
        "*(self._came[name] for name in self._asked if name in self._came)",
        "*self._came.values()",
        (f"{_OURS}test_a_round_is_shared_among_the_actors_and_put_by_their_places",),
    ),
    # Nobody does what a lost actor was to do.
    Mutation(
        _ROUND,
        "(told is None or told.run_id != source.run_id):",
        "told is None:",
        (f"{_OURS}test_what_a_lost_actor_was_to_do_is_done_by_the_one_that_takes_its_place",),
    ),
    # A run that is to end waits for a round that nobody finishes.
    Mutation(
        _TURNS,
        "end_s = min(end_s, self._clock() + _LEAVE_S)",
        "pass",
        (f"{_OURS}test_a_run_that_is_to_end_leaves_a_round_within_a_second",),
    ),
    # A resumed run forgets the rows of random actions that it lacks.
    Mutation(
        _TURNS,
        'self._random_rows = state.get("random_rows", 0)',
        "self._random_rows = 0",
        (f"{_OURS}test_random_rows_that_are_missing_at_a_saved_point_are_collected_by_the_resumed_run",),
    ),
    # Updates begin before the buffer has what was asked for.
    Mutation(
        "ding_like/comm/local.py",
        "if self._least_rows and self._store.count() < self._least_rows:",
        "if self._least_rows and self._store.count() < self._batch_size:",
        (f"{_OURS}test_no_update_is_taken_before_the_buffer_has_the_minimum_and_none_is_made_up_for",),
    ),
)
