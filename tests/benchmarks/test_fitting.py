"""Medians, intervals and slopes of known samples."""

import numpy as np
import pytest
from fitting import linear_fit, log_log_slope, median_interval


def test_the_interval_of_a_median_is_made_of_order_statistics() -> None:
    # Of 12 values the 3rd smallest and largest miss with 2 (1 + 12 + 66) / 4096 = 3.9%.
    found = median_interval([12, 1, 11, 2, 10, 3, 9, 4, 8, 5, 7, 6])
    assert (found.value, found.low, found.high) == (6.5, 3, 10)
    assert found.coverage == pytest.approx(1 - 158 / 4096)


def test_few_values_have_their_range_and_its_coverage() -> None:
    found = median_interval([1.0, 3.0, 2.0])
    assert (found.value, found.low, found.high, found.coverage) == (2.0, 1.0, 3.0, 0.75)
    assert median_interval([5.0]).coverage == 0.0
    six = median_interval(range(6))
    assert (six.low, six.high) == (0, 5)
    assert six.coverage == pytest.approx(1 - 2 / 64)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for values in rng.exponential(size=(2000, 12)):
        found = median_interval(values.tolist())
        hits += found.low <= np.log(2) <= found.high
    assert hits / 2000 == pytest.approx(1 - 158 / 4096, abs=0.015)


def test_slopes() -> None:
    line = linear_fit([1, 2, 4], [3.0, 5.0, 9.0])
    assert (line.slope, line.intercept) == pytest.approx((2.0, 1.0))
    assert line.r_squared == pytest.approx(1.0)
    assert linear_fit([1, 2, 3], [1.0, 4.0, 1.0]).r_squared == pytest.approx(0.0)
    assert log_log_slope([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="two different x"):
        linear_fit([2, 2], [1.0, 2.0])
