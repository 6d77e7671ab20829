import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.data.federation import Federation

LAWS = settings(deadline=None, max_examples=40)


def example(n=40, d=3, clients=4, seed=0, **options):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2, n)
    groups = np.r_[np.arange(clients), rng.integers(0, clients, n - clients)]
    return X, y, groups, Federation.from_arrays(X, y, groups, **options)


def test_clients_keep_the_order_of_first_appearance_and_rows_their_order():
    X = np.arange(10.0).reshape(5, 2)
    fed = Federation.from_arrays(X, [1, 0, 1, 1, 0], ["b", "a", "b", "c", "a"])
    assert fed.clients == ("b", "a", "c")
    assert fed.sizes.tolist() == [2, 2, 1]
    assert fed.X[0].tolist() == [[0, 1], [4, 5]]
    assert fed.y[1].tolist() == [0, 0]
    assert fed.classes.tolist() == [0, 1]
    assert (fed.n_clients, fed.n_features, len(fed)) == (3, 2, 3)
    assert "b: 2, a: 2, c: 1" in repr(fed)


@pytest.mark.parametrize(
    ("groups", "clients"),
    [
        ([("x", 1), ("x", 2), ("x", 1)], ("('x', 1)", "('x', 2)")),
        ([1, 2, 1], (1, 2)),
        (np.array([3, -1, 3], np.int8), (3, -1)),
        ([1, "a", 1], (1, "a")),
        (np.array([True, False, True]), ("True", "False")),
    ],
)
def test_groups_are_any_hashables(groups, clients):
    fed = Federation.from_arrays(np.eye(3), [0.5, 1.5, 2.5], groups)
    assert fed.clients == clients
    assert [type(name) for name in fed.clients] == [type(name) for name in clients]
    assert fed.names == tuple(map(str, clients))
    assert fed.y[0].tolist() == [0.5, 2.5]
    assert fed.classes is None


@pytest.mark.parametrize("more", [-1, 1])
def test_lists_have_one_entry_for_each_client(more):
    fed = example()[-1]
    lists = (list(fed.y) * 2)[: 4 + more]
    with pytest.raises(ValueError, match=f"one array for each of the 4 clients, got {4 + more}"):
        fed.with_targets(lists)


def test_right_arrays_are_not_copied():
    X, y, _, _ = example()
    fed = Federation.from_arrays(X, y, np.repeat(np.arange(4), 10))
    assert np.shares_memory(fed.X[2], X)
    assert np.shares_memory(fed.block(2).X, X)
    assert fed.block(2).X.shape == (1, 10, 3)
    assert fed.pooled().n_clients == 1


@LAWS
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 5),
)
def test_blocks_hold_every_row_once_with_its_share(sizes, size, weighted, seed):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    weights = rng.random(n) + 0.1 if weighted else None
    fed = Federation.from_arrays(
        X,
        y,
        np.repeat(np.arange(len(sizes)), sizes),
        sample_weight=weights,
        columns={"row": np.arange(n)},
    )
    blocks, batches = fed.blocks(size), [*fed.batches()]
    assert all(block.y.shape[0] <= size for block in blocks)
    for parts in (blocks, batches):
        assert sorted(i for block in parts for i in block.index) == list(range(len(sizes)))
        assert [block.y.shape[1] for block in parts] == sorted(block.y.shape[1] for block in parts)
    for block in (*blocks, *batches):
        for k, i in enumerate(block.index):
            m = sizes[i]
            own = fed.block(int(i))
            assert block.names[k] == fed.clients[i] == own.names[0]
            for field in ("X", "y", "share"):
                np.testing.assert_array_equal(getattr(block, field)[k, :m], getattr(own, field)[0])
            np.testing.assert_array_equal(block.columns["row"][k, :m], own.columns["row"][0])
            assert not block.share[k, m:].any()
            assert not block.X[k, m:].any()
            assert abs(block.share[k].sum() - 1) <= 1e-15 * 9  # a sum of at most nine rounded terms
            assert set(block.y[k]) <= set(own.y[0])


