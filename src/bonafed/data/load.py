"""The data sets of the papers, and hospitals made of real patients.

Loaders return ``Arrays(X, y, feature_names)``, or ``Tabular(table, target, recipe)`` where columns
are categorical, or a federation where the rows have owners. Two classes are coded 0 and 1.
A data set comes from files in a data directory with pinned checksums, else from OpenML by its
pinned id.
"""

import csv
import gzip
import hashlib
import io
import os
import tomllib
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn
from urllib import request

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array
from bonafed.data import corrupt, partition, tables
from bonafed.data.federation import Federation
from bonafed.data.schema import Recipe, Schema
from bonafed.data.tables import Table, parsed
from bonafed.storage import write_whole
from bonafed.text import system

__all__ = ["Arrays", "HospitalStudy", "Tabular", "abalone", "adult", "adult_b", "advertisements"]
__all__ += ["australian", "available", "breast_cancer", "breast_cancer_wisconsin"]
__all__ += ["fashion_mnist", "femnist", "heart", "heart_disease", "hospital_study", "hospitals"]
__all__ += ["mnist", "monks", "monks_1", "monks_3", "person_activity", "phoneme", "qmnist", "scma"]
__all__ += ["shl", "splice", "svmguide1", "titanic", "utkface"]

Folder = str | Path | None


class Arrays(NamedTuple):
    """A data set of numbers: (n, d) features, (n,) targets and d names."""

    X: Array
    y: NDArray[Any]
    feature_names: tuple[str, ...]


class Tabular(NamedTuple):
    """A table with its target among the columns; ``recipe`` says how its features are made."""

    table: tables.Table
    target: str
    recipe: Recipe


# -------------------------------------------------------------------- hospitals

HOSPITALS = ("Northgate", "Riverside", "Saint Anne", "Lakeview", "Hillcrest", "Old Mill")
UNSEEN = ("Lakeview", "Old Mill")

OF_NUCLEI = ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity")
OF_NUCLEI += ("concave points", "symmetry", "fractal dimension")


def breast_cancer() -> Arrays:
    """569 tumours, 30 features of cell nuclei; y = "benign" or "malignant". Part of scikit-learn,
    no file needed.
    """
    # read without its package, whose import takes longer than what is done with the rows
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).with_name("datasets") / "data" / "breast_cancer.csv"
    (_, _, *classes), *rows = csv.reader(file.read_text().splitlines())
    X, y = (
        np.array([row[:-1] for row in rows], float),
        np.array([classes[int(r[-1])] for r in rows]),
    )
    validate(SOURCES["breast_cancer"], X, y)
    names = ("mean {}", "{} error", "worst {}")
    return Arrays(X, y, tuple(name.format(each) for name in names for each in OF_NUCLEI))


def hospital_tables(mix: float = 1.5, seed: int = 0) -> dict[str, tables.Table]:
    """Scikit-learn's breast-cancer patients in six invented hospitals, one table each; target
    "diagnosis".

    The hospitals see different patients: bands of the first principal component, blurred by ``mix``
    standard deviations of noise, so that features and the share of malignant tumours differ while
    each hospital has both classes.
    """
    X, y, names = breast_cancer()
    table = {"hospital": partition.hospitals(X, HOSPITALS, mix, seed), "diagnosis": y}
    table |= zip(names, X.T, strict=True)
    by_name = tables.by_client(tables.table_of(table), "hospital")
    return {name: by_name[name] for name in HOSPITALS}


def hospitals(mix: float = 1.5, seed: int = 0) -> Federation:
    """The hospitals of `hospital_tables` as a federation, features standardised over all of
    them.
    """
    return Federation.from_tables(hospital_tables(mix, seed), "diagnosis", schema=Recipe())


def heart_disease_tables() -> dict[str, tables.Table]:
    """920 records of four real hospitals, one table each, of patients who were examined for
    narrowed arteries of the heart; target "diagnosis": "ill" where an artery is narrowed by half or
    more, else "healthy". The column "patient" tells the patients apart.

    Of the 13 columns of the UCI Heart Disease data these are the eight that all four hospitals
    measured: cholesterol is 0 for every patient of Zurich and Basel, which means that it is
    missing. Source, licence and changes stand in ``sources.toml``.
    """
    columns = cells(Path(__file__).with_name("heart_disease.csv").read_bytes())
    table = Table({name: parsed(column) for name, *column in columns})
    features = np.empty((len(table["diagnosis"]), len(table) - 3))  # hospital, patient, diagnosis
    validate(SOURCES["heart_disease"], features, table["diagnosis"].astype(str))
    return tables.by_client(table, "hospital")


