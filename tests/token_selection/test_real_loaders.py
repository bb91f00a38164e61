"""Tiny files in the formats in which the six sets are published, sound and damaged; the libraries by stand-ins of the same API."""

import dataclasses
import gzip
import hashlib
import io
import struct
import sys
import types

import datasets
import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data.formats import FormatError
from attnbook.token_selection.real_data.loaders import DATA_SETS, DataSetNotFound, load

RNG = np.random.default_rng(0)


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return buffer.getvalue()


PICTURES = {"train": images(4, 28, 28), "val": images(2, 28, 28), "test": images(3, 28, 28)}
COLOURS = {"train": images(10, 32, 32, 3), "test": images(2, 32, 32, 3)}
ALL = [9, 0, 4, 1, 2, 3, 5, 8, 7, 6]
AG = (
    '"3","Oil, up","Prices say ""yes"" #39;s; a\\break"\n'
    '"1","Café","Über Paris"\n'
    '"4","Chip","Two\nlines"\n'
    '"2","Cup","Goal"\n'
).encode()
TREC = b"NUM:dist How far is it ?\r\nENTY:cremat Who did caf\xf0 \x85 write ?\nABBR:exp What does : mean ?\n\n"
WHO = b"HUM:ind Who ?"


def medical(**changes):
    """The npz of a medical set; labels as a column, 0 1 0 1, unless `changes` says otherwise."""
    labels = {f"{split}_labels": np.arange(len(x))[:, None] % 2 for split, x in PICTURES.items()}
    return npz(**{f"{split}_images": x for split, x in PICTURES.items()} | labels | changes)


def cifar(**changes):
    labels = {"train_labels": np.array(ALL), "test_labels": np.array([7, 7])}
    return npz(**{f"{split}_images": x for split, x in COLOURS.items()} | labels | changes)


def mnist(end="", pack=bytes, labels=(3, 0, 9)):
    """The two test files of MNIST."""
    return {
        f"t10k-images-idx3-ubyte{end}": pack(idx(PICTURES["test"])),
        f"t10k-labels-idx1-ubyte{end}": pack(idx(np.array(labels, np.uint8))),
    }


