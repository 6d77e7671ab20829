import dataclasses
import hashlib
import os
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from quorate.data import load, sources
from quorate.data.federation import Federation
from quorate.parts import named

REAL = pytest.mark.skipif(not os.environ.get("QUORATE_DATA"), reason="QUORATE_DATA names no data directory")


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.delenv("QUORATE_DATA", raising=False)


def test_hospitals_differ_but_have_both_classes():
    fed = load.hospitals()
    assert fed.clients == load.HOSPITALS
    assert fed.classes.tolist() == ["benign", "malignant"]
    assert fed.sizes.sum() == 569
    shares = np.array([(y == "malignant").mean() for y in fed.y])
    assert shares.min() > 0.05
    assert shares.max() - shares.min() > 0.4
    means = np.array([x.mean(0) for x in fed.X])
    assert (means.max(0) - means.min(0)).max() > 1  # standard deviations
    assert fed.digests() == load.hospitals().digests()
    assert fed.digests() != load.hospitals(seed=1).digests()


def test_the_study_fits_on_training_rows_only():
    study = load.hospital_study(seed=3)
    assert study.unseen.clients == load.UNSEEN
    assert set(study.train.clients) == set(load.HOSPITALS) - set(load.UNSEEN)
    assert study.test.clients == study.drifted.clients == study.train.clients
    rows = np.concatenate(study.train.X)
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.std(0), 1, rtol=1e-12)
    assert abs(np.concatenate(study.test.X).mean(0)).max() > 1e-3
    moved = [name.startswith("mean ") for name in study.test.feature_names]
    np.testing.assert_array_equal(study.drifted.X[0][:, moved], 1.2 * study.test.X[0][:, moved] + 0.5)
    assert study.train.schema is study.unseen.schema


def test_available_says_what_is_here(nowhere, tmp_path):
    listed = {line.name: line for line in load.available()}
    assert [name for name, line in listed.items() if line.present] == ["breast_cancer"]
    assert (listed["adult"].rows, listed["adult"].columns) == (48842, 14)
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("")
    assert [line.name for line in load.available(tmp_path) if line.present] == ["breast_cancer", "titanic"]


def test_every_data_set_that_is_listed_can_be_named():
    assert named() == ["hospitals", *(line.name for line in load.available())]
    for name in named()[1:]:
        assert callable(getattr(load, name))
        assert name in load.__all__


def test_a_wrong_file_is_refused(nowhere, tmp_path, monkeypatch):
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("1,2,3,1\n")
    with pytest.raises(
        ValueError, match=r"titanic.csv is not the file that titanic was checked with: sha256 \w+, needed"
    ):
        load.titanic(data_dir=tmp_path)
    monkeypatch.setenv("QUORATE_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"QUORATE_DATA names '.*none', which is no folder"):
        load.titanic()


def test_a_right_checksum_does_not_excuse_a_wrong_shape(nowhere, tmp_path, monkeypatch):
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("1,2,3,1\n4,5,6,-1\n")
    digest = hashlib.sha256((tmp_path / "keel" / "titanic.csv").read_bytes()).hexdigest()
    source = dataclasses.replace(sources.SOURCES["titanic"], files={"keel/titanic.csv": digest})
    monkeypatch.setitem(sources.SOURCES, "titanic", source)
    with pytest.raises(ValueError, match=r"titanic should have shape \(2201, 3\) .* got \(2, 3\) and \(1, 1\)"):
        load.titanic(data_dir=tmp_path)
    monkeypatch.setitem(sources.SOURCES, "titanic", dataclasses.replace(source, rows=2, counts=(1, 1)))
    X, y, names = load.titanic(data_dir=tmp_path)
    assert X.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert y.tolist() == [1, 0]
    assert names == ("class", "age", "sex")


def test_without_network_the_manual_path_is_named(nowhere, monkeypatch):
    def offline(**_):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(
        FileNotFoundError, match=r"data set 53\).*Put uci/statlog-heart.dat into a folder.*QUORATE_DATA"
    ):
        load.heart()
    with pytest.raises(FileNotFoundError, match=r"Put uci/monks-1.train and uci/monks-1.test"):
        load.monks()
    with pytest.raises(FileNotFoundError, match=r"Put femnist_5pct_partial.npz"):
        load.femnist()
    with pytest.raises(FileNotFoundError, match="version='openml' fetches other numbers"):
        load.phoneme()


def test_openml_is_asked_by_id_and_decoded(nowhere, monkeypatch):
    asked = {}

    def fetch(**options):
        asked.update(options)
        rng = np.random.default_rng(0)
        data = np.column_stack([rng.integers(0, 3, 270), rng.normal(size=(270, 12))])
        return Bunch(
            data=data,
            target=np.repeat(np.array(["absent", "present"], object), [150, 120]),
            feature_names=[f"f{k}" for k in range(13)],
            categories={"f0": ["3", "6", "7"]},
        )

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    X, y, names = load.heart()
    assert asked["data_id"] == 53
    assert set(X[:, 0]) == {3, 6, 7}
    assert np.bincount(y).tolist() == [150, 120]
    assert len(names) == 13
    monkeypatch.setitem(sources.SOURCES, "heart", dataclasses.replace(sources.SOURCES["heart"], counts=(151, 119)))
    with pytest.raises(ValueError, match="another version of the data"):
        load.heart()


def test_unknown_options_are_refused():
    for call, text in (
        (lambda: load.mnist("both"), "part must be"),
        (lambda: load.monks(2), "problem must be 1 or 3"),
        (lambda: load.monks(3, "train"), "test rows only"),
        (lambda: load.australian("uci"), "version must be"),
        (lambda: load.breast_cancer_wisconsin(missing="mean"), "missing must be"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


@REAL
@pytest.mark.parametrize(
    "name", ["heart", "abalone", "australian", "phoneme", "titanic", "splice", "monks", "monks_1", "monks_3"]
)
def test_the_files_are_what_they_should_be(name):
    X, y, names = getattr(load, name)()
    assert X.shape == (len(y), len(names))  # the loader itself checks rows and class counts
    assert np.isfinite(X).all()


@REAL
def test_files_with_a_story_of_their_own():
    X, y, _ = load.breast_cancer_wisconsin()
    assert np.bincount(y).tolist() == [444, 239]
    assert np.isnan(load.breast_cancer_wisconsin(missing="keep").X).sum() == 16
    assert [len(load.monks(part=part).y) for part in ("train", "test")] == [124, 432]
    assert np.bincount(load.monks(3, "test").y).tolist() == [204, 228]
    X, y, _ = load.mnist("test")
    assert (X.min(), X.max(), len(y)) == (0, 1, 10000)
    train, test = load.femnist("train"), load.femnist("test")
    assert (train.n_clients, test.n_clients) == (114, 195)


@REAL
def test_adult_becomes_a_federation():
    table, target, recipe = load.adult("test")
    assert np.unique(table[target], return_counts=True)[1].tolist() == [12435, 3846]
    fed = Federation.from_frame(table, client="race", target=target, schema=recipe)
    assert "workclass is missing" in fed.feature_names
    assert fed.n_clients == 5