def heart_disease() -> Federation:
    """The hospitals of `heart_disease_tables` as a federation, numbers standardised over all of
    them, a missing one replaced by the mean.
    """
    return Federation.from_tables(
        heart_disease_tables(), "diagnosis", schema=Recipe(), person="patient"
    )


# by the names that a configuration has for them; the target of each is "diagnosis"
BY_HOSPITAL = {"hospitals": hospital_tables, "heart_disease": heart_disease_tables}


def two_groups() -> Federation:
    """200 drawn rows of the clients north and east, with a column "sex" of two values that the
    target depends on.
    """
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(200, 3)), rng.choice(["f", "m"], 200)
    y = X[:, 0] + 0.5 * (sex == "m") + rng.normal(size=200) > 0
    return Federation.from_arrays(X, y, rng.choice(["north", "east"], 200), columns={"sex": sex})


@dataclass(frozen=True)
class HospitalStudy:
    """Hospitals to train on, their held-out rows, hospitals never trained on, and rows measured by
    an instrument that drifts.
    """

    train: Federation  # four hospitals
    test: Federation  # their held-out rows
    unseen: Federation  # the two hospitals UNSEEN, never trained on
    drifted: Federation  # ``test`` with its ten "mean" measurements out of calibration


def hospital_study(
    test: float = 0.4, *, mix: float = 1.5, seed: int = 0, drift: tuple[float, float] = (1.2, 0.5)
) -> HospitalStudy:
    """Hospitals split for a study; the schema is fitted on the training rows only.

    ``drift``: (scale, offset) of the drifted features, in standard deviations of the training rows.
    """
    whole = hospital_tables(mix, seed)
    seen = {name: table for name, table in whole.items() if name not in UNSEEN}
    parts = tables.split(seen, "diagnosis", test, seed)
    schema = Schema.fit(parts[0], Recipe(), target="diagnosis")
    away = {name: whole[name] for name in UNSEEN}
    made = (Federation.from_tables(part, "diagnosis", schema=schema) for part in (*parts, away))
    train, held, unseen = made
    means = [name for name in schema.feature_names if name.startswith("mean ")]
    drifted = corrupt.drift(held, scale=drift[0], offset=drift[1], columns=means)
    return HospitalStudy(train, held, unseen, drifted)


# -------------------------------------------------------------------- numeric tables


def _columns(name: str, data_dir: Folder) -> tuple["Source", list[Any], Sequence[Any], bool]:
    """(source, columns, target, True) of a file, maybe with a line of names, else those at OpenML
    and False.
    """
    source = SOURCES[name]
    if (files := contents(source, data_dir)) is not None:
        content = files.popitem()[1]
        read = cells(content, "," if b"," in content else None)
        head = not read[-1][0].replace(".", "").isdigit()  # a line of names
        *columns, target = [column[head:] for column in read]
        return source, columns, target, True
    table, target = openml(source)
    return source, [*table.values()], target.tolist(), False


def _checked(
    source: "Source", X: Array, y: NDArray[Any], rows: slice | NDArray[np.bool_] = slice(None)
) -> Arrays:
    """Some rows of a data set that looks as it must."""
    validate(source, X, y)
    return Arrays(X[rows], y[rows], tuple(source.names))


def _numbers(columns: Iterable[ArrayLike]) -> Array:
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def _labels(target: ArrayLike, one: str) -> NDArray[np.int64]:
    """1 where the label, as text, is ``one``; whole numbers may be written with a decimal point
    there.
    """
    labels = (str(label).strip().removesuffix(".0") for label in np.asarray(target).tolist())
    return np.array([label == one for label in labels], dtype=np.int64)


def heart(data_dir: Folder = None) -> Arrays:
    """Statlog heart: 270 patients, 13 numeric features; y = 1 for heart disease (120), 0 for none
    (150).
    """
    source, columns, target, from_file = _columns("heart", data_dir)
    one = max(target) if from_file else "present"  # 2 as published, 1 where none is 0
    return _checked(source, _numbers(columns), _labels(target, one))


