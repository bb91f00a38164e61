"""Tiny files in the formats in which the six data sets are published, sound and damaged, and the order of the sources."""

import gzip
import io
import pickle
import struct
import sys

import numpy as np
import pytest

from attnbook.token_selection.real_data import formats, hub_data, loaders
from attnbook.token_selection.real_data.formats import FormatError
from attnbook.token_selection.real_data.loaders import DATA_SETS, DataSetNotFound, load

RNG = np.random.default_rng(0)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A function that writes files into $ATTNLIB_DATA/<set>; bytes by name."""
    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))

    def write(name, **files):
        (tmp_path / name).mkdir(exist_ok=True)
        for file, content in files.items():
            path = tmp_path / name / file.replace("__", "-").replace("_dot_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return tmp_path / name

    return write


# --- MNIST ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_from_idx_files(folder, packed):
    x, y = images(5, 28, 28), np.array([3, 0, 9, 9, 1], np.uint8)
    place = folder("mnist")
    pack, end = (gzip.compress, ".gz") if packed else (bytes, "")
    (place / f"t10k-images-idx3-ubyte{end}").write_bytes(pack(idx(x)))
    (place / f"t10k-labels-idx1-ubyte{end}").write_bytes(pack(idx(y)))
    data = load("mnist")
    assert tuple(data.splits) == ("test",)
    assert data.source == "folder of published files"
    np.testing.assert_array_equal(data.split("test").x, x[:, None])
    assert data.split("test").y.tolist() == [3, 0, 9, 9, 1]
    assert data.class_names[9] == "9"
    pixels = data.pixels("test")
    assert pixels.dtype == np.float32
    assert pixels.shape == (5, 1, 28, 28)
    np.testing.assert_allclose(pixels[1, 0, 4, 7], x[1, 4, 7] / 255, rtol=1e-6)
    with pytest.raises(KeyError, match="has no split 'train': found test"):
        data.split("train")


def test_idx_sizes_are_big_endian_and_axes_stay_in_order(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1]) + bytes(range(6)))
    assert formats.read_idx(path, dimensions=3).tolist() == [[[0], [1], [2]], [[3], [4], [5]]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.gz", gzip.compress(idx(images(4, 28, 28)))[:-20], "ends before the gzip stream does.*download it again"),
        ("a.gz", idx(images(4, 28, 28)), r"is named \.gz but is not gzip.*drop \.gz"),
        ("a", gzip.compress(idx(images(4, 28, 28))), r"does not end in \.gz: rename it"),
        ("a", idx(images(4)), "magic number 2049 instead of 2051.*exchanged"),
        ("a", b"PK\x03\x04" + bytes(40), "magic number 1347093252 instead of 2051.*is it an IDX file"),
        ("a", idx(images(4, 28, 28))[:-1], r"header says 3136 bytes of shape \(4, 28, 28\), the file holds 3135"),
        ("a", idx(images(4, 28, 28)) + b"x", "the file holds 3137"),
        ("a", idx(images(4, 28, 28))[:9], "ends inside the header"),
        ("a", b"", "magic number 0 instead of 2051"),
    ],
)
def test_damaged_idx_files_say_what_is_wrong(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        formats.read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


def test_a_flipped_bit_inside_gzip_is_found(tmp_path):
    packed = bytearray(gzip.compress(idx(images(40, 28, 28))))
    packed[200:204] = b"\xff\xff\xff\xff"
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    with pytest.raises(FormatError, match=r"gzip"):
        formats.read_idx(path, dimensions=3)


def test_mnist_halves_must_fit(folder):
    place = folder("mnist")
    (place / "train-images-idx3-ubyte").write_bytes(idx(images(4, 28, 28)))
    with pytest.raises(FormatError, match=r"train-labels-idx1-ubyte.*is missing beside its other half"):
        load("mnist")
    (place / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(FormatError, match="3 labels for 4 images"):
        load("mnist")
    (place / "train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 10, 2], np.uint8)))
    with pytest.raises(FormatError, match=r"label 10 in row 3 is outside 0\.\.9"):
        load("mnist")


# --- CIFAR-10 ------------------------------------------------------------------------------------------------------------


def cifar_binary(x, y):
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))


def python2_pickle(x, y):
    """The batch as Python 2 and an old numpy wrote it: byte strings, `numpy.core`, protocol 2."""

    def text(value):
        return b"U" + bytes([len(value)]) + value  # SHORT_BINSTRING

    raw = x.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
        b"(K\x01" + b"(J" + struct.pack("<i", x.shape[0]) + b"J" + struct.pack("<i", 3072) + b"t"
        b"cnumpy\ndtype\n("
        + text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def test_cifar10_binary_and_python_versions_agree(folder):
    x, y = images(7, 3, 32, 32), [0, 9, 4, 4, 1, 7, 2]
    place = folder("cifar10")
    (place / "cifar-10-batches-bin").mkdir()
    (place / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(cifar_binary(x[:3], y[:3]))
    (place / "cifar-10-batches-bin" / "data_batch_2.bin").write_bytes(cifar_binary(x[3:5], y[3:5]))
    (place / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(cifar_binary(x[5:], y[5:]))
    data = load("cifar10", "folder")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 5, "test": 2}
    np.testing.assert_array_equal(data.split("train").x, x[:5])
    assert data.split("train").y.tolist() == y[:5]
    assert data.split("test").y.tolist() == y[5:]
    assert data.class_names[data.split("train").y[1]] == "truck"

    path = place / "old"
    path.write_bytes(python2_pickle(x.reshape(7, 3072), y))
    for batch in (path, place / "new"):
        (place / "new").write_bytes(pickle.dumps({b"data": x.reshape(7, 3072), b"labels": y}, protocol=2))
        pixels, labels = formats.read_cifar10_python(batch)
        np.testing.assert_array_equal(pixels, x)
        assert labels.tolist() == y


def test_cifar10_python_folder(folder):
    x, y = images(2, 3072), [5, 6]
    place = folder("cifar10")
    (place / "data_batch_1").write_bytes(python2_pickle(x, y))
    data = load("cifar10")
    assert tuple(data.splits) == ("train",)
    np.testing.assert_array_equal(data.split("train").x.reshape(2, 3072), x)


class Run:
    """Would run code when unpickled by a careless reader."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('code was run')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": Run()}), r"builtins\.exec is not allowed"),
        (pickle.dumps({"data": images(2, 3072).astype(float), "labels": [1, 2]}), "no `data` uint8"),
        (pickle.dumps({"data": images(2, 3072), "labels": [1]}), "a list of N"),
        (pickle.dumps([1, 2]), "no `data`"),
        (b"not a pickle", "not a CIFAR-10 python batch"),
        (pickle.dumps({"data": images(1, 3072), "labels": [11]}), r"label 11 in row 1 is outside 0\.\.9"),
    ],
)
def test_a_pickle_can_hold_numbers_only(tmp_path, content, message):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        formats.read_cifar10_python(path)


