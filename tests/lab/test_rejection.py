import pytest

from lab.rejection import accuracy_rejection


def test_small_curve_by_hand():
    curve = accuracy_rejection([0.9, 0.5, 0.7, 0.1], [1, 0, 1, 0])
    assert curve.rejected.tolist() == [0, 0.25, 0.5, 0.75]
    assert curve.accuracy == pytest.approx([1 / 2, 2 / 3, 1, 1])
    assert curve.area == pytest.approx((1 / 2 + 2 / 3 + 2) / 4)