def breast_cancer_wisconsin(data_dir: Folder = None, *, missing: str = "drop") -> Arrays:
    """Wisconsin original breast cancer: 699 records, 9 features from 1 to 10; y = 1 for malignant
    (241).

    16 records miss "bare_nuclei": ``missing`` = "drop" leaves 683 rows (444/239), "keep" has NaN
    there (for a Schema).
    """
    _choice(missing, "missing", ("drop", "keep"))
    source, columns, target, from_file = _columns("breast_cancer_wisconsin", data_dir)
    if from_file:  # the first column is an identifier
        columns = [tables.parsed(column) for column in columns[1:]]
    X, y = _numbers(columns), _labels(target, "4" if from_file else "malignant")
    return _checked(source, X, y, np.asarray(~np.isnan(X).any(1) | (missing == "keep")))


def abalone(data_dir: Folder = None) -> Arrays:
    """Abalone: 4,177 animals, 8 features, sex coded 1 (male), 2 (female), 3 (infant); y = rings, a
    real number.
    """
    source, columns, target, _ = _columns("abalone", data_dir)
    columns[0] = [{"M": 1, "F": 2, "I": 3}.get(sex, sex) for sex in columns[0]]
    return _checked(source, _numbers(columns), np.asarray(target, dtype=np.float64))


def monks(problem: int = 1, part: str = "all", data_dir: Folder = None) -> Arrays:
    """MONK's problems: 6 features a1 ... a6, whole numbers from 1; y = 0 or 1.

    ``problem`` 1: ``part`` "train" (124 rows), "test" (432) or "all" (278/278); 3: its 432 test
    rows (204/228).
    """
    if problem not in (1, 3):
        raise ValueError(f"problem must be 1 or 3, got {problem!r}.")
    if problem == 3 and part == "train":
        raise ValueError("of MONK's problem 3 there are the test rows only. Use part='test'.")
    source = SOURCES[f"monks_{problem}"]
    rows, columns = _part(part, 124), list[ArrayLike]()
    contained = contents(source, data_dir, download=source.openml is None)
    if contained is not None:
        files = [list(zip(*cells(content, None), strict=True)) for content in contained.values()]
        lines = [line for file in files for line in file if line[0] != "class"]
        target, *columns = list(zip(*lines, strict=True))[:7]
    else:
        table, target = openml(source)
        columns = [*table.values()]
    X, y = _numbers(columns), _labels(target, "1")
    return _checked(source, X, y, rows if problem == 1 else slice(None))


def monks_1(data_dir: Folder = None) -> Arrays:
    """All rows of MONK's problem 1."""
    return monks(1, data_dir=data_dir)


def monks_3(data_dir: Folder = None) -> Arrays:
    """The rows of MONK's problem 3."""
    return monks(3, data_dir=data_dir)


def _choice(value: str, name: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}.")


def _part(part: str, n_train: int) -> slice:
    """The rows of a part; those to train on come first."""
    parts = {"train": slice(n_train), "test": slice(n_train, None), "all": slice(None)}
    if part not in parts:
        raise ValueError(f"part must be 'train', 'test' or 'all', got {part!r}.")
    return parts[part]


def _keel(name: str, version: str, data_dir: Folder, one_openml: str = "1") -> Arrays:
    """A file of KEEL, or the version at OpenML, whose numbers differ: never one silently for the
    other.
    """
    _choice(version, "version", ("keel", "openml"))
    source = SOURCES[name]
    if version == "openml":
        table, target = openml(source)
        X, y = _numbers(table.values()), _labels(target, one_openml)
    else:
        *columns, target = cells(_needed(source, data_dir).popitem()[1])
        X, y = _numbers(columns), _labels(target, "1")
    return _checked(source, X, y)


def australian(version: str = "keel", data_dir: Folder = None) -> Arrays:
    """Australian credit: 690 rows, 14 features; y = 1 for granted (307).

    ``version`` "keel": the file of the rank-based-loss paper, whose numbers have lost their decimal
    points (22.08 is 2208 there); "openml": with decimal points, from OpenML.
    """
    return _keel("australian", version, data_dir)


def phoneme(version: str = "keel", data_dir: Folder = None) -> Arrays:
    """Phoneme: 5,404 vowels, 5 harmonics; y = 1 for oral (1,586), 0 for nasal (3,818).

    ``version`` "keel": as published, three decimals; "openml": scaled, from OpenML.
    """
    return _keel("phoneme", version, data_dir, one_openml="2")