def test_blocks_are_few_for_small_clients_and_copy_no_large_one():
    def of(rows: int, clients: int, d: int) -> Federation:
        X = np.zeros((rows * clients, d))
        return Federation.from_arrays(X, X[:, 0], np.repeat(np.arange(clients), rows))

    assert [block.y.shape for block in of(2, 3000, 4).blocks()] == 2 * [(1024, 2)] + [(952, 2)]
    assert len(of(100, 200, 20).blocks()) == 2  # room for a matrix of every client: 131 of them
    large = of(7000, 3, 20)
    shared = [np.shares_memory(b.X, x) for b, x in zip(large.blocks(), large.X, strict=True)]
    assert shared == 3 * [True]
    assert len(of(400, 3, 350).blocks()) == 1  # a matrix over the features is as large as the rows


def test_batches_are_few_and_copy_no_large_client():
    X, y = np.arange(9003.0).reshape(3001, 3), np.zeros(3001)
    fed = Federation.from_arrays(X, y, np.r_[np.zeros(2001), np.arange(1, 1001)].astype(int))
    many, one = fed.batches()
    assert many.X.shape == (1000, 1, 3)
    assert np.shares_memory(one.X, fed.X[0])
    sparse = Federation.from_arrays(sp.csr_array(X), y, np.repeat(np.arange(3001), 1))
    assert [block.X.shape for block in sparse.batches()] == [(3001, 3)]


def test_sizes_are_those_of_the_rows_that_a_federation_has_now():
    _, _, _, fed = example()
    before = fed.sizes
    assert fed.sizes is before
    train, test = fed.split(0.5)
    assert (train.sizes + test.sizes).tolist() == before.tolist()
    assert fed.pooled().sizes.tolist() == [40]
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 1


def test_shares_are_normalised_weights():
    fed = Federation.from_arrays(np.eye(3), [0, 1, 1], [0, 0, 1], sample_weight=[1, 3, 5])
    assert fed.share(0).tolist() == [0.25, 0.75]
    assert fed.share(1).tolist() == [1.0]


@LAWS
@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 3), st.integers(1, 4))
def test_split_keeps_both_sides_and_the_classes_in_proportion(n, test, seed, n_classes):
    y = np.random.default_rng(n).integers(0, n_classes, n)
    X = np.arange(n, dtype=float)[:, None]
    train, held = Federation.from_arrays(X, y, ["a"] * n).split(test, seed)
    assert sorted([*train.X[0][:, 0], *held.X[0][:, 0]]) == X[:, 0].tolist()
    assert len(held.y[0]) == min(max(round(test * n), 1), n - 1)
    share = len(held.y[0]) / n
    for label in range(n_classes):
        assert abs((held.y[0] == label).sum() - share * (y == label).sum()) <= 1 + 1e-9


def test_split_depends_on_the_own_name_only():
    X, y, groups, fed = example()
    more = Federation.from_arrays(
        np.r_[np.ones((5, 3)), X], np.r_[np.ones(5, int), y], ["new"] * 5 + groups.tolist()
    )
    for own, other in zip(fed.split(0.3, 7), more.split(0.3, 7), strict=True):
        for i in range(4):
            np.testing.assert_array_equal(own.X[i], other.X[i + 1])
    assert any(
        (a != b).any() for a, b in zip(fed.split(0.3, 7)[1].X, fed.split(0.3, 8)[1].X, strict=True)
    )


def test_a_client_with_one_row_is_in_train_only():
    train, held = Federation.from_arrays(np.eye(4), [0, 1, 0, 1], ["a", "b", "b", "b"]).split()
    assert (train.clients, held.clients) == (("a", "b"), ("b",))
    with pytest.raises(ValueError, match="nothing can be held out"):
        train.restrict(["a"]).split()
    with pytest.raises(ValueError, match=r"test must lie in \(0, 1\), got 1"):
        train.split(1)


