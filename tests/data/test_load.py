import dataclasses
import gzip
import hashlib
import os
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from bonafed.data import load
from bonafed.data import load as sources
from bonafed.data.federation import Federation
from bonafed.runs.splits import named

REAL = pytest.mark.skipif(
    not os.environ.get("BONAFED_DATA"), reason="BONAFED_DATA names no data directory"
)


@pytest.fixture
def nowhere(monkeypatch):
    monkeypatch.delenv("BONAFED_DATA", raising=False)


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


def test_the_four_hospitals_of_the_heart_disease_data_are_those_of_uci():
    by_name = load.heart_disease_tables()
    sizes = {"Cleveland": 303, "Budapest": 294, "Zurich-Basel": 123, "Long Beach": 200}
    ill = {"Cleveland": 139, "Budapest": 106, "Zurich-Basel": 115, "Long Beach": 149}
    assert {name: len(table["age"]) for name, table in by_name.items()} == sizes
    assert {name: (t["diagnosis"] == "ill").sum() for name, t in by_name.items()} == ill
    patients = [name for table in by_name.values() for name in table["patient"].tolist()]
    assert len({*patients}) == 918
    assert min(np.nanmin(table["blood_pressure"]) for table in by_name.values()) == 80
    fed = load.heart_disease()
    assert fed.clients == (*sizes,)
    assert not any("cholesterol" in name or "patient" in name for name in fed.feature_names)
    np.testing.assert_allclose(np.concatenate(fed.X)[:, 0].mean(), 0, atol=1e-12)


@REAL
def test_the_heart_disease_data_are_the_published_files():
    files = {"Cleveland": "cleveland", "Budapest": "hungarian", "Zurich-Basel": "switzerland"}
    files["Long Beach"] = "va"
    numbers = ("age", "male", "", "blood_pressure", "", "", "", "heart_rate", "exercise_angina")
    for hospital, table in load.heart_disease_tables().items():
        path = Path(os.environ["BONAFED_DATA"]) / f"heart4/processed.{files[hospital]}.data"
        lines = [line.split(",") for line in path.read_text("ascii").split()]
        for k, name in enumerate((*numbers, "st_depression")):
            stated = np.array([float(line[k].replace("?", "nan")) for line in lines])
            if name == "blood_pressure":
                stated[stated == 0] = np.nan
            if name:
                np.testing.assert_array_equal(table[name].astype(float), stated)
        pains = ["typical angina", "atypical angina", "non-anginal pain", "asymptomatic"]
        traces = {"0": "normal", "1": "ST-T wave", "2": "hypertrophy", "?": "not recorded"}
        assert table["chest_pain"].tolist() == [pains[int(float(line[2])) - 1] for line in lines]
        assert table["ecg"].tolist() == [traces[line[6].removesuffix(".0")] for line in lines]
        assert table["diagnosis"].tolist() == [
            "healthy" if line[-1] == "0" else "ill" for line in lines
        ]


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
    np.testing.assert_array_equal(
        study.drifted.X[0][:, moved], 1.2 * study.test.X[0][:, moved] + 0.5
    )
    assert study.train.schema is study.unseen.schema


def test_available_says_what_is_here(nowhere, tmp_path):
    listed = {line.name: line for line in load.available()}
    assert [name for name, line in listed.items() if line.present] == [
        "breast_cancer",
        "heart_disease",
    ]
    assert (listed["adult"].rows, listed["adult"].columns) == (48842, 14)
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("")
    assert [line.name for line in load.available(tmp_path) if line.present] == [
        "breast_cancer",
        "heart_disease",
        "titanic",
    ]


