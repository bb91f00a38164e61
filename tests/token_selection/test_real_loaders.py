"""Tiny files in the formats in which the six data sets are published, sound and damaged, and the order of the sources."""

import gzip
import hashlib
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
    with pytest.raises(DataSetNotFound, match="has no split 'train': found test"):
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
        ({"val_labels": np.array([[0, 1]])}, r"val_labels has shape \(1, 2\), not \(2, 1\)"),
        ({"val_labels": np.array([[[0]], [[1]]])}, r"val_labels has shape \(2, 1, 1\)"),
        ({"val_labels": np.array(1)}, r"val_labels has shape \(\)"),
        ({"test_labels": np.array([0, 1])}, r"test_labels has shape \(2,\), not \(3, 1\)"),
        ({"test_labels": np.array([0, 1, 2])}, r"label 2 in row 3 is outside 0\.\.1"),
        ({"train_images": np.zeros((4, 28, 28))}, "train_images is float64"),
        ({"train_images": images(4, 784)}, r"train_images is uint8 \(4, 784\), not uint8 \(N, H, W\)"),
        ({"train_images": images(4, 3, 28, 28)}, r"is uint8 \(4, 3, 28, 28\), not uint8 \(N, H, W\) or \(N, H, W, 3\)"),
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


def test_labels_may_be_flat(tmp_path):
    content, arrays = medmnist()
    (tmp_path / "column.npz").write_bytes(content)
    flat = {name: array.reshape(-1) for name, array in arrays.items() if name.endswith("labels")}
    (tmp_path / "flat.npz").write_bytes(medmnist(**(arrays | flat))[0])
    column, row = (formats.read_medmnist(tmp_path / name, classes=2) for name in ("column.npz", "flat.npz"))
    assert list(row) == ["train", "val", "test"]
    for split, (x, y) in row.items():
        np.testing.assert_array_equal(x, column[split][0])
        assert y.tolist() == column[split][1].tolist() == [0, 1, 0, 1][: len(x)]
        assert (y.shape, y.dtype) == ((len(x),), np.int64)
    only = formats.read_medmnist(tmp_path / "flat.npz", classes=2, splits=("test", "train"))
    assert list(only) == ["test", "train"]


def test_a_damaged_npz_is_always_called_damaged(tmp_path):
    # Byte by byte: whatever is wrong inside, the error is the one that names the file. (Most changes are found by the checksums.)
    small = {f"{split}_images": images(2, 3, 3) for split in ("train", "val", "test")}
    content, _ = medmnist((2, 2, 2), **small)
    path, refused = tmp_path / "breastmnist.npz", []
    for position in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[position] ^= 1 + position % 255
        path.write_bytes(damaged)
        try:
            formats.read_medmnist(path, classes=2)
        except FormatError as error:
            refused.append(str(error))
    assert len(refused) > len(content) / 5 / 2
    assert all(error.startswith(f"{path}: ") for error in refused)
    single = io.BytesIO()
    np.save(single, images(2, 3))
    path.write_bytes(single.getvalue())  # an .npy file under the name of an .npz
    with pytest.raises(FormatError, match="not an npz file"):
        formats.read_medmnist(path, classes=2)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(("name", "file"), [("pneumonia_mnist", "pneumoniamnist"), ("breast_mnist", "breastmnist")])
def test_the_medical_sets_may_share_a_folder_and_their_own_comes_first(folder, name, file):
    shared, own = medmnist((2, 3, 4)), medmnist((5, 1, 2))
    folder("medmnist", **{f"{file}_dot_npz": shared[0]})
    data = load(name)
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 2, "val": 3, "test": 4}
    np.testing.assert_array_equal(data.split("test").x, shared[1]["test_images"][:, None])
    assert data.split("test").files == {f"{file}.npz": sha256(shared[0])}
    folder(name)  # an empty folder of its own hides nothing
    assert len(load(name).split("test")) == 4
    folder(name, **{f"{file}_dot_npz": own[0]})
    data = load(name)
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 5, "val": 1, "test": 2}
    assert data.split("train").files == {f"{file}.npz": sha256(own[0])}
    other = {"pneumonia_mnist": "breast_mnist", "breast_mnist": "pneumonia_mnist"}[name]
    with pytest.raises(DataSetNotFound, match="medmnist holds none of the files"):
        load(other, "folder")  # each reads the file of its own name
    (folder(name) / f"{file}.npz").write_bytes(b"damaged")
    with pytest.raises(FormatError, match=f"{name}/{file}.npz"):
        load(name)  # and a damaged file of its own is not replaced by the shared one


