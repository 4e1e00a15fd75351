import math

from ding_like.report.text import clock, measure, short


def test_measures_show_the_digits_that_matter():
    for value, text in [
        (0.02134, "0.0213"),
        (46.24, "46.2"),
        (475.0, "475"),
        (-1234.5, "-1,234"),
        (math.nan, "-"),
        (-math.inf, "-inf"),
    ]:
        assert measure(value) == text


def test_counts_are_short():
    for value, text in [
        (0, "0"),
        (500, "500"),
        (17900, "17.9k"),
        (20000, "20k"),
        (1.5e6, "1.5M"),
        (999.7, "1000"),
        (1e10, "1e+10"),
    ]:
        assert short(value) == text


def test_durations_read_as_a_clock():
    for seconds, text in [(0, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05")]:
        assert clock(seconds) == text