def test_damaged_cifar10_binary(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    good = cifar_binary(images(2, 3, 32, 32), [1, 12])
    for content, message in (
        (good[:-1], "6145 bytes, not a multiple of 3073"),
        (b"", "0 bytes"),
        (good, "label 12 in row 2"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message):
            formats.read_cifar10_binary(path)


# --- MedMNIST ------------------------------------------------------------------------------------------------------------


def medmnist(sizes=(4, 2, 3), **changes):
    arrays = {}
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        arrays[f"{split}_images"] = images(size, 28, 28)
        arrays[f"{split}_labels"] = (np.arange(size)[:, None] % 2).astype(np.uint8)
    arrays |= changes
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return buffer.getvalue(), arrays


@pytest.mark.parametrize(("name", "file"), [("pneumonia_mnist", "pneumoniamnist"), ("breast_mnist", "breastmnist")])
def test_medmnist_npz(folder, name, file):
    content, arrays = medmnist()
    folder(name, **{f"{file}_dot_npz": content})
    data = load(name)
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 4, "val": 2, "test": 3}
    np.testing.assert_array_equal(data.split("val").x, arrays["val_images"][:, None])
    assert data.split("test").y.tolist() == [0, 1, 0]
    assert data.split("test").y.dtype == np.int64
    assert data.classes == 2


def test_medmnist_class_names_are_not_exchanged():
    assert DATA_SETS["pneumonia_mnist"].class_names[1] == "pneumonia"
    assert DATA_SETS["breast_mnist"].class_names[0] == "malignant"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_labels": None}, "no entry test_labels"),
        ({"val_labels": np.array([[0], [2]])}, r"label 2 in row 2 is outside 0\.\.1"),
        ({"val_labels": np.array([0, 1])}, r"val_labels has shape \(2,\), not \(2, 1\)"),
        ({"train_images": np.zeros((4, 28, 28))}, "train_images is float64"),
        ({"train_images": np.array([{"a": 1}] * 4, dtype=object)}, "not an npz file of plain arrays"),
    ],
)
def test_damaged_medmnist(tmp_path, changes, message):
    path = tmp_path / "breastmnist.npz"
    path.write_bytes(medmnist(**changes)[0])
    with pytest.raises(FormatError, match=message):
        formats.read_medmnist(path, classes=2)