def titanic(version: str = "keel", data_dir: Folder = None) -> Arrays:
    """Titanic: 2,201 people, standardised class, age and sex; y = 1 for survived (711)."""
    return _keel("titanic", version, data_dir)


def splice(data_dir: Folder = None) -> Arrays:
    """Splice junctions: 3,190 sequences of 60 letters coded a=1 ... z=26; y = 0 for N (1,655), 1
    for EI and IE.
    """
    source = SOURCES["splice"]
    if (files := contents(source, data_dir)) is not None:
        target, _, letters = cells(files.popitem()[1])
        lines = [sequence.strip() for sequence in letters]
    else:
        table, target = openml(source)
        # one column is an identifier
        letters = [column for name, column in table.items() if "nstance" not in name]
        lines = ["".join(map(str, row)) for row in zip(*letters, strict=True)]
    codes = [[ord(letter) - ord("a") + 1 for letter in line.lower()] for line in lines]
    X, y = np.array(codes, dtype=np.float64), 1 - _labels(target, "N")
    validate(source, X, y)
    return Arrays(X, y, tuple(f"base_{k}" for k in range(1, 61)))


def advertisements(data_dir: Folder = None, *, missing: str = "drop") -> Arrays:
    """Internet advertisements: 3,279 images on pages, 1,558 features; y = 1 for an advertisement
    (459).

    920 rows miss one of the first four features: ``missing`` = "drop" leaves 2,359 rows
    (1,978/381), the table of the rank-based-loss paper; "keep" has NaN there.
    """
    _choice(missing, "missing", ("drop", "keep"))
    source = SOURCES["advertisements"]
    *columns, target = cells(_needed(source, data_dir).popitem()[1])
    X = _numbers([cell.strip().replace("?", "nan") for cell in column] for column in columns)
    named = replace(source, names=[f"feature_{k}" for k in range(1, source.columns + 1)])
    rows = np.asarray(~np.isnan(X).any(1) | (missing == "keep"))
    return _checked(named, X, _labels(target, "ad."), rows)


def svmguide1(part: str = "train", data_dir: Folder = None) -> Arrays:
    """SVMguide1, a table of astroparticle physics: 4 features; y = 0 or 1.

    ``part`` "train" (3,089 rows, 1,089/2,000: the table of the rank-based-loss paper), "test"
    (4,000, 2,000/2,000) or "all".
    """
    source, rows = SOURCES["svmguide1"], _part(part, 3089)
    parts = (cells(content, None) for content in _needed(source, data_dir).values())
    target, *columns = [(*a, *b) for a, b in zip(*parts, strict=True)]
    X = _numbers([cell.partition(":")[2] for cell in column] for column in columns)
    return _checked(source, X, _labels(target, "1"), rows)


# -------------------------------------------------------------------- tables with categories


def adult(part: str = "train", data_dir: Folder = None) -> Tabular:
    """Adult census income: 14 columns, 8 of them categorical with missing values; target "income",
    "<=50K" or ">50K".

    ``part``: "train" (32,561 rows, 24,720/7,841), "test" (16,281 rows) or "all".
    """
    source, rows = SOURCES["adult"], _part(part, 32561)
    if (files := contents(source, data_dir)) is not None:
        parts = (cells(content) for content in files.values())
        *columns, target = [(*a, *b) for a, b in zip(*parts, strict=True)]
        table = [tables.parsed(column) for column in columns]
    else:
        fetched, target = openml(source)
        table = list(fetched.values())
    y = np.array([str(label).removesuffix(".") for label in target])
    validate(source, np.empty((len(y), len(table))), y)
    train = replace(source, rows=32561, counts=(24720, 7841))
    validate(train, np.empty((32561, len(table))), y[:32561])
    named = zip((*source.names, "income"), (*table, y.astype(object)), strict=True)
    return Tabular(tables.Table({name: column[rows] for name, column in named}), "income", Recipe())


# -------------------------------------------------------------------- images


def mnist(part: str = "train", data_dir: Folder = None) -> Arrays:
    """MNIST: pixels in [0, 1], y = 0 ... 9; ``part`` "train" (60,000 images), "test" (10,000) or
    "all".
    """
    return _images("mnist", part, data_dir)