FLAT = medical(val_labels=np.array([1, 1]))  # as in copies that were saved anew


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes files into $ATTNLIB_DATA/NAME: bytes by name."""
    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))

    def write(name, files=()):
        (tmp_path / name).mkdir(exist_ok=True)
        for file, content in dict(files).items():
            (tmp_path / name / file).write_bytes(content)
        return tmp_path / name

    return write


# --- Sound files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "files", "labels"),
    [
        ("mnist", mnist(), {"test": [3, 0, 9]}),
        ("mnist", mnist(".gz", gzip.compress), {"test": [3, 0, 9]}),
        ("cifar10", {"cifar10.npz": cifar()}, {"train": ALL, "test": [7, 7]}),
        ("cifar10", {"cifar10_part.npz": cifar()}, {"train": ALL, "test": [7, 7]}),
        ("breast_mnist", {"breastmnist.npz": medical()}, {"train": [0, 1, 0, 1], "val": [0, 1], "test": [0, 1, 0]}),
        ("pneumonia_mnist", {"pneumoniamnist.npz": FLAT}, {"train": [0, 1, 0, 1], "val": [1, 1], "test": [0, 1, 0]}),
        ("ag_news", {"test.csv": AG}, {"test": [2, 0, 3, 1]}),  # without the subtraction of 1: 3, 1, 4, 2
        ("trec", {"train_5500.label": TREC, "TREC_10.label": WHO}, {"train": [5, 1, 0], "test": [3]}),
    ],
)
def test_published_files_are_read_with_labels_from_zero_and_their_sha256(name, files, labels, write):
    place = write(name, files)
    data = load(name)
    assert data.source == "folder of published files"
    assert {split: part.y.tolist() for split, part in data.splits.items()} == labels
    assert list(data.splits) == list(labels)
    assert {part.y.dtype for part in data.splits.values()} == {np.dtype(np.int64)}
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    assert {file: digest for part in data.splits.values() for file, digest in part.files.items()} == digests
    if data.kind == "image":
        for split, part in data.splits.items():
            expected = np.moveaxis(COLOURS[split], 3, 1) if name == "cifar10" else PICTURES[split][:, None]
            np.testing.assert_array_equal(part.x, expected)
            np.testing.assert_allclose(data.pixels(split), expected / 255, rtol=1e-6)
    named = load(name, place.parent)
    assert [part.files for part in named.splits.values()] == [part.files for part in data.splits.values()]


def test_texts_are_kept_as_they_were_published(write):
    write("ag_news", {"test.csv": AG})
    write("trec", {"train_5500.label": TREC, "TREC_10.label": WHO})
    first, *rest = load("ag_news").split("test").x
    assert first == 'Oil, up Prices say "yes" #39;s; a\\break'
    assert rest == ["Café Über Paris", "Chip Two\nlines", "Cup Goal"]
    trec = load("trec")
    assert trec.split("train").x == ("How far is it ?", "Who did caf\xf0 \x85 write ?", "What does : mean ?")
    joined = trec.split("test+train")
    assert joined.x == ("Who ?", *trec.split("train").x)
    assert joined.y.tolist() == [3, 5, 1, 0]
    assert list(joined.files) == ["TREC_10.label", "train_5500.label"]


def test_splits_are_joined_in_the_order_asked_for(write):
    write("breast_mnist", {"breastmnist.npz": medical()})
    data = load("breast_mnist")
    joined = data.split("test+train")
    np.testing.assert_array_equal(joined.x[:, 0], np.concatenate([PICTURES["test"], PICTURES["train"]]))
    assert joined.y.tolist() == [0, 1, 0, 0, 1, 0, 1]
    assert list(joined.files) == ["breastmnist.npz"]
    with pytest.raises(DataSetNotFound, match=r"from folder .* has no split 'dev': found train, val, test"):
        data.split("val+dev")


def test_the_medical_sets_may_share_a_folder_and_their_own_comes_first(write):
    write("medmnist", {"breastmnist.npz": medical()})
    write("breast_mnist")  # an empty folder of its own hides nothing
    assert load("breast_mnist").split("val").y.tolist() == [0, 1]
    with pytest.raises(DataSetNotFound, match=r"pneumonia_mnist was not found in .*pneumonia_mnist or .*medmnist: put"):
        load("pneumonia_mnist")  # each reads the file of its own name
    write("breast_mnist", {"breastmnist.npz": medical(val_labels=np.array([1, 1]))})
    assert load("breast_mnist").split("val").y.tolist() == [1, 1]
    write("breast_mnist", {"breastmnist.npz": b"damaged"})
    with pytest.raises(FormatError, match=r"breast_mnist/breastmnist\.npz"):
        load("breast_mnist")  # and a damaged file of its own is not replaced by the shared one


def test_class_names_are_not_exchanged():
    assert DATA_SETS["pneumonia_mnist"].class_names[1] == "pneumonia"
    assert DATA_SETS["breast_mnist"].class_names[0] == "malignant"


# --- Damaged files --------------------------------------------------------------------------------------------------------

IMAGES, LABELS = mnist()
GOOD = mnist()
FILE = {"cifar10": "cifar10.npz", "breast_mnist": "breastmnist.npz", "ag_news": "test.csv", "trec": "TREC_10.label"}


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("mnist", GOOD | {f"{IMAGES}.gz": gzip.compress(GOOD[IMAGES])[:-20]}, "not one whole gzip stream"),
        ("mnist", GOOD | {f"{IMAGES}.gz": GOOD[IMAGES]}, r"images-idx3-ubyte\.gz: is not one whole gzip"),
        ("mnist", GOOD | {IMAGES: gzip.compress(GOOD[IMAGES])}, "not an IDX file of 3 axes: .* begin 1f 8b"),
        ("mnist", {IMAGES: GOOD[LABELS], LABELS: GOOD[IMAGES]}, "not an IDX file of 3 axes: .* begin 00 00 08 01"),
        ("mnist", GOOD | {IMAGES: GOOD[IMAGES][:-1]}, r"not an IDX file of 3 axes: 2367 bytes .* \(3, 28, 28\)"),
        ("mnist", GOOD | {IMAGES: GOOD[IMAGES][:9]}, "not an IDX file of 3 axes: 9 bytes"),
        ("mnist", {IMAGES: GOOD[IMAGES]}, "t10k-labels-idx1-ubyte: is missing beside its other half"),
        ("mnist", mnist(labels=(1, 2)), r"labels have shape \(2,\) for 3 samples"),
        ("mnist", mnist(labels=(1, 10, 2)), r"label 10 in row 2 is outside 0\.\.9"),
        ("cifar10", cifar(train_images=images(10, 32, 32)), r"\(train\): images are uint8 \(10, 32, 32\), not"),
        ("cifar10", cifar(train_images=images(10, 3, 32, 32)), r"not uint8 \(N, 32, 32, 3\)"),
        ("cifar10", cifar(train_labels=np.arange(10) % 3), r"cifar10\.npz: 3 classes, not 10: .*attnlib real FOLDER"),
        ("cifar10", cifar(test_labels=np.array([7, 10])), r"\(test\): label 10 in row 2 is outside 0\.\.9"),
        ("breast_mnist", medical(test_labels=None), "npz file with test_images and test_labels"),
        ("breast_mnist", medical(val_labels=np.array([[0], [-1]])), r"\(val\): label -1 in row 2"),
        ("breast_mnist", medical(val_labels=np.array([[0, 1]])), r"labels have shape \(1, 2\) for 2"),
        ("breast_mnist", medical(val_labels=np.array(1)), r"labels have shape \(\) for 2"),
        ("breast_mnist", medical(train_images=np.zeros((4, 28, 28))), "images are float64"),
        ("breast_mnist", medical(train_images=images(4, 784)), r"\(4, 784\), not uint8 \(N, 28, 28\)"),
        ("breast_mnist", medical(train_images=np.array([{}] * 4)), "not an npz file with train_images"),
        ("breast_mnist", medical()[:-100], "not an npz file with train_images"),
        ("breast_mnist", b"", "not an npz file with train_images"),
        ("ag_news", AG + b'"5","a","b"\n', 'row 5 is not "class 1-4"'),
        ("ag_news", AG + b'"0","a","b"\n', 'row 5 is not "class 1-4"'),
        ("ag_news", AG + b'"1","a"\n', "row 5 is not"),
        ("ag_news", b'"Class Index","Title","Description"\n' + AG, "row 1 is not"),
        ("ag_news", AG + b'"1","a","unfinished', "not a utf-8 CSV file"),
        ("ag_news", AG + b'"1","a","\xf0"\n', "not a utf-8 CSV file"),
        ("ag_news", b"", r"labels have shape \(0,\) for 0 samples"),
        ("trec", TREC + b"NUM How ?", "line 5 is not `COARSE:fine question`"),
        ("trec", TREC + b"NUM:dist", "line 5 is not"),
        ("trec", TREC + b"ANIMAL:cat How ?", "line 5 is not .* one of ABBR, ENTY"),
        ("trec", b"\n", "for 0 samples"),
    ],
)
def test_a_damaged_file_is_named_and_not_replaced_by_a_library(name, files, message, write, monkeypatch):
    other = dataclasses.replace(DATA_SETS[name], fetch=lambda: pytest.fail("looked elsewhere"))
    monkeypatch.setitem(DATA_SETS, name, other)
    place = write(name, files if isinstance(files, dict) else {FILE[name]: files})
    with pytest.raises(FormatError, match=message) as caught:
        load(name)
    assert str(caught.value).startswith(str(place))


# --- Through the libraries ------------------------------------------------------------------------------------------------


@pytest.fixture
def libraries(monkeypatch, tmp_path):
    """torchvision and medmnist as modules with their documented attributes, `datasets` with its answer; a list of the calls.

    Neither of the first two can stand beside the torch that these tests are pinned to.
    """
    calls = []

    class MNIST:  # torchvision: uint8 tensor (N, 28, 28) and int64 tensor (N,)
        def __init__(self, root, train, download):
            calls.append(("MNIST", str(root), train, download))
            self.data = torch.from_numpy(PICTURES["train" if train else "test"])
            self.targets = torch.arange(len(self.data)) + 5

    class CIFAR10:  # torchvision: uint8 array (N, 32, 32, 3) and a list
        def __init__(self, root, train, download):
            calls.append(("CIFAR10", str(root), train, download))
            self.data = COLOURS["train" if train else "test"]
            self.targets = ALL[: len(self.data)]

    def medmnist(name):
        def __init__(self, split, download):
            calls.append((name, split, download))
            self.imgs, self.labels = PICTURES[split], np.arange(len(PICTURES[split]))[:, None] % 2

        return type(name, (), {"__init__": __init__})

    def load_dataset(name, **options):
        calls.append((name, options))
        label, names = ("coarse_label", "trec") if "trec" in name else ("label", "ag_news")
        features = {
            "text": datasets.Value("string"),
            label: datasets.ClassLabel(names=list(DATA_SETS[names].class_names)),
        }
        rows = {"train": {"text": ["a", "b"], label: [3, 1]}, "test": {"text": ["c"], label: [0]}}
        return {split: datasets.Dataset.from_dict(row, datasets.Features(features)) for split, row in rows.items()}

    vision = types.ModuleType("torchvision")
    vision.datasets = types.SimpleNamespace(MNIST=MNIST, CIFAR10=CIFAR10)
    medical = types.ModuleType("medmnist")
    for name in ("PneumoniaMNIST", "BreastMNIST"):
        setattr(medical, name, medmnist(name))
    monkeypatch.setitem(sys.modules, "torchvision", vision)
    monkeypatch.setitem(sys.modules, "medmnist", medical)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    return calls


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_torchvision_gives_pictures(name, libraries, tmp_path):
    data = load(name)
    assert data.source == "torchvision"
    assert libraries == [(name.upper(), str(tmp_path / "data"), train, True) for train in (True, False)]
    known = COLOURS if name == "cifar10" else PICTURES
    for split in ("train", "test"):
        part = data.split(split)
        expected = np.moveaxis(known[split], 3, 1) if name == "cifar10" else known[split][:, None]
        np.testing.assert_array_equal(part.x, expected)
        assert part.y.tolist() == (ALL if name == "cifar10" else [5, 6, 7, 8])[: len(expected)]
        assert part.files == {}


@pytest.mark.parametrize(("name", "called"), [("pneumonia_mnist", "PneumoniaMNIST"), ("breast_mnist", "BreastMNIST")])
def test_medmnist_gives_the_same_as_its_file(name, called, libraries, write, monkeypatch):
    write("medmnist", {f"{called.lower()}.npz": medical()})
    from_file = load(name)
    assert libraries == []  # a folder that is named is the only place
    monkeypatch.delenv("ATTNLIB_DATA")
    data = load(name)
    assert data.source == "medmnist"
    assert libraries == [(called, split, True) for split in ("train", "val", "test")]
    for split, part in data.splits.items():
        np.testing.assert_array_equal(part.x, from_file.split(split).x)
        np.testing.assert_array_equal(part.y, from_file.split(split).y)


@pytest.mark.parametrize(
    ("name", "called"),
    [("ag_news", ("fancyzhx/ag_news", {})), ("trec", ("CogComp/trec", {"revision": "refs/convert/parquet"}))],
)
def test_datasets_gives_texts(name, called, libraries):
    data = load(name)
    assert libraries == [called]
    assert data.source == "datasets"
    assert {split: (part.x, part.y.tolist()) for split, part in data.splits.items()} == {
        "train": (("a", "b"), [3, 1]),
        "test": (("c",), [0]),
    }


def test_classes_in_another_order_are_refused(libraries, monkeypatch):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["Sports", "World"])}
    )
    table = datasets.Dataset.from_dict({"text": ["a"], "label": [0]}, features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": table})
    with pytest.raises(DataSetNotFound, match="its classes are Sports, World, not World, Sports, Business"):
        load("ag_news")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"], "label": [4]}, r"ag_news by datasets \(train\): label 4 in row 1 is outside 0\.\.3"),
        ({"text": ["a"], "label": [-1]}, "label -1"),
        ({"text": ["a"], "topic": [1]}, "ag_news was not given by datasets .*label"),
        ({"words": ["a"], "label": [1]}, "ag_news was not given by datasets .*text"),
    ],
)
def test_other_columns_or_labels_are_refused(columns, message, libraries, monkeypatch):
    table = datasets.Dataset.from_dict(columns)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": table, "test": table})
    with pytest.raises((FormatError, DataSetNotFound), match=message):
        load("ag_news")


# --- What is not there ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module"),
    [("digits", "sklearn"), ("mnist", "torchvision"), ("breast_mnist", "medmnist"), ("trec", "datasets")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(name, module, monkeypatch):
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"{module}.* is not installed: pip install 'attnlib\[real\] @ git"):
        load(name)


@pytest.mark.parametrize(
    "error", [ConnectionError("\nno network\nmore"), RuntimeError("Error downloading"), ValueError()]
)
def test_offline_the_error_names_the_library_and_the_folder(error, libraries, monkeypatch):
    def offline(*arguments, **options):
        raise error

    for module, name in ((sys.modules["torchvision"].datasets, "MNIST"), (datasets, "load_dataset")):
        monkeypatch.setattr(module, name, offline)
    reason = str(error).strip().splitlines()[0] if str(error) else "ValueError"
    for name, library, file in (("mnist", "torchvision", "t10k-"), ("ag_news", "datasets", r"train\.csv")):
        with pytest.raises(
            DataSetNotFound, match=rf"{name} was not given by {library} \({reason}\): .*put .*{file}.* set ATTNLIB_DATA"
        ):
            load(name)


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "digits"])
def test_a_folder_without_the_set_says_what_to_put_there(name, tmp_path, libraries):
    for make in (False, True):
        if make:
            (tmp_path / name).mkdir()
        with pytest.raises(DataSetNotFound) as caught:
            load(name, tmp_path)
        for part in (f"not found in {tmp_path / name}", f"put {DATA_SETS[name].files}", "unset ATTNLIB_DATA"):
            assert part in str(caught.value)
    assert libraries == []  # the folder alone was asked


def test_digits_come_with_scikit_learn_wherever_the_folder_is(tmp_path):
    data = load("digits", tmp_path / "nowhere")
    assert data.split("all").x.shape == (1797, 1, 8, 8)
    assert data.pixels("all").max() == 1.0
    assert np.bincount(data.split("all").y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (data.source, data.split("all").files) == ("scikit-learn", {})


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of 'digits', 'mnist'.*got 'imagenet'"):
        load("imagenet")