def test_truncated_medmnist(tmp_path):
    path = tmp_path / "breastmnist.npz"
    for content in (medmnist()[0][:-100], b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="not an npz file"):
            formats.read_medmnist(path, classes=2)


# --- AG-news -------------------------------------------------------------------------------------------------------------

AG = (
    '"3","Oil, up","Prices say ""yes"" #39;s; a\\break"\n'
    '"1","Café","Über Paris"\n'
    '"4","Chip","Two\nlines"\n'
    '"2","Cup","Goal"\n'
).encode()


def test_ag_news_classes_count_from_zero(folder):
    folder("ag_news", test_dot_csv=AG)
    data = load("ag_news")
    split = data.split("test")
    assert split.y.tolist() == [2, 0, 3, 1]  # a reader that forgets to subtract 1 gives 3, 1, 4, 2
    assert [data.class_names[label] for label in split.y] == ["Business", "World", "Sci/Tech", "Sports"]
    assert split.x[0] == 'Oil, up Prices say "yes" #39;s; a\\break'
    assert split.x[1] == "Café Über Paris"
    assert split.x[2] == "Chip Two\nlines"
    with pytest.raises(ValueError, match="pixels needs a data set of images"):
        data.pixels("test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (AG + b'"5","a","b"\n', r"label 5 in row 5 is outside 1\.\.4"),
        (AG + b'"0","a","b"\n', r"label 0 in row 5 is outside 1\.\.4"),
        (AG + b'"1","a"\n', "row 5 is not"),
        (b'"Class Index","Title","Description"\n' + AG, "row 1 is not"),
        (AG + b'"1","a","unfinished', "not a utf-8 CSV file"),
        (AG + b'"1","a","\xf0"\n', "not a utf-8 CSV file"),
        (b"", "no rows"),
    ],
)
def test_damaged_ag_news(tmp_path, content, message):
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        formats.read_ag_news(path)


# --- TREC ----------------------------------------------------------------------------------------------------------------

TREC = b"NUM:dist How far is it ?\r\nENTY:cremat Who did caf\xf0 \x85 write ?\nABBR:exp What does : mean ?\n\n"


def test_trec_is_latin_1_and_cut_at_the_first_space(folder):
    folder(
        "trec",
        **{
            "train_5500_dot_label": TREC,
            "TREC_10_dot_label": b"DESC:def What is it ?\nHUM:ind Who ?\nLOC:city Where ?",
        },
    )
    data = load("trec")
    split = data.split("train")
    assert split.x == ("How far is it ?", "Who did caf\xf0 \x85 write ?", "What does : mean ?")
    assert [data.class_names[label] for label in split.y] == ["NUM", "ENTY", "ABBR"]
    assert [data.class_names[label] for label in data.split("test").y] == ["DESC", "HUM", "LOC"]


