"""How many updates env steps allow, and how many env steps updates."""

from hypothesis import given
from hypothesis import strategies as st

from ding_like.pipeline.update_ratio import UpdateRatio, least_lead


def test_updates_follow_whole_env_steps_after_the_warmup():
    # 2 updates for each 3 env steps after 10: at 12 steps 4/3 would do, which is one whole update.
    ratio = UpdateRatio(warmup_steps=10, steps=3, updates=2, max_lead=0)

    assert [ratio.allowed_updates(step) for step in (0, 10, 11, 12, 13, 16)] == [0, 0, 0, 1, 2, 4]


@given(st.integers(0, 50), st.integers(1, 17), st.integers(1, 17), st.integers(0, 500))
def test_without_a_lead_the_credit_is_the_fewest_steps_that_allow_what_was_granted(warmup, steps, updates, granted):
    ratio = UpdateRatio(warmup_steps=warmup, steps=steps, updates=updates, max_lead=0)

    needed = ratio.credit(0, granted)

    assert ratio.allowed_updates(needed) >= granted
    if granted:
        assert ratio.allowed_updates(needed - 1) < granted, "collecting must not run ahead of the ratio"


def test_a_started_update_counts_as_a_whole_one():
    # 1 update for 2 steps, 3 for 2 granted 1: 2/3 of a step is one step, not none.
    assert UpdateRatio(warmup_steps=0, steps=2, updates=3, max_lead=0).credit(0, 1) == 1
    assert UpdateRatio(warmup_steps=5, steps=2, updates=1, max_lead=4).credit(9, 1) == 2


def test_credit_is_never_negative():
    assert UpdateRatio(warmup_steps=0, steps=1, updates=1, max_lead=0).credit(100, 3) == 0


def test_the_least_lead_holds_a_batch_a_segment_and_the_steps_of_an_update():
    for batch_size, warmup, lead in [(64, 0, 64 + 8 + 3), (64, 100, 8 + 3), (64, 60, 4 + 8 + 3)]:
        found = least_lead(warmup_steps=warmup, steps=5, updates=2, segment_steps=8, batch_steps=batch_size)

        assert found == lead


def test_in_one_process_a_segment_allows_its_updates_and_the_next_one_waits_for_the_first_of_them():
    ratio = UpdateRatio.per_segment(3)

    assert [ratio.allowed_updates(segments) for segments in (0, 1, 2)] == [0, 3, 6]
    assert [ratio.credit(1, granted) for granted in (0, 1, 3)] == [0, 1, 1]


def test_without_updates_collecting_waits_for_nobody():
    assert UpdateRatio.per_segment(0).credit(100, 0) > 0