def test_sparse_rows_stay_sparse():
    dense = np.array([[0, 1.0, 0], [2, 0, 0], [0, 0, 3], [4, 5, 0]])
    fed = Federation.from_arrays(sp.coo_array(dense), [0, 1, 0, 1], [0, 1, 0, 1])
    assert all(sp.issparse(x) and x.format == "csr" for x in fed.X)
    blocks = fed.blocks()
    assert [block.index.tolist() for block in blocks] == [[0, 1]]
    w, s = np.array([1.0, -2.0, 0.5]), np.array([[0.25, 0.75], [1.0, 2.0]])
    np.testing.assert_array_equal(blocks[0].forward(w), (dense @ w)[[[0, 2], [1, 3]]])
    np.testing.assert_array_equal(blocks[0].backward(s)[1], dense[[1, 3]].T @ s[1])
    np.testing.assert_array_equal(fed.pooled().X[0].toarray(), dense[[0, 2, 1, 3]])
    train, held = fed.split(0.5)
    assert train.sizes.tolist() == held.sizes.tolist() == [1, 1]


@LAWS
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 99))
def test_a_block_of_sparse_clients_is_that_of_their_dense_rows(sizes, d, seed):
    rng = np.random.default_rng(seed)
    X = [np.where(rng.random((m, d)) < 0.6, 0.0, rng.standard_normal((m, d))) for m in sizes]
    y = [rng.integers(0, 2, m).astype(float) for m in sizes]
    weight = [rng.random(m) + 0.1 for m in sizes]
    names = list(range(len(sizes)))
    feds = [
        Federation(names, rows, y, sample_weight=weight) for rows in (X, [*map(sp.csr_array, X)])
    ]
    dense, thin = (fed.blocks()[0] for fed in feds)
    n, m = dense.y.shape
    for some in (np.arange(n), np.arange(n)[::-2], np.array([n - 1])):
        one, other = dense.part(some), thin.part(some)
        assert sp.issparse(other.X)
        s, w = rng.standard_normal((len(some), m)), rng.standard_normal((len(some), d))
        for model in (w[0], w):
            np.testing.assert_allclose(other.forward(model), one.forward(model), atol=1e-14)
        for name in ("backward", "gram", "grams"):
            expected = getattr(one, name)(s)
            np.testing.assert_allclose(getattr(other, name)(s), expected, atol=1e-13)
        np.testing.assert_allclose(other.longest(), one.longest(), rtol=1e-14)
        np.testing.assert_allclose(other.squares(), one.squares(), rtol=1e-14, atol=1e-300)
        for i in range(len(some)):
            np.testing.assert_array_equal(other.rows(i).toarray(), one.rows(i))
        for field in ("y", "share", "index"):
            np.testing.assert_array_equal(getattr(other, field), getattr(one, field))
        assert other.names == one.names