def fashion_mnist(part: str = "train", data_dir: Folder = None) -> Arrays:
    """Fashion-MNIST: pixels in [0, 1], y = 0 ... 9 (0 T-shirt, 1 trouser, 2 pullover, 3 dress, 4
    coat, 5 sandal, 6 shirt, 7 sneaker, 8 bag, 9 boot); ``part`` as for `mnist`.
    """
    return _images("fashion_mnist", part, data_dir)


def _images(name: str, part: str, data_dir: Folder) -> Arrays:
    source, rows = SOURCES[name], _part(part, 60000)
    files = contents(source, data_dir, download=source.openml is None)
    if files is not None and len(files) > 1:  # train and test images and labels as published
        train, y_train, test, y_test = map(_idx, files.values())
        X = np.concatenate([train, test]).reshape(len(train) + len(test), -1)
        y = np.concatenate([y_train, y_test])
    elif files is not None:
        with np.load(io.BytesIO(files.popitem()[1]), allow_pickle=False) as file:
            X, y = (np.concatenate([file[f"{key}_train"], file[f"{key}_test"]]) for key in "xy")
    else:
        table, target = openml(source)
        X, y = _numbers(table.values()), np.asarray(target)
    y = y.astype(np.int64)
    validate(source, X, y)
    return Arrays(X[rows] / 255.0, y[rows], tuple(f"pixel_{k}" for k in range(784)))


def _idx(content: bytes) -> NDArray[Any]:
    """An array in the format of MNIST's files: two zeros, kind, number of axes, lengths, values."""
    kind, axes = np.dtype({8: ">u1", 12: ">i4"}[content[2]]), content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, kind, offset=4 + 4 * axes).reshape(*shape)


def qmnist(part: str = "train", data_dir: Folder = None) -> Federation:
    """The images of `mnist` by the person who wrote them, as QMNIST's labels tell: 784 pixels in
    [0, 1], classes 0 ... 9; a client is a writer.

    ``part`` "train": 60,000 images of 539 writers; "test": 10,000 of 297 others.
    """
    _choice(part, "part", ("train", "test"))
    files = _needed(SOURCES["qmnist"], data_dir)
    if "qmnist_labels.npz" in files:
        with np.load(io.BytesIO(files["qmnist_labels.npz"]), allow_pickle=False) as file:
            labels = file[part]
    else:
        labels = _idx([*files.values()][part == "test"])
    label, _, writer = labels[:, :3].T
    X, y, names = mnist(part, data_dir)
    if not np.array_equal(label[: len(y)], y):
        raise ValueError("the labels of qmnist are not those of the images of mnist.")
    return Federation.from_arrays(
        X, y, writer[: len(y)], feature_names=names, classes=np.arange(10)
    )


def femnist(part: str = "train", data_dir: Folder = None) -> Federation:
    """FEMNIST by writer: 784 pixels in [0, 1] (ink is high), 62 classes; a client is a writer.

    A part of LEAF's 5 % sample: 114 of its 195 training writers (15,440 images); all 195 test
    writers (4,167).
    """
    _choice(part, "part", ("train", "test"))
    files = _needed(SOURCES["femnist"], data_dir)
    prefix = "" if part == "train" else "test_"
    with np.load(io.BytesIO(files.popitem()[1]), allow_pickle=False) as file:
        X, y = file[f"x_{part}"] / 255.0, file[f"y_{part}"].astype(np.int64)
        groups = np.repeat(file[f"{prefix}users"], np.diff(file[f"{prefix}offsets"]))
    return Federation.from_arrays(X, y, groups, classes=np.arange(62))


# -------------------------------------------------------------------- recordings