def test_splits_are_joined_in_the_order_asked_for(folder):
    content, arrays = medmnist((4, 2, 3), val_labels=np.array([1, 1]), test_labels=np.array([0, 0, 1]))
    folder("breast_mnist", breastmnist_dot_npz=content)
    data = load("breast_mnist")
    for name, order in (("val+test", ("val", "test")), ("test+train+val", ("test", "train", "val"))):
        joined = data.split(name)
        expected = np.concatenate([arrays[f"{part}_images"] for part in order])[:, None]
        np.testing.assert_array_equal(joined.x, expected)
        assert joined.y.tolist() == [y for part in order for y in arrays[f"{part}_labels"].reshape(-1).tolist()]
        assert len(joined) == len(expected)
        np.testing.assert_array_equal(data.pixels(name), expected.astype(np.float32) / 255)
        assert joined.files == {"breastmnist.npz": sha256(content)}
    assert data.split("val") is data.splits["val"]
    with pytest.raises(
        DataSetNotFound, match=r"breast_mnist from folder .* has no split 'dev': found train, val, test"
    ):
        data.split("val+dev")


def test_joined_texts_and_their_files(folder):
    train, test = TREC, b"HUM:ind Who ?"
    folder("trec", train_5500_dot_label=train, TREC_10_dot_label=test)
    data = load("trec")
    assert data.split("train").files == {"train_5500.label": sha256(train)}
    assert data.split("test").files == {"TREC_10.label": sha256(test)}
    joined = data.split("test+train")
    assert joined.x == ("Who ?", *data.split("train").x)
    assert joined.y.tolist() == [3, *data.split("train").y.tolist()]
    assert joined.files == data.split("test").files | data.split("train").files


def test_every_file_that_was_read_has_its_sha256(folder):
    x, y = images(5, 28, 28), np.arange(5, dtype=np.uint8)
    place = folder("mnist")
    written = {"t10k-images-idx3-ubyte.gz": gzip.compress(idx(x)), "t10k-labels-idx1-ubyte": idx(y)}
    for name, content in written.items():
        (place / name).write_bytes(content)
    assert load("mnist").split("test").files == {name: sha256(content) for name, content in written.items()}
    colours, place = images(5, 3, 32, 32), folder("cifar10")
    batches = {"data_batch_1.bin": colours[:2], "data_batch_3.bin": colours[2:4], "test_batch.bin": colours[4:]}
    for name, part in batches.items():
        (place / name).write_bytes(cifar_binary(part, range(len(part))))
    data = load("cifar10")
    assert data.split("train").files == {
        name: sha256((place / name).read_bytes()) for name in ("data_batch_1.bin", "data_batch_3.bin")
    }
    assert list(data.split("test").files) == ["test_batch.bin"]
    assert load("digits").split("all").files == {}


def cifar_npz(**changes):
    arrays = {"train_images": images(3, 32, 32, 3), "train_labels": np.array([9, 0, 4])}
    arrays |= {"test_images": images(2, 32, 32, 3), "test_labels": np.array([7, 7])} | changes
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue(), arrays


@pytest.mark.parametrize("file", ["cifar10.npz", "cifar10_part.npz"])
def test_cifar10_npz_is_read_channel_first_in_red_green_blue(folder, file):
    content, arrays = cifar_npz()
    place = folder("cifar10")
    (place / file).write_bytes(content)
    data = load("cifar10")
    assert {name: split.x.shape for name, split in data.splits.items()} == {
        "train": (3, 3, 32, 32),
        "test": (2, 3, 32, 32),
    }
    for channel in range(3):
        for row, column in ((0, 0), (5, 30), (31, 2)):
            assert data.split("train").x[1, channel, row, column] == arrays["train_images"][1, row, column, channel]
    assert data.split("train").y.tolist() == [9, 0, 4]
    assert data.split("test").files == {file: sha256(content)}
    # The official batches, which hold the three planes in this order, say the same, and come first.
    (place / "test_batch.bin").write_bytes(cifar_binary(arrays["test_images"].transpose(0, 3, 1, 2), [7, 7]))
    official = load("cifar10")
    assert list(official.splits) == ["test"]
    np.testing.assert_array_equal(official.split("test").x, data.split("test").x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": images(3, 32, 32)}, r"train_images is grey, \(3, 32, 32\)"),
        ({"train_images": images(3, 3, 32, 32)}, r"\(3, 3, 32, 32\), not uint8"),
        ({"test_labels": np.array([7, 10])}, r"label 10 in row 2 is outside 0\.\.9"),
        ({"test_labels": np.array([7])}, r"test_labels has shape \(1,\), not \(2, 1\)"),
    ],
)
def test_another_cifar10_npz_is_refused(folder, changes, message):
    folder("cifar10", cifar10_dot_npz=cifar_npz(**changes)[0])
    with pytest.raises(FormatError, match=message):
        load("cifar10")


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
    own, shared = tmp_path / name, DATA_SETS[name].shared
    absent = f"{own} and {tmp_path / shared} are not there" if shared else f"{own} is not there"
    with pytest.raises(DataSetNotFound, match=absent):
        load(name, "folder")
    own.mkdir()
    with pytest.raises(DataSetNotFound, match=f"folder: {own} holds none of the files"):
        load(name, "folder")
    if shared:
        (tmp_path / shared).mkdir()
        with pytest.raises(DataSetNotFound, match=f"{own} and {tmp_path / shared} hold none of the files"):
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
