import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.data import partition
from bonafed.data.federation import Federation

LAWS = settings(deadline=None, max_examples=40)


@LAWS
@given(st.integers(1, 60), st.data())
def test_iid_deals_equal_sizes(n, data):
    n_clients = data.draw(st.integers(1, n))
    counts = np.bincount(partition.iid(n, n_clients, seed=3), minlength=n_clients)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


@LAWS
@given(st.integers(1, 60), st.floats(0, 3), st.data())
def test_by_size_gives_every_client_a_row(n, sigma, data):
    n_clients = data.draw(st.integers(1, n))
    counts = np.bincount(
        partition.by_size(n, n_clients=n_clients, sigma=sigma, seed=1), minlength=n_clients
    )
    assert counts.sum() == n
    assert counts.min() >= 1
    if sigma == 0:
        assert counts.max() - counts.min() <= 1


def test_by_size_keeps_the_sizes_given():
    assert np.bincount(partition.by_size(9, [5, 1, 3])).tolist() == [5, 1, 3]
    assert (
        partition.by_size(9, [5, 1, 3], seed=0) != partition.by_size(9, [5, 1, 3], seed=1)
    ).any()


@LAWS
@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 5))
def test_by_label_limits_the_classes_of_a_client(per_client, n_clients, seed):
    y = np.random.default_rng(seed).integers(0, 5, 400)
    if n_clients * per_client < 5:
        with pytest.raises(ValueError, match="some rows would have no owner"):
            partition.by_label(y, n_clients, per_client, seed)
        return
    labels = partition.by_label(y, n_clients, per_client, seed)
    held = [len(np.unique(y[labels == k])) for k in range(n_clients)]
    assert set(held) == {per_client}
    owners = [len(np.unique(labels[y == c])) for c in range(5)]
    assert max(owners) - min(owners) <= 1


def test_dirichlet_goes_from_alike_to_unlike():
    y = np.repeat(np.arange(4), 500)

    def spread(alpha):
        labels = partition.dirichlet(y, 5, alpha, seed=2)
        shares = np.array([np.bincount(y[labels == k], minlength=4) / 500 for k in range(5)])
        np.testing.assert_allclose(shares.sum(0), 1)
        return shares.std()

    # a Dirichlet(alpha) share of 5 has variance (1/5)(4/5) / (5 alpha + 1): 0.0006 at 1e5, about
    # 0.12 at 2
    assert spread(1e5) < 0.005 < spread(2.0) < 0.25
    with pytest.raises(ValueError, match="without rows"):
        partition.dirichlet(np.zeros(20, int), 15, 0.01)


def test_by_feature_shifts_the_score():
    score = np.random.default_rng(0).normal(size=1000)
    sharp = partition.by_feature(score, [0.5, 0.3, 0.2], mix=0)
    assert np.bincount(sharp).tolist() == [500, 300, 200]
    assert (
        score[sharp == 0].max()
        <= score[sharp == 1].min()
        <= score[sharp == 1].max()
        <= score[sharp == 2].min()
    )
    mixed = partition.by_feature(score, [0.5, 0.3, 0.2], mix=1)
    means = [score[mixed == k].mean() for k in range(3)]
    assert means == sorted(means)
    assert score[mixed == 0].max() > score[mixed == 2].min()


def test_by_column_names_clients_in_order_of_appearance():
    labels = partition.by_column(["b", 1, "b", "a"])
    assert labels.tolist() == ["b", "1", "b", "a"]
    assert Federation.from_arrays(np.eye(4), np.ones(4), labels).clients == ("b", "1", "a")


def test_hospitals_do_not_depend_on_units():
    X = np.random.default_rng(0).normal(size=(200, 4)) @ np.diag([4, 2, 1, 1.0])
    names = ("north", "south", "east")
    labels = partition.hospitals(X, names)
    np.testing.assert_array_equal(labels, partition.hospitals(X * 8 + 3, names))
    sizes = [(labels == name).sum() for name in names]
    assert sizes == [82, 66, 52]  # 1 : 0.8 : 0.64 of 200


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: partition.iid(3, 4), r"n_clients must lie in \[1, 3\]"),
        (lambda: partition.iid(0, 1), "0 rows"),
        (lambda: partition.by_size(3, [1, 1]), "sum to the 3 rows"),
        (lambda: partition.by_size(3, [3, 0]), "whole numbers >= 1"),
        (lambda: partition.by_size(3, n_clients=2, sigma=-1), "sigma must be a number >= 0"),
        (lambda: partition.dirichlet([0, 1], 2, 0), "alpha must be a positive number"),
        (lambda: partition.by_label([0, 1, 1], 3, 1), "without rows"),
        (lambda: partition.by_label([0, 1], 1, 3), "classes_per_client must lie in"),
        (lambda: partition.by_feature([1, 2], [0.5, 0.6]), "sum to 1"),
        (lambda: partition.by_feature([1, np.nan], [1.0]), "finite"),
        (lambda: partition.by_feature([1.0, 2], [1.0], mix=-1), "mix must be"),
        (lambda: partition.by_column(["a", None]), "missing"),
    ],
)
def test_impossible_partitions_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
