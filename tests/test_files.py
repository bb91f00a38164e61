"""Files of long computations are whole or not there."""

import numpy as np
import pytest

from attnbook.files import require_writable, write_arrays


def test_arrays_come_back_under_exactly_this_name(tmp_path):
    for compressed in (False, True):
        write_arrays(tmp_path / "grid.part7", compressed=compressed, a=np.arange(6).reshape(2, 3), key=np.array("x"))
        with np.load(tmp_path / "grid.part7") as file:
            assert file["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
            assert str(file["key"]) == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["grid.part7"]


def test_compressed_is_smaller(tmp_path):
    for name, compressed in (("plain", False), ("small", True)):
        write_arrays(tmp_path / name, compressed=compressed, a=np.zeros(10_000))
    assert (tmp_path / "small").stat().st_size < (tmp_path / "plain").stat().st_size / 20


def test_a_write_that_fails_or_is_interrupted_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "grid.npz"
    write_arrays(path, a=np.ones(3))
    before = path.read_bytes()
    for error in (OSError("disk full"), KeyboardInterrupt()):

        def half(file, error=error, **_):
            file.write(b"half")
            raise error

        monkeypatch.setattr(np, "savez", half)
        with pytest.raises(type(error)):
            write_arrays(path, a=np.zeros(3))
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["grid.npz"]


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="in a folder that does not exist: make it first"):
        require_writable(tmp_path / "missing" / "x.npz")
    with pytest.raises(ValueError, match="a folder: make it first"):
        require_writable(tmp_path)
    require_writable(tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(ValueError, match=r"can be written; got 'x.npz' \(Permission denied\)"):
        require_writable(tmp_path / "x.npz")