def test_trec_fine_labels(tmp_path):
    path = tmp_path / "train_5500.label"
    path.write_bytes(TREC)
    assert formats.read_trec(path)[2] == ("NUM:dist", "ENTY:cremat", "ABBR:exp")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TREC + b"NUM How ?", "line 5 is not `COARSE:fine question`"),
        (TREC + b"NUM:dist", "line 5 is not"),
        (TREC + b"ANIMAL:cat How ?", "class 'ANIMAL' in line 5 is none of ABBR, ENTY"),
        (b"\n", "no questions"),
    ],
)
def test_damaged_trec(tmp_path, content, message):
    path = tmp_path / "train_5500.label"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        formats.read_trec(path)


# --- Digits, and the order of the sources --------------------------------------------------------------------------------


def test_digits_come_with_scikit_learn(monkeypatch):
    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    data = load("digits")
    assert data.split("all").x.shape == (1797, 1, 8, 8)
    assert data.pixels("all").max() == 1.0
    assert np.bincount(data.split("all").y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.source == "scikit-learn"


@pytest.fixture
def no_hub(monkeypatch):
    calls = []

    def fetch(recipe):
        calls.append(recipe.hub)
        raise hub_data.HubError(f"{recipe.hub} could not be loaded (ConnectionError: no network)")

    monkeypatch.setattr(hub_data, "fetch", fetch)
    return calls


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "digits"])
def test_an_error_says_what_was_tried_in_order_and_what_to_do(name, tmp_path, monkeypatch, no_hub):
    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    with pytest.raises(DataSetNotFound) as caught:
        load(name)
    text = str(caught.value)
    places = [
        text.index(part)
        for part in ("built-in:", "folder: the environment variable", f"hub: {no_hub[0]}", "To do: put")
    ]
    assert places == sorted(places)
    assert f"$ATTNLIB_DATA/{name}" in text
    assert "attnlib[real]" in text

    monkeypatch.setenv("ATTNLIB_DATA", str(tmp_path))
    with pytest.raises(DataSetNotFound, match=f"{tmp_path / name} is not there"):
        load(name, "folder")
    (tmp_path / name).mkdir()
    with pytest.raises(DataSetNotFound, match=f"{tmp_path / name} holds none of the files"):
        load(name, "folder")
    assert len(no_hub) == 1  # "folder" alone never asks the hub


def test_damaged_files_are_not_replaced_by_another_source(folder, no_hub):
    folder("ag_news", test_dot_csv=b"nonsense")
    with pytest.raises(FormatError):
        load("ag_news")
    assert no_hub == []


def test_folder_comes_before_hub_and_built_in_before_folder(folder, no_hub):
    folder("ag_news", test_dot_csv=AG)
    folder("digits")
    assert load("ag_news").source == "folder of published files"
    assert load("digits").source == "scikit-learn"
    assert no_hub == []


def test_hub_names_are_those_of_the_fact_sheet():
    assert DATA_SETS["ag_news"].hub == "fancyzhx/ag_news"
    for name in ("pneumonia_mnist", "breast_mnist"):
        assert DATA_SETS[name].hub == "albertvillanova/medmnist-v2"
        assert DATA_SETS[name].configuration == name.replace("_", "")


@pytest.mark.parametrize(("name", "module"), [("digits", "sklearn"), ("trec", "datasets")])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(name, module, monkeypatch):
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delenv("ATTNLIB_DATA", raising=False)
    with pytest.raises(DataSetNotFound, match=rf"needs {module}.*, which is not installed.*attnlib\[real\]"):
        load(name)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of 'digits', 'mnist'.*got 'imagenet'"):
        load("imagenet")
    with pytest.raises(ValueError, match="source must be one of 'auto'"):
        load("digits", "disk")
    assert loaders.SOURCES == ("auto", "built-in", "folder", "hub")
