import dataclasses
import email
import gzip
import hashlib
import io
import os
import re
import tracemalloc
from pathlib import Path
from urllib.error import URLError
from urllib.request import HTTPSHandler
from urllib.response import addinfourl

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


class Web:
    """What addresses give, in place of the network."""

    def __init__(self):
        self.pages, self.asked = {}, []

    def open(self, url, timeout):
        self.asked.append(url)
        if url not in self.pages:
            raise URLError(OSError(101, "Network is unreachable"))
        return io.BytesIO(self.pages[url])


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No data directory, no downloads of before, no network."""
    monkeypatch.delenv("BONAFED_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    web = Web()
    monkeypatch.setattr(load, "opener", lambda: web)
    return web


def files_of(contents, urls=()):
    """The pins of some files."""
    pins = [(path, len(c), hashlib.sha256(c).hexdigest()) for path, c in contents.items()]
    return [load.File(*pin, urls) for pin in pins]


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
        ("shl", "www.shl-dataset.org/download, for research under the terms"),
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
        match=r"titanic.csv is not the file that titanic was checked with: 8 bytes, sha256 \w+,"
        r" needed 48,484 bytes, sha256 e32c\w+; bytes missing: 48,476. Fetch",
    ):
        load.titanic(data_dir=tmp_path)
    monkeypatch.setenv("BONAFED_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"BONAFED_DATA names '.*none', .* not a folder"):
        load.titanic()


def test_a_right_checksum_does_not_excuse_a_wrong_shape(nowhere, tmp_path, monkeypatch):
    (tmp_path / "keel").mkdir()
    (tmp_path / "keel" / "titanic.csv").write_text("1,2,3,1\n4,5,6,-1\n")
    files = files_of({"keel/titanic.csv": (tmp_path / "keel" / "titanic.csv").read_bytes()})
    source = dataclasses.replace(sources.SOURCES["titanic"], files=files)
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
    files = files_of({f"keel/{file}": path.read_bytes()})
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
    file = sources.SOURCES[name].files[0].path
    (folder / file).parent.mkdir(exist_ok=True)
    np.savez(folder / file, **arrays)
    files = files_of({file: (folder / file).read_bytes()})
    source = dataclasses.replace(sources.SOURCES[name], files=files, **shape)
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
    texts = {"uci/ad.data": b" 125, 125,   1.0,1,ad.\n   ?, 60, ?,0,nonad.\n"}
    texts |= {"libsvm/svmguide1": b"1 1:2.5e+01 2:-3 3:4 4:5 \n"}
    texts |= {"libsvm/svmguide1.t": b"0 1:6 2:7 3:8 4:9.5\n"}
    for file, text in texts.items():
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress(text))
    for name in ("advertisements", "svmguide1"):
        old = sources.SOURCES[name]
        files = files_of({file.path: texts[file.path] for file in old.files})
        new = dataclasses.replace(old, files=files, rows=2, columns=4, counts=(1, 1))
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
        match=r"data set 53\).*Put uci/heart.dat \(16,461 bytes, sha256 f5f3b\w+\) from https://"
        r"archive.ics.uci.edu/.*/heart.dat into a folder.*BONAFED_DATA",
    ):
        load.heart()
    with pytest.raises(FileNotFoundError, match=r"monks-1-original.train .* and uci/monks-1.test"):
        load.monks()
    with pytest.raises(FileNotFoundError, match=r"Put femnist_5pct_partial.npz .*APPFL"):
        load.femnist()
    with pytest.raises(FileNotFoundError, match=r"phoneme.csv gives no such file: Network is unre"):
        load.phoneme()


# ---- laws over all sources

STORED = [s for s in sources.SOURCES.values() if s.files]
FORMS = [(s, k) for s in STORED for k in range(len(s.forms))]
KINDS = ("plain", "gzip")


def made(source, form, urls=()):
    """A source with small files in place of those of one form, and no other form."""
    texts = {file.path: f"{source.name} {file.path}\n".encode() * 99 for file in form}
    return dataclasses.replace(source, files=files_of(texts, urls), published=()), texts


def stored(folder, texts, kind):
    for file, text in texts.items():
        path = folder / f"{file}{'.gz' if kind == 'gzip' else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
    return path  # of the last one


def test_every_source_states_where_it_is_from():
    for source in sources.SOURCES.values():
        if source.absent:
            assert not source.files
            assert re.search(r"\w+\.(edu|org|com|io)\b", source.absent), source.name
            continue
        assert source.page.startswith("http") or source.name == "breast_cancer"
        assert source.files or source.name in ("breast_cancer", "heart_disease")
        assert source.name == "femnist" or all(file.urls for file in source.fetched)
    files = [file for source in STORED for form in source.forms for file in form]
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 for file in files)
    for file in files:
        assert not Path(file.path).is_absolute()
        assert ".." not in Path(file.path).parts
        for url in file.urls:
            assert url.startswith("https://")
            if "raw.githubusercontent.com" in url:  # at a commit, which does not change
                assert re.search(r"/[0-9a-f]{40}/", url)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "k"), FORMS, ids=lambda value: getattr(value, "name", value))
def test_a_damaged_truncated_or_other_file_is_refused(nowhere, tmp_path, source, k, kind):
    source, texts = made(source, source.forms[k])
    path = stored(tmp_path, texts, kind)
    assert load.contents(source, tmp_path) == texts
    file = source.files[-1]
    needed = rf"needed {file.size:,} bytes, sha256 {file.sha256}"
    name = rf"{re.escape(str(path))} is not the file that {source.name} was checked with: "
    text = texts[file.path]
    damaged = text[:50] + b"?" + text[51:]
    other = b"something else\n" * 10**4
    pack = gzip.compress if kind == "gzip" else bytes
    path.write_bytes(pack(damaged))
    digest = hashlib.sha256(damaged).hexdigest()
    with pytest.raises(
        ValueError, match=rf"{name}{len(text):,} bytes, sha256 {digest}, {needed}\."
    ):
        load.contents(source, tmp_path)
    path.write_bytes(pack(other))
    with pytest.raises(ValueError, match=rf"{name}[\d,]+ bytes( or more)?, sha256 \w+, {needed}\."):
        load.contents(source, tmp_path)
    path.write_bytes(pack(text)[:-20])  # an archive that ends early gives what it can
    with pytest.raises(ValueError, match=rf"{name}.*{needed}; bytes missing: [\d,]+\.") as told:
        load.contents(source, tmp_path)
    if kind == "plain":
        assert f"{len(text) - 20:,} bytes, sha256" in str(told.value)
        assert "bytes missing: 20." in str(told.value)


def test_an_archive_in_place_of_a_file_is_not_unpacked_beyond_its_size(nowhere, tmp_path):
    source, texts = made(sources.SOURCES["titanic"], sources.SOURCES["titanic"].files)
    path = stored(tmp_path, texts, "gzip")
    path.write_bytes(gzip.compress(bytes(10**8)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"[\d,]+ bytes or more"):
        load.contents(source, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


@pytest.mark.parametrize("source", STORED, ids=lambda source: source.name)
def test_what_an_address_gives_is_verified_and_kept(nowhere, tmp_path, source):
    urls = ("https://one.example/a", "https://two.example/b")
    source, texts = made(source, source.files[:1], urls)
    ((file, text),) = texts.items()
    with pytest.raises(FileNotFoundError) as told:
        load.contents(source, tmp_path, download=True)
    for part in (
        source.name,
        file,
        *urls,
        source.files[0].sha256,
        f"{len(text):,} bytes",
        "unreach",
    ):
        assert part in str(told.value)
    nowhere.pages = {urls[0]: text[:-1], urls[1]: text + b"?"}
    with pytest.raises(FileNotFoundError, match=r"bytes missing: 1.*two.example/b is not the"):
        load.contents(source, tmp_path, download=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # none of it is kept
    nowhere.pages[urls[1]] = gzip.compress(text)
    assert load.contents(source, tmp_path, download=True) == texts
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        f"{Path(file).name}.gz"
    ]
    nowhere.asked.clear()
    assert load.contents(source, tmp_path) == texts
    assert nowhere.asked == []


def test_downloads_go_to_the_folder_of_scikit_learn_without_a_data_directory(
    nowhere, tmp_path, monkeypatch
):
    source, texts = made(
        sources.SOURCES["titanic"], sources.SOURCES["titanic"].files, ["https://x"]
    )
    monkeypatch.setitem(sources.SOURCES, "titanic", source)
    nowhere.pages = {"https://x": texts["keel/titanic.csv"]}
    assert load.contents(source, download=True) == texts
    assert (tmp_path / "cache" / "bonafed" / "keel" / "titanic.csv").is_file()
    assert "titanic" in [line.name for line in load.available() if line.present]


def test_labels_of_images_are_here_where_the_images_are(nowhere, tmp_path):
    def here():
        return [line.name for line in load.available(tmp_path) if line.present]

    (tmp_path / "qmnist_labels.npz").write_bytes(b"")
    assert "qmnist" not in here()
    (tmp_path / "mnist.npz").write_bytes(b"")
    assert {"qmnist", "mnist"} <= {*here()}


def test_nothing_but_https_is_opened(monkeypatch):
    for url in ("http://127.0.0.1:1/a", "ftp://127.0.0.1/a", "file:///etc/hostname", "data:,a"):
        with pytest.raises(URLError, match="unknown url type"):
            load.opener().open(url, timeout=1)

    class Moved(HTTPSHandler):
        def https_open(self, request):
            headers = email.message_from_string("Location: http://127.0.0.1:1/a\n\n")
            answer = addinfourl(io.BytesIO(b""), headers, request.full_url, 302)
            answer.msg = "Found"
            return answer

    monkeypatch.setattr("urllib.request.HTTPSHandler", Moved)
    with pytest.raises(URLError, match="unknown url type: http"):
        load.opener().open("https://one.example/a", timeout=1)


def test_published_forms_are_read_as_the_others(nowhere, tmp_path, monkeypatch):
    def form(name, texts, **shape):
        stored(tmp_path, texts, "plain")
        old = sources.SOURCES[name]
        new = dataclasses.replace(old, files=(), published=files_of(texts), **shape)
        monkeypatch.setitem(sources.SOURCES, name, new)

    def idx(values, kind="u1"):
        array = np.array(values)
        first = bytes([0, 0, {"u1": 8, "i4": 12}[kind], array.ndim])
        return first + np.array(array.shape, ">u4").tobytes() + array.astype(f">{kind}").tobytes()

    two = {"rows": 2, "counts": (1, 1)}
    heart = b"70.0 1.0 4.0 1 1 1 1 1 1 1 1 1 3.0 2\n67.0 0.0 3.0 1 1 1 1 1 1 1 1 1 7.0 1\n"
    form("heart", {"uci/heart.dat": heart}, **two)
    assert load.heart(tmp_path).X[:, 0].tolist() == [70, 67]
    assert load.heart(tmp_path).y.tolist() == [1, 0]
    animal = ",1,1,1,1,1,1,1,"
    text = f"M{animal}15\nF{animal}7\nI{animal}9\n".encode()
    form("abalone", {"uci/abalone.data": text}, rows=3)
    assert load.abalone(tmp_path).X[:, 0].tolist() == [1, 2, 3]
    assert load.abalone(tmp_path).y.tolist() == [15, 7, 9]
    text = b"1000,5,1,1,1,2,?,3,1,1,2\n1001,5,4,4,5,7,10,3,2,1,4\n"
    form("breast_cancer_wisconsin", {"uci/wisconsin.data": text}, **two)
    assert load.breast_cancer_wisconsin(tmp_path, missing="keep").y.tolist() == [0, 1]
    image = np.full((28, 28), 51)
    names = ("a-images", "b-labels", "c-images", "d-labels")
    values = ([image], [3], [5 * image], [4])
    files = dict(zip(names, map(idx, values), strict=True))
    form("mnist", files, **two)
    form("fashion_mnist", files, **two)
    assert load.fashion_mnist("all", tmp_path).X[:, 9].tolist() == [0.2, 1]
    assert load.mnist("all", tmp_path).y.tolist() == [3, 4]
    monkeypatch.setattr(load, "_part", lambda part, _: slice(1) if part == "train" else slice(1, 2))
    labels = {"train-labels": idx([[3, 0, 77]], "i4"), "test-labels": idx([[4, 0, 8]], "i4")}
    form("qmnist", labels)
    assert load.qmnist("train", tmp_path).clients == (77,)
    assert load.qmnist("test", tmp_path).clients == (8,)
    people = {"1.csv": b"0,5,0,0,1\n1,7,0,0,1\n", "2.csv": b"0,9,0,0,2\n1,9,0,0,2\n"}
    form("scma", people, rows=4, counts=(2, 2))
    fed = load.scma(tmp_path, window=2)
    assert (fed.clients, [y.tolist() for y in fed.y]) == (("1", "2"), [[1], [2]])


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