def scma(data_dir: Folder = None, *, window: int = 52) -> Federation:
    """Activities of 15 people from an accelerometer on the chest (SC-MA), a client is a person;
    classes 1 working at a computer, 2 standing up, walking and stairs, 3 standing, 4 walking, 5
    stairs, 6 walking and talking, 7 talking.

    The published recording has three axes at 52 Hz. A row here is a ``window`` of consecutive
    samples of one activity (52: one second; windows do not overlap, the rest of an activity and
    samples labelled 0 are left out), and its features are the mean, standard deviation, least and
    greatest value and the mean absolute change from sample to sample, of each axis and of the
    length of the three, standardised over all windows. The ASPIRE paper does not say which features
    it used.
    """
    source = SOURCES["scma"]
    files = _needed(source, data_dir)
    if "har/scma.npz" in files:
        with np.load(io.BytesIO(files["har/scma.npz"]), allow_pickle=False) as file:
            x, y, ends = file["x"].astype(np.float64), file["y"].astype(np.int64), file["offsets"]
    else:  # a file for each person, whose first column numbers the samples
        people = [np.loadtxt(io.BytesIO(each), delimiter=",") for each in files.values()]
        x, y = np.concatenate(people)[:, 1:4], np.concatenate(people)[:, 4].astype(np.int64)
        ends = np.cumsum([0, *map(len, people)])
    validate(source, x, y)
    signals = np.column_stack([x, np.sqrt((x**2).sum(1))])
    person = np.repeat(np.arange(1, len(ends)), np.diff(ends))
    runs = np.flatnonzero(np.diff(y, prepend=-1) | np.diff(person, prepend=-1))
    lengths = np.diff(runs, append=len(y)) // window
    starts = np.concatenate(
        [run + window * np.arange(n) for run, n in zip(runs, lengths, strict=True)]
    )
    starts = starts[y[starts] > 0]
    parts = signals[starts[:, None] + np.arange(window)]  # (windows, samples, signals)
    change = abs(np.diff(parts, axis=1)).mean(1)
    of = {"mean": parts.mean(1), "sd": parts.std(1), "least": parts.min(1)}
    of |= {"greatest": parts.max(1), "change": change}
    table = {f"{kind} {axis}": v[:, k] for kind, v in of.items() for k, axis in enumerate(_AXES)}
    table |= {"person": person[starts], "activity": y[starts]}
    people = tables.by_client(tables.table_of(table), "person")
    return Federation.from_tables(people, "activity", schema=Recipe())


_AXES = ("x", "y", "z", "length")


# -------------------------------------------------------------------- what cannot be loaded


def adult_b() -> NoReturn:
    """The cleaned table of the constrained paper's Table 2: an error that says why it is absent."""
    raise absent(SOURCES["adult_b"])


def person_activity() -> NoReturn:
    """ASPIRE's Person Activity: an error that says where and how it is to be had."""
    raise absent(SOURCES["person_activity"])


def shl() -> NoReturn:
    """ASPIRE's SHL: an error that says where and under which terms it is to be had."""
    raise absent(SOURCES["shl"])


def utkface() -> NoReturn:
    """The ranks paper's UTKFace: an error that says where and under which terms it is to be had."""
    raise absent(SOURCES["utkface"])


# Where the papers' data sets come from: files with pinned sizes and checksums in the data
# directory, else OpenML by pinned id, else an address that gives these files.
#
# The data directory is the argument ``data_dir`` or the environment variable BONAFED_DATA. What is
# downloaded stays there, or in scikit-learn's data folder where there is none that can be written
# to, so that later runs need no network. Whatever the source, shape and class counts are checked.

SETTING = "BONAFED_DATA"
WAIT = 60.0  # seconds in which an address must answer


@dataclass(frozen=True)
class File:
    """A file of a data set: its place in the data directory (or the same with the ending .gz), and
    size and digest as it is unpacked.
    """

    path: str
    size: int
    sha256: str
    urls: Sequence[str] = ()  # which give it, maybe compressed by gzip

    def told(self) -> str:
        """What one must know to get it by hand."""
        origin = f" from {' or '.join(self.urls)}" if self.urls else ""
        return f"{self.path} ({self.size:,} bytes, sha256 {self.sha256}){origin}"

    def verified(self, stream: IO[bytes], origin: object, name: str) -> bytes:
        """The content of an open file, which is closed, unpacked if need be; another is refused."""
        packed, parts, found, digest = False, list[bytes](), 0, hashlib.sha256()
        # of a damaged archive counts what comes before
        with stream, suppress(EOFError, zlib.error, gzip.BadGzipFile):
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            source: Any = gzip.GzipFile(fileobj=stream) if packed else stream
            # an archive is not unpacked further than to see that it is too long
            while (part := source.read1(2**16)) and not (packed and found > self.size):
                found += len(part)
                digest.update(part)
                if found <= self.size:  # nothing longer is kept
                    parts.append(part)
        if (found, digest.hexdigest()) != (self.size, self.sha256):
            more = " or more" if packed and found > self.size else ""
            lack = f"; bytes missing: {self.size - found:,}" if found < self.size else ""
            raise ValueError(
                f"{origin} is not the file that {name} was checked with: {found:,} bytes{more},"
                f" sha256 {digest.hexdigest()}, needed {self.size:,} bytes, sha256"
                f" {self.sha256}{lack}. Fetch it again, or remove it to use another source."
            )
        return b"".join(parts)