def test_every_data_set_that_is_listed_can_be_named():
    assert named() == ["hospitals", *(line.name for line in load.available())]
    for name in named()[1:]:
        assert callable(getattr(load, name))
        assert name in load.__all__


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("shl", "www.shl-dataset.org under terms"),
        ("person_activity", "archive.ics.uci.edu/dataset/196"),
        ("utkface", "susanqq.github.io/UTKFace .* not commercial"),
        ("adult_b", r"heyaudace/ml-bias-fairness .* `load.adult\(\)`"),
    ],
)
def test_what_no_loader_reads_says_where_it_is_to_be_had(name, where, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{name} .* is not here: .*{where}"):
        getattr(load, name)()
    (line,) = [line for line in load.available(tmp_path) if line.name == name]
    assert line.absent
    assert not line.present


def test_a_wrong_file_is_refused(nowhere, tmp_path, monkeypatch):
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("1,2,3,1\n")
    with pytest.raises(
        ValueError,
        match=r"titanic.csv is not the file that titanic was checked with: sha256 \w+, needed",
    ):
        load.titanic(data_dir=tmp_path)
    monkeypatch.setenv("BONAFED_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"BONAFED_DATA names '.*none', .* not a folder"):
        load.titanic()


def test_a_right_checksum_does_not_excuse_a_wrong_shape(nowhere, tmp_path, monkeypatch):
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("1,2,3,1\n4,5,6,-1\n")
    digest = hashlib.sha256((tmp_path / "keel" / "titanic.csv").read_bytes()).hexdigest()
    source = dataclasses.replace(sources.SOURCES["titanic"], files={"keel/titanic.csv": digest})
    monkeypatch.setitem(sources.SOURCES, "titanic", source)
    with pytest.raises(
        ValueError, match=r"titanic should have shape \(2201, 3\) .* got \(2, 3\) and \(1, 1\)"
    ):
        load.titanic(data_dir=tmp_path)
    monkeypatch.setitem(
        sources.SOURCES, "titanic", dataclasses.replace(source, rows=2, counts=(1, 1))
    )
    X, y, names = load.titanic(data_dir=tmp_path)
    assert X.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert y.tolist() == [1, 0]
    assert names == ("class", "age", "sex")


def small(folder, monkeypatch, name, file, text, **shape):
    """A data set with a small file of its own in place of the published one."""
    path = folder / "keel" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    files = {f"keel/{file}": hashlib.sha256(path.read_bytes()).hexdigest()}
    monkeypatch.setitem(
        sources.SOURCES, name, dataclasses.replace(sources.SOURCES[name], files=files, **shape)
    )


def test_the_letters_of_splice_are_their_places_in_the_alphabet(nowhere, tmp_path, monkeypatch):
    lines = "EI,  A-1,   ACGT\nIE,  B-2,   TTAN\nN,  C-3,   GDSR\n"
    small(tmp_path, monkeypatch, "splice", "splice.data", lines, rows=3, columns=4, counts=(1, 2))
    X, y, _ = load.splice(tmp_path)
    assert X.tolist() == [[1, 3, 7, 20], [20, 20, 1, 14], [7, 4, 19, 18]]
    assert y.tolist() == [1, 1, 0]  # both kinds of junction against none
    small(tmp_path, monkeypatch, "splice", "splice.data", lines, rows=3, columns=4, counts=(2, 1))
    with pytest.raises(ValueError, match="splice should have shape"):
        load.splice(tmp_path)


def test_splice_of_openml_is_that_of_the_file(nowhere, tmp_path, monkeypatch):
    small(
        tmp_path,
        monkeypatch,
        "splice",
        "splice.data",
        "EI, A, AC\nN, B, GT\n",
        rows=2,
        columns=2,
        counts=(1, 1),
    )

    def fetch(**options):
        assert options["data_id"] == 46
        letters = ["A", "C", "G", "T"]
        return Bunch(
            data=np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]),
            target=np.array(["EI", "N"], object),
            feature_names=["Instance_name", "attribute_1", "attribute_2"],
            categories={
                "Instance_name": ["A", "B"],
                "attribute_1": letters,
                "attribute_2": letters,
            },
        )

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    fetched, filed = load.splice(), load.splice(tmp_path)
    np.testing.assert_array_equal(fetched.X, filed.X)
    np.testing.assert_array_equal(fetched.y, filed.y)
    assert fetched.feature_names == filed.feature_names