def test_sparse_blocks_hold_no_large_client_and_few_gradients(monkeypatch):
    fed = Federation.from_arrays(sp.csr_array(np.eye(40)), np.zeros(40), np.arange(40) // 4)
    assert [len(block.names) for block in fed.blocks(4)] == [4, 4, 2]
    monkeypatch.setattr("bonafed.data.federation.BATCH", 120)
    assert [len(block.names) for block in fed.blocks()] == [3, 3, 3, 1]
    assert [len(block.names) for block in fed.batches()] == [3, 3, 3, 1]
    monkeypatch.setattr("bonafed.data.federation.THIN", 3)
    for blocks in (fed.blocks(), [*fed.batches()]):
        assert [block.index.tolist() for block in blocks] == [[i] for i in range(10)]
        assert all(block.X is X for block, X in zip(blocks, fed.X, strict=True))


def test_a_sparse_matrix_of_the_caller_is_not_changed():
    twice = sp.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    fed = Federation(("a",), (twice,), ([1.0],))
    assert fed.X[0].toarray().tolist() == [[0, 2]]
    assert twice.nnz == 2


def test_pooled_with_a_prior_weighs_clients():
    _, _, _, fed = example(clients=3, sample_weight=np.linspace(1, 2, 40))
    q = dict(zip(fed.clients, (0.2, 0.3, 0.5), strict=True))
    pooled = fed.pooled(q)
    losses = [x.sum(1) for x in fed.X]
    by_client = sum(q[name] * (fed.share(i) @ losses[i]) for i, name in enumerate(fed.clients))
    assert pooled.clients == ("pooled",)
    np.testing.assert_allclose(pooled.share(0) @ np.concatenate(losses), by_client, rtol=1e-12)
    plain = fed.pooled()
    np.testing.assert_allclose(
        plain.share(0) @ np.concatenate(losses),
        np.average(np.concatenate(losses), weights=np.concatenate(fed.sample_weight)),
        rtol=1e-12,
    )
    with pytest.raises(ValueError, match="sum to 1"):
        fed.pooled([0.5, 0.2, 0.2])
    with pytest.raises(ValueError, match="prior by client name has no entry for 1, 2: "):
        fed.pooled({0: 1.0})


def test_text_targets_are_coded_before_use():
    fed = Federation.from_arrays(np.eye(3), ["sick", "well", "sick"], [0, 0, 1])
    assert fed.classes.tolist() == ["sick", "well"]
    with pytest.raises(ValueError, match=r"problem.at\(federation\)"):
        fed.blocks()
    coded = fed.with_targets([np.where(y == "well", 1.0, -1.0) for y in fed.y])
    assert coded.blocks()[0].y.dtype == np.float64
    assert coded.X[0] is fed.X[0]
    assert coded.classes is fed.classes
    with pytest.raises(
        ValueError, match="client 0: targets must have one entry for each of its 2 rows"
    ):
        fed.with_targets([[1.0], [1.0]])


def test_restrict_keeps_the_order_and_names_what_is_unknown():
    *_, fed = example()
    assert fed.restrict(["2", 0]).clients == (0, 2)
    assert fed.restrict(2).clients == fed.restrict("2").clients == (2,)
    assert fed.restrict(["3"]).classes.tolist() == [0, 1]
    with pytest.raises(ValueError, match="no client '5'"):
        fed.restrict(["5"])
    named = Federation(("north", "south"), (np.ones((1, 1)),) * 2, ([0.0], [1.0]))
    with pytest.raises(ValueError, match=r"no client 'nroth'.* Did you mean 'north'"):
        named.restrict("nroth")


def test_digests_follow_every_number_and_nothing_else():
    X, y, groups, fed = example(clients=2)
    assert fed.digests() == Federation.from_arrays(X.astype(">f8"), y, groups).digests()
    assert len(set(fed.digests())) == 2
    other = X.copy()
    other[0, 0] = np.nextafter(other[0, 0], 9)
    changed = Federation.from_arrays(other, y, groups).digests()
    assert changed[0] != fed.digests()[0]
    assert changed[1] == fed.digests()[1]
    assert Federation.from_arrays(X, 1 - y, groups).digests()[1] != fed.digests()[1]
    assert (
        Federation.from_arrays(X, y, groups, sample_weight=np.linspace(1, 2, 40)).digests()[1]
        != fed.digests()[1]
    )
    assert Federation.from_arrays(sp.csr_array(X), y, groups).digests()[1] != fed.digests()[1]


@pytest.mark.parametrize(
    ("X", "y", "groups", "text"),
    [
        (
            [[1.0], [np.nan]],
            [0, 1],
            ["a", "b"],
            r"client 'b': X has 1 value .* column 'x0', in row 0",
        ),
        ([[1.0], [np.inf]], [0, 1], ["a", "a"], r"client 'a'.* row 1"),
        (
            [[1.0], [2.0]],
            [0.0, np.nan],
            ["a", "b"],
            "client 'b': y is missing or infinite in row 0",
        ),
        ([[1.0], [2.0]], np.array([None, "x"]), ["a", "b"], "client 'a': y is missing in row 0"),
        (
            [[1.0], [2.0]],
            np.array([1, "x"], object),
            ["a", "a"],
            "mixes text with other values; there is text in row 1",
        ),
        ([[1.0], [2.0]], [0, 1], ["a", None], "groups: 1 missing entry, in row 1"),
        ([[1.0], [2.0]], [0, 1], ["a"], "groups must have one entry for each of the 2 rows"),
        ([[1.0], [2.0]], [0, 1], np.array(["1", 1], object), "distinct, got '1'"),
        ([["a"], ["b"]], [0, 1], ["a", "b"], "X must hold numbers"),
        ([1.0, 2.0], [0, 1], ["a", "b"], "rows and features"),
        ([[1.0], [2.0]], [0, 1, 1], ["a", "b"], r"y must have shape \(2,\)"),
        ([[1.0], [2.0]], [1j, 1], ["a", "b"], "numbers, booleans or text"),
        (np.zeros((0, 1)), [], [], "no rows"),
        (np.zeros((2, 0)), [0, 1], ["a", "b"], "no features"),
        (
            [[1e200], [1.0]],
            [0, 1],
            ["a", "b"],
            r"client 'a': X .* absolute value that is too large \(1e\+200\) in row 0",
        ),
        (
            [[1e-200], [0.0]],
            [0, 1],
            ["a", "b"],
            r"client 'a': X .* absolute value that is too small \(1e-200\)",
        ),
        ([[1.0], [2.0]], [1e200, 1.0], ["a", "b"], "client 'a': y has a largest absolute value"),
    ],
)
@pytest.mark.usefixtures("not_private")
def test_bad_arrays_are_refused(X, y, groups, text):
    with pytest.raises(ValueError, match=text):
        Federation.from_arrays(X, y, groups)


@pytest.mark.usefixtures("not_private")
def test_bad_clients_are_refused():
    a, b = np.ones((2, 2)), np.ones((1, 3))
    with pytest.raises(ValueError, match="client 'b' has 3 features, but client 'a' has 2"):
        Federation(("a", "b"), (a, b), ([0, 1], [1]))
    with pytest.raises(ValueError, match="client 'b' has no rows"):
        Federation(("a", "b"), (a, a[:0]), ([0, 1], np.zeros(0, int)))
    with pytest.raises(ValueError, match="X has 2 rows but y has 1"):
        Federation(("a",), (a,), ([0],))
    with pytest.raises(ValueError, match=r"text at client 'b'|integers at client 'a'"):
        Federation(("a", "b"), (a, a), ([0, 1], ["x", "y"]))
    with pytest.raises(
        ValueError, match="the target is none of the classes 0, 1: it is 2 in row 1"
    ):
        Federation(("a",), (a,), ([0, 2],), classes=[0, 1])
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        Federation(("a",), (a,), ([0, 1],), sample_weight=([0.0, 0.0],))
    with pytest.raises(ValueError, match="feature_names must be 2 distinct"):
        Federation(("a",), (a,), ([0, 1],), feature_names=("u", "u"))
    with pytest.raises(ValueError, match="at least one client"):
        Federation((), (), ())
    with pytest.raises(ValueError, match=r"client 'a'.*column 'x1', in row 1"):
        Federation(("a",), (sp.csr_array([[0, 0], [0, np.nan]]),), ([0, 1],))


def test_one_class_clients_and_declared_classes_are_legal():
    fed = Federation(("a", "b"), (np.ones((1, 1)),) * 2, ([0.0], [0.0]), classes=[1, 0])
    assert fed.classes.tolist() == [0, 1]


def test_inputs_are_not_changed():
    X, y, groups, _ = example()
    before = X.copy(), y.copy(), groups.copy()
    fed = Federation.from_arrays(X, y, groups)
    fed.blocks(), fed.split(), fed.pooled("uniform"), fed.digests()
    for now, then in zip((X, y, groups), before, strict=True):
        np.testing.assert_array_equal(now, then)
