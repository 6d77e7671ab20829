import numpy as np
import pytest
import scipy.sparse as sp

from bonafed.data import corrupt
from bonafed.data.federation import Federation


def example(classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return Federation.from_arrays(
        rng.normal(size=(300, 2)), rng.integers(0, classes, 300), np.repeat(["a", "b", "c"], 100)
    )


def test_flips_are_counted_and_even():
    fed = example()
    other = corrupt.flip_labels(fed, 0.3, clients=["a", "c"])
    changed = [(x != y).sum() for x, y in zip(fed.y, other.y, strict=True)]
    assert changed == [30, 0, 30]
    assert other.y[1] is fed.y[1]
    assert other.X[0] is fed.X[0]
    everything = corrupt.flip_labels(fed, 1.0)
    shift = np.concatenate([(x - y) % 3 for x, y in zip(everything.y, fed.y, strict=True)])
    assert (shift > 0).all()
    # four standard errors of a fair coin
    assert abs((shift == 1).mean() - 0.5) < 4 * np.sqrt(0.25 / 300)
    assert all((x == y).all() for x, y in zip(corrupt.flip_labels(fed, 0.0).y, fed.y, strict=True))


def test_text_labels_flip_to_text():
    fed = Federation.from_arrays(np.eye(4), ["ill", "well", "well", "ill"], ["a"] * 4)
    assert corrupt.flip_labels(fed, 1.0).y[0].tolist() == ["well", "ill", "ill", "well"]


def test_noise_has_its_mean_and_standard_deviation():
    fed = example()
    other = corrupt.add_noise(fed, [0.5, 0.0], mean=[2.0, -1.0], clients=["b"])
    noise = other.X[1] - fed.X[1]
    np.testing.assert_allclose(noise[:, 1], -1.0, rtol=1e-14)
    assert abs(noise[:, 0].mean() - 2) < 4 * 0.05  # four standard errors, 0.5 / sqrt(100)
    assert abs(noise[:, 0].std() - 0.5) < 4 * 0.5 / np.sqrt(200)
    assert other.X[0] is fed.X[0]


def test_streams_belong_to_names():
    fed = example()
    alone = fed.restrict(["c"])
    np.testing.assert_array_equal(
        corrupt.add_noise(fed, 1.0, seed=4).X[2], corrupt.add_noise(alone, 1.0, seed=4).X[0]
    )
    np.testing.assert_array_equal(
        corrupt.flip_labels(fed, 0.5).y[2], corrupt.flip_labels(alone, 0.5).y[0]
    )
    assert (
        corrupt.add_noise(fed, 1.0, seed=5).X[2] != corrupt.add_noise(fed, 1.0, seed=4).X[2]
    ).all()


def test_drift_moves_the_named_columns():
    fed = example()
    other = corrupt.drift(fed, scale=2.0, offset=1.0, columns=["x1"], clients=["a"])
    np.testing.assert_array_equal(
        other.X[0], np.column_stack([fed.X[0][:, 0], 2 * fed.X[0][:, 1] + 1])
    )
    assert other.X[2] is fed.X[2]
    assert fed.digests()[1:] == other.digests()[1:]


def test_senseless_corruption_is_refused():
    fed = example()
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\], got 1.5"):
        corrupt.flip_labels(fed, 1.5)
    with pytest.raises(ValueError, match="labels of two classes or more"):
        corrupt.flip_labels(fed.with_targets([y - 0.5 for y in fed.y]), 0.1)
    with pytest.raises(ValueError, match="sd must be >= 0"):
        corrupt.add_noise(fed, -1.0)
    with pytest.raises(ValueError, match="no client 'd'"):
        corrupt.add_noise(fed, 1.0, clients=["d"])
    with pytest.raises(ValueError, match="no feature 'x9'"):
        corrupt.drift(fed, columns=["x9"])
    with pytest.raises(ValueError, match="values that are missing or infinite"):
        corrupt.drift(fed, scale=np.inf)
    sparse = Federation.from_arrays(sp.csr_array(np.eye(2)), [0, 1], ["a", "a"])
    with pytest.raises(ValueError, match="client 'a' has sparse rows"):
        corrupt.add_noise(sparse, 1.0)