def test_small_files_of_the_other_ranked_data_sets(nowhere, tmp_path, monkeypatch):
    two = {"rows": 2, "counts": (1, 1)}
    small(
        tmp_path,
        monkeypatch,
        "monks_3",
        "monks-3.test",
        " 1 1 2 1 3 2 1 data_1\n 0 3 3 2 3 4 2 data_2\n",
        **two,
    )
    assert load.monks_3(tmp_path).X.tolist() == [[1, 2, 1, 3, 2, 1], [3, 3, 2, 3, 4, 2]]
    assert load.monks_3(tmp_path).y.tolist() == [1, 0]
    small(
        tmp_path,
        monkeypatch,
        "phoneme",
        "phoneme.csv",
        "1.24,.8,-.2,-.07,.06,0\n.2,1.3,1,-.3,.2,1\n",
        **two,
    )
    assert load.phoneme(data_dir=tmp_path).X[0].tolist() == [1.24, 0.8, -0.2, -0.07, 0.06]
    assert load.phoneme(data_dir=tmp_path).y.tolist() == [0, 1]
    row = "2208,1146,2,4,4,1585,0,0,0,1,2,100,1213"
    small(tmp_path, monkeypatch, "australian", "australian.csv", f"1,{row},0\n0,{row},1\n", **two)
    assert load.australian(data_dir=tmp_path).X[1].tolist() == [0, *map(int, row.split(","))]
    assert load.australian(data_dir=tmp_path).y.tolist() == [0, 1]


def packed(folder, monkeypatch, name, arrays, **shape):
    """A data set with small arrays in place of the published ones."""
    (file,) = sources.SOURCES[name].files
    (folder / file).parent.mkdir(exist_ok=True)
    np.savez(folder / file, **arrays)
    digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    source = dataclasses.replace(sources.SOURCES[name], files={file: digest}, **shape)
    monkeypatch.setitem(sources.SOURCES, name, source)


def test_images_by_writer_have_the_pixels_of_mnist(nowhere, tmp_path, monkeypatch):
    images = np.zeros((4, 784), np.uint8)
    images[:, 0] = [0, 51, 102, 255]
    y = np.array([3, 1, 3, 1], np.uint8)
    split = {"x_train": images[:3], "y_train": y[:3], "x_test": images[3:], "y_test": y[3:]}
    monkeypatch.setattr(load, "_part", lambda part, _: slice(3) if part == "train" else slice(3, 4))
    shape = {"rows": 4, "counts": (2, 2)}
    packed(tmp_path, monkeypatch, "mnist", split, **shape)
    packed(tmp_path, monkeypatch, "fashion_mnist", split, **shape)
    labels = {"train": [[3, 0, 77, 5], [1, 4, 21, 5], [3, 0, 77, 6]], "test": [[1, 0, 8, 0]] * 2}
    packed(tmp_path, monkeypatch, "qmnist", labels, **shape)
    fed = load.qmnist(data_dir=tmp_path)
    assert fed.clients == (77, 21)
    assert [x[:, 0].tolist() for x in fed.X] == [[0, 0.4], [0.2]]
    assert [labels.tolist() for labels in fed.y] == [[3, 3], [1]]
    assert load.qmnist("test", tmp_path).clients == (8,)  # MNIST has one
    assert load.fashion_mnist("test", tmp_path).X[:, 0].tolist() == [1]
    packed(tmp_path, monkeypatch, "qmnist", labels | {"train": [[2, 0, 77]] * 3})
    with pytest.raises(ValueError, match="not those of the images"):
        load.qmnist(data_dir=tmp_path)


def test_a_recording_is_cut_into_windows_of_one_activity_and_person(nowhere, tmp_path, monkeypatch):
    y = np.array([0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0])
    x = np.zeros((12, 3), np.uint16)
    x[:, 0] = [9, 1, 3, 5, 5, 9, 4, 4, 9, 4, 8, 9]
    arrays = {"x": x, "y": y.astype(np.uint8), "offsets": [0, 9, 12]}
    packed(tmp_path, monkeypatch, "scma", arrays, rows=12, counts=(2, 5, 5))
    fed = load.scma(tmp_path, window=2)
    assert fed.clients == ("1", "2")
    # samples 1-2 and 3-4 of activity 1, 6-7 and (of the second person) 9-10 of activity 2
    assert [y.tolist() for y in fed.y] == [[1, 1, 2], [2]]
    means = np.concatenate(fed.X)[:, fed.feature_names.index("mean x")]
    expected = np.array([2, 5, 4, 6])
    np.testing.assert_allclose(means, (expected - expected.mean()) / expected.std())
    changes = np.concatenate(fed.X)[:, fed.feature_names.index("change x")]
    expected = np.array([2, 0, 0, 4])
    np.testing.assert_allclose(changes, (expected - expected.mean()) / expected.std())