@dataclass(frozen=True)
class Source:
    """One data set: its files, or those of another form that were published, its OpenML id, and
    what it must look like. They are in ``sources.toml``.
    """

    name: str
    rows: int
    columns: int
    text: str  # one line for `bonafed data`
    page: str = ""  # where it is described
    of: str = ""  # the data set whose rows these files describe
    files: Sequence[File] = ()
    published: Sequence[File] = ()
    openml: int | None = None
    # rows of each class, classes sorted; None for real targets
    counts: Sequence[int] | None = None
    names: Sequence[str] = ()  # of the columns, where the files have none
    absent: str = ""  # why no loader reads it, and where it is to be had under which terms

    @property
    def forms(self) -> list[Sequence[File]]:
        """The sets of files of which one is enough."""
        return [form for form in (self.files, self.published) if form]

    @property
    def fetched(self) -> Sequence[File]:
        """The files that addresses give, else those that must be got by hand."""
        return next((form for form in self.forms if all(file.urls for file in form)), self.files)


def _source(name: str, files: Any = (), published: Any = (), **stated: Any) -> Source:
    forms = ([File(**file) for file in form] for form in (files, published))
    return Source(name, **stated, **dict(zip(("files", "published"), forms, strict=True)))


_STATED = tomllib.loads(Path(__file__).with_name("sources.toml").read_text("utf-8"))
SOURCES = {name: _source(name, **stated) for name, stated in _STATED.items()}


@dataclass(frozen=True)
class Available:
    """One line of `bonafed data`."""

    name: str
    rows: int
    columns: int
    source: str
    present: bool  # usable without network: bundled, or its files lie in the data directory
    absent: str  # why no loader reads it, else ""


def directory(data_dir: str | Path | None = None) -> Path | None:
    """The data directory: the argument, else the environment variable BONAFED_DATA, else None."""
    if not (chosen := data_dir or os.environ.get(SETTING)):
        return None
    if not Path(chosen).is_dir():
        origin = "data_dir" if data_dir else f"the environment variable {SETTING}"
        raise FileNotFoundError(f"{origin} names {str(chosen)!r}, which is not a folder.")
    return Path(chosen)


def available(data_dir: str | Path | None = None) -> tuple[Available, ...]:
    """All data sets, and which of them are here; those that no loader reads are among them."""
    folders = _folders(data_dir)

    def present(source: Source) -> bool:
        found = (all(_place(file, folders) for file in form) for form in source.forms)
        alone = not source.absent and (not source.forms or any(found))
        return alone and (not source.of or present(SOURCES[source.of]))

    return tuple(
        Available(s.name, s.rows, s.columns, s.text, present(s), s.absent) for s in SOURCES.values()
    )