def test_small_files_of_the_further_ranked_data_sets(nowhere, tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    (tmp_path / "libsvm").mkdir()
    texts = {"uci/ad.data.gz": b" 125, 125,   1.0,1,ad.\n   ?, 60, ?,0,nonad.\n"}
    texts |= {"libsvm/svmguide1.gz": b"1 1:2.5e+01 2:-3 3:4 4:5 \n"}
    texts |= {"libsvm/svmguide1.t.gz": b"0 1:6 2:7 3:8 4:9.5\n"}
    digests = {}
    for file, text in texts.items():
        (tmp_path / file).write_bytes(gzip.compress(text))
        digests[file] = hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()
    for name, columns in (("advertisements", 4), ("svmguide1", 4)):
        old = sources.SOURCES[name]
        files = {file: digests[file] for file in old.files}
        new = dataclasses.replace(old, files=files, rows=2, columns=columns, counts=(1, 1))
        monkeypatch.setitem(sources.SOURCES, name, new)
    X, y, names = load.advertisements(tmp_path)
    assert (X.tolist(), y.tolist(), names[3]) == ([[125, 125, 1, 1]], [1], "feature_4")
    assert np.isnan(load.advertisements(tmp_path, missing="keep").X).sum() == 2
    X, y, _ = load.svmguide1("all", tmp_path)
    assert X.tolist() == [[25, -3, 4, 5], [6, 7, 8, 9.5]]
    assert y.tolist() == [1, 0]


def test_without_network_the_manual_path_is_named(nowhere, monkeypatch):
    def offline(**_):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(
        FileNotFoundError,
        match=r"data set 53\).*Put uci/statlog-heart.dat into a folder.*BONAFED_DATA",
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
    monkeypatch.setitem(
        sources.SOURCES, "heart", dataclasses.replace(sources.SOURCES["heart"], counts=(151, 119))
    )
    with pytest.raises(ValueError, match="another version of the data"):
        load.heart()


def test_unknown_options_are_refused():
    for call, text in (
        (lambda: load.mnist("both"), "part must be"),
        (lambda: load.monks(2), "problem must be 1 or 3"),
        (lambda: load.monks(3, "train"), "test rows only"),
        (lambda: load.australian("uci"), "version must be"),
        (lambda: load.breast_cancer_wisconsin(missing="mean"), "missing must be"),
        (lambda: load.advertisements(missing="mean"), "missing must be 'drop' or 'keep'"),
        (lambda: load.qmnist("all"), "part must be 'train' or 'test'"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


@REAL
@pytest.mark.parametrize(
    "name",
    [
        "heart",
        "abalone",
        "australian",
        "phoneme",
        "titanic",
        "splice",
        "monks",
        "monks_1",
        "monks_3",
    ],
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
    assert np.bincount(load.advertisements().y).tolist() == [1978, 381]
    parts = [np.bincount(load.svmguide1(part).y).tolist() for part in ("train", "test")]
    assert parts == [[1089, 2000], [2000, 2000]]
    assert np.bincount(load.fashion_mnist("test").y).tolist() == [1000] * 10
    train, test = load.qmnist("train"), load.qmnist("test")
    assert (train.n_clients, test.n_clients) == (539, 297)
    assert not {*train.clients} & {*test.clients}
    people = load.scma()
    assert (people.n_clients, people.sizes.sum()) == (15, 36918)
    assert all({*y.tolist()} == {*range(1, 8)} for y in people.y)


@REAL
def test_adult_becomes_a_federation():
    table, target, recipe = load.adult("test")
    assert np.unique(table[target], return_counts=True)[1].tolist() == [12435, 3846]
    fed = Federation.from_frame(table, client="race", target=target, schema=recipe)
    assert "workclass is missing" in fed.feature_names
    assert fed.n_clients == 5