def _folders(data_dir: Folder) -> list[Path]:
    """Where files may lie: the data directory, and scikit-learn's folder of downloads."""
    home = Path(os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data")).expanduser()
    folder = directory(data_dir)
    return [*([] if folder is None else [folder]), home / "bonafed"]


def _place(file: File, folders: Sequence[Path]) -> Path | None:
    places = (folder / f"{file.path}{end}" for folder in folders for end in ("", ".gz"))
    return next((place for place in places if place.is_file()), None)


def contents(
    source: Source, data_dir: Folder = None, *, download: bool = False
) -> dict[str, bytes] | None:
    """The files of a data set, checked, of the first form that is here; None when none is and
    nothing is to be downloaded.

    Raises
    ------
    ValueError : a file is damaged, cut off, or another one
    FileNotFoundError : no address gave a file
    """
    folders = _folders(data_dir)
    for form in source.forms:
        places = [place for file in form if (place := _place(file, folders))]
        if len(places) == len(form):
            pairs = zip(form, places, strict=True)
            return {f.path: f.verified(place.open("rb"), place, source.name) for f, place in pairs}
    if not download:
        return None
    missing = [file for file in source.fetched if _place(file, folders) is None]
    target = next((f for f in folders if f.is_dir() and os.access(f, os.W_OK)), folders[-1])
    for file in missing:
        _download(source, file, target)
    return contents(source, data_dir)


def _download(source: Source, file: File, folder: Path) -> None:
    """Put a file into a folder once an address gives the right bytes."""
    reasons = list[str]()
    for url in file.urls:
        try:
            # an archive is hardly longer than what it holds
            with opener().open(url, timeout=WAIT) as answer:
                data = answer.read(file.size + 1024)
            file.verified(io.BytesIO(data), url, source.name)
        except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError
            reasons.append(f"{url} gives no such file: {_reason(error)}")
            continue
        end = ".gz" if data[:2] == b"\x1f\x8b" else ""
        path = folder / f"{file.path}{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data, beside=path.with_name(f"{path.name}.{os.getpid()}.tmp"))
        return
    raise absent(source, "; ".join(reasons or ["no address gives it"]))


def opener() -> request.OpenerDirector:
    """What opens addresses: https and nothing else, also where it is sent on."""
    made = request.OpenerDirector()
    handlers = request.ProxyHandler, request.HTTPSHandler, request.HTTPRedirectHandler
    errors = request.HTTPErrorProcessor, request.HTTPDefaultErrorHandler, request.UnknownHandler
    for handler in (*handlers, *errors):
        made.add_handler(handler())
    return made


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return system(reason) if isinstance(reason, OSError) else str(reason)


def _needed(source: Source, data_dir: Folder) -> dict[str, bytes]:
    """The files of a data set that has no equal copy at OpenML."""
    files = contents(source, data_dir, download=True)
    assert files is not None
    return files


def absent(source: Source, why: str = "") -> FileNotFoundError:
    """The error that says how to get the files by hand, or why there is nothing to be had."""
    if source.absent:
        return FileNotFoundError(f"{source.name} ({source.text}) is not here: {source.absent}")
    page = f" (described at {source.page})" if source.page else ""
    return FileNotFoundError(
        f"{source.name} ({source.text}) is not here: {why}. Put"
        f" {' and '.join(file.told() for file in source.fetched)} into a folder{page} and name that"
        f" folder by data_dir=... or the environment variable {SETTING}."
    )


def openml(source: Source) -> tuple[Table, NDArray[Any]]:
    """(features, target) of a data set at OpenML, categories as they are written there. It is read
    from scikit-learn's cache, or once from the network.
    """
    from sklearn.datasets import fetch_openml

    if source.openml is None:
        raise absent(source, "it has no copy at OpenML")
    try:
        bunch: Any = fetch_openml(data_id=source.openml, as_frame=False, parser="liac-arff")
    # URLError and HTTPError are among them, and what a damaged copy in scikit-learn's folder gives
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        why = f"its file is in no data directory, and OpenML (data set {source.openml}) gives none"
        raise absent(source, f"{why}: {_reason(error)}") from error
    columns = bunch.data.toarray().T if hasattr(bunch.data, "toarray") else bunch.data.T
    named = zip(bunch.feature_names, columns, strict=True)
    table = Table({name: _decoded(c, bunch.categories.get(name)) for name, c in named})
    return table, np.asarray(bunch.target)


def _decoded(column: ArrayLike, categories: Sequence[str] | None) -> NDArray[Any]:
    """A column whose positions in the list of categories are replaced by the categories, which may
    be numbers.
    """
    codes = np.asarray(column, dtype=np.float64)
    if categories is None:
        return codes
    return parsed(["" if np.isnan(k) else str(categories[int(k)]) for k in codes])


def cells(content: bytes, separator: str | None = ",") -> list[tuple[str, ...]]:
    """The columns of a file without header, as text; blank lines and those that begin with "|" are
    left out.
    """
    text = io.StringIO(content.decode())
    lines = map(str.split, text) if separator is None else csv.reader(text, skipinitialspace=True)
    return list(zip(*(line for line in lines if line and not line[0].startswith("|")), strict=True))


def validate(source: Source, X: NDArray[Any], y: NDArray[Any]) -> None:
    """Refuse data whose shape or class counts are not those of the data set."""
    shape, expected = (source.rows, source.columns), source.counts and tuple(source.counts)
    counted = expected and tuple(np.unique(y, return_counts=True)[1].tolist())
    if X.shape != shape or y.shape != shape[:1] or counted != expected:
        raise ValueError(
            f"{source.name} should have shape {shape} and class counts {expected}, got {X.shape}"
            f" and {counted}: this is another version of the data."
        )
