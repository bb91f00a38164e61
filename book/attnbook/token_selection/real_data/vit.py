"""A small pre-norm vision transformer, trained on the page (phase 1), and its last layer as a `FrozenLastLayer` (phase 2).

patches or fixed tokens (+ positions), CLS token -> layers of x + attention(norm(x)), x + feed-forward(norm(x)) -> norm, head on CLS.
In the last layer only the CLS row is computed: no other row is ever read. dtype float32.

Its tokens may come from a backbone that learns nothing from labels (`RandomFeatures`): random Fourier features of small windows,
averaged over the cells of a grid.

    window w (k x k pixels, all channels), contrast-normalised, whitened: z = PCA(w)
    feature  phi_j(z) = sqrt(2/F) cos(omega_j . z + b_j),  omega_j ~ N(0, 2 gamma I), b_j uniform,  so that
             E phi(z) . phi(z') = exp(-gamma |z - z'|^2)
    token    x_l = mean of phi over the windows whose centre lies in cell l (on a border: the cell to the left, or above)

The whitening is that of windows of the pictures given to `fit` (no labels). Whitening and features are scikit-learn's `PCA` and
`RBFSampler`; random Fourier features: Rahimi and Recht, 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from attnbook.token_selection.real_data.frozen import FrozenLastLayer, QueryKey
from attnlib.randomness import stream

_WINDOWS = 20_000  # from which the whitening is estimated
_COMPONENTS = 40  # of the whitening, at most
_AT_ONCE = 100  # pictures


@dataclass(frozen=True)
class ViTShape:
    """Sizes of a `SmallViT`. `image` and `patch` in pixels, `width` D, `hidden` width of the feed-forward block.

    `channels`: of a picture. `features`: width of a token that a fixed backbone made, one per patch (`random_features`); 0: the
    tokens are the pixels of the patches. `tokens`: how many such tokens a sample has where it is no picture; `padded`: one that is all
    zeros is no token, and no position reads it. `late_cls`: the CLS token enters only at the last layer, so that its query is one vector
    for all samples and a score is x^T W p, the form of the theory; with one layer it always does.
    """

    image: int = 8
    patch: int = 2
    width: int = 64
    heads: int = 16
    layers: int = 2
    hidden: int = 128
    classes: int = 10
    late_cls: bool = False
    channels: int = 1
    features: int = 0
    tokens: int = field(default=0, repr=False)
    padded: bool = field(default=False, repr=False)

    @property
    def patches(self) -> int:
        return self.tokens or (self.image // self.patch) ** 2

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape of one input: a picture of one channel, a picture of several, or the tokens of a fixed backbone."""
        if self.features:
            return self.patches, self.features
        return (self.image, self.image) if self.channels == 1 else (self.channels, self.image, self.image)


class _Layer(nn.Module):
    def __init__(self, shape: ViTShape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, shape.hidden), nn.Linear(shape.hidden, width)

    def after_attention(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x = residual + self.output(attended)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, rows: int | None = None) -> torch.Tensor:
        """(N, L, D) -> (N, L, D), or only the first `rows` positions of it; mask (N, L) or None: see `SmallViT.mask`."""
        normed = self.norm1(x)
        parts = self.query(normed[:, :rows]), self.key(normed), self.value(normed)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        allowed = None if mask is None else mask[:, None, None, -x.shape[1] :]
        attended = functional.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2).flatten(-2)
        return self.after_attention(attended, x[:, :rows])


class _Finish(nn.Module):
    """What follows the attention of the last layer, for position 0: leading run axes are free."""

    def __init__(self, model: SmallViT) -> None:
        super().__init__()
        self.layer, self.norm, self.head = model.stack[-1], model.norm, model.head

    def features(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer.after_attention(attended, residual))

    def forward(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(attended, residual))


class SmallViT(nn.Module):
    """See the module's text. Weights are uniform on +-1/sqrt(fan-in), embeddings normal with standard deviation 0.2, biases
    zero, all drawn from stream(seed, "start", run). Input: (N, *shape.sample): images (N, image, image), or (N, channels, image,
    image), pixels in [0, 1]; or the tokens of a fixed backbone, (N, patches, features)."""

    def __init__(self, shape: ViTShape, *, seed: int = 0, run: int = 0) -> None:
        super().__init__()
        self.shape = shape
        # torch draws weights that are replaced below: leave its global state alone
        with torch.random.fork_rng(devices=[]):
            self.embed = nn.Linear(shape.features or shape.channels * shape.patch**2, shape.width)
            self.cls = nn.Parameter(torch.empty(1, 1, shape.width))
            self.positions = nn.Parameter(torch.empty(1, shape.patches, shape.width))
            self.stack = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
            self.norm = nn.LayerNorm(shape.width)
            self.head = nn.Linear(shape.width, shape.classes)
        draws = stream(seed, "start", run)
        for name, parameter in self.named_parameters():
            size = tuple(parameter.shape)
            if "norm" in name:
                continue
            if name.endswith("bias"):
                parameter.data.zero_()
                continue
            drawn = (
                draws.normal(0, 0.2, size)
                if parameter.ndim == 3
                else draws.uniform(-1, 1, size) / np.sqrt(parameter.shape[1])
            )
            parameter.data.copy_(torch.from_numpy(drawn))

    def _tokens(self, images: torch.Tensor) -> torch.Tensor:
        """What is embedded: (N, patches, channels patch^2), or the fixed tokens as they are."""
        if self.shape.features:
            return images.float()  # kept as float16 where there are many
        patch, pictures = self.shape.patch, images.unsqueeze(1) if self.shape.channels == 1 else images
        grid = pictures.unfold(2, patch, patch).unfold(3, patch, patch)  # (N, C, rows, columns, patch, patch)
        return grid.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)

    def mask(self, images: torch.Tensor) -> torch.Tensor | None:
        """True where a position may be read, (N, 1 + patches), CLS first; None where all may."""
        return functional.pad((images != 0).any(-1), (1, 0), value=True) if self.shape.padded else None

    def last_input(self, images: torch.Tensor) -> torch.Tensor:
        """Residual stream at the entrance of the last layer: (N, 1 + patches, D), CLS first."""
        x = self.embed(self._tokens(images)) + self.positions
        cls = self.cls.expand(len(x), -1, -1)
        if not self.shape.late_cls:
            x = torch.cat([cls, x], 1)
        for layer in self.stack[:-1]:
            x = layer(x, self.mask(images))
        return torch.cat([cls, x], 1) if self.shape.late_cls else x

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Input of the head: (N, D)."""
        return self.norm(self.stack[-1](self.last_input(images), self.mask(images), rows=1)[:, 0])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes)."""
        return self.head(self.features(images))

    def own_selection(self) -> QueryKey:
        """The query and key that phase 1 trained, as one run."""
        last = self.stack[-1]
        parts = last.query.weight.T, last.query.bias, last.key.weight.T
        return QueryKey(*(part.detach().clone().unsqueeze(0) for part in parts))

    @torch.no_grad()
    def freeze(self, images: torch.Tensor) -> FrozenLastLayer:
        """The last layer on these images; the model's parameters are switched to requires_grad=False."""
        self.requires_grad_(False)
        x, layer = self.last_input(images), self.stack[-1]
        normed = layer.norm1(x)
        return FrozenLastLayer(
            normed, layer.value(normed), x[:, 0].clone(), self.mask(images), self.shape.heads, _Finish(self)
        )


def train_vit(
    images: torch.Tensor,
    labels: torch.Tensor,
    shape: ViTShape,
    *,
    seed: int = 0,
    run: int = 0,
    epochs: int = 30,
    batch: int = 64,
    step_size: float = 2e-3,
    weight_decay: float = 0.05,
) -> SmallViT:
    """Phase 1: AdamW on clean labels, one-cycle step size, minibatches in the order of stream(seed, "batches", run).

    images: (N, *shape.sample) float32, see `SmallViT`; labels: (N,) int64; it is trained on their device. Each epoch has N // batch
    steps (the rest is left out), at least one. Returns the model with frozen parameters.
    """
    model = SmallViT(shape, seed=seed, run=run).to(images.device)
    per_epoch = max(1, len(images) // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=step_size, weight_decay=weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, step_size, total_steps=epochs * per_epoch)
    orders = stream(seed, "batches", run)
    for _ in range(epochs):
        order = torch.from_numpy(orders.permutation(len(images)))
        for chosen in order[: per_epoch * batch].split(batch):
            optimiser.zero_grad()
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimiser.step()
            schedule.step()
    return model.eval().requires_grad_(False)


# --- A backbone that learns nothing ---------------------------------------------------------------------------------------


class RandomFeatures:
    """Tokens of pictures without any trained weight.

    image: width of the square pictures; cell: width of a grid cell, a divisor of it; features: F; window: k; stride between
    windows; gamma: of the kernel, divided by the number of components. Draws: stream(seed, "start", 3).
    """

    def __init__(
        self,
        image: int,
        cell: int,
        *,
        features: int = 256,
        window: int = 6,
        stride: int = 2,
        gamma: float = 0.5,
        seed: int = 0,
    ) -> None:
        starts = np.arange(0, image - window + 1, stride)
        cells = ((starts + (window - 1) / 2) // cell).astype(int)
        members = np.equal.outer(np.arange(image // cell), cells).astype(np.float32)
        self.mean = members / members.sum(1, keepdims=True)  # (cells, windows), along one axis
        self.image, self.window, self.stride = image, window, stride
        self.features, self.gamma, self.seed = features, gamma, seed

    def _windows(self, images: np.ndarray) -> np.ndarray:
        """(N, C, H, W) to (N, windows, windows, C k k): mean zero, divided by the standard deviation (0.1 added in square)."""
        found = torch.from_numpy(images)
        for axis in (2, 3):
            found = found.unfold(axis, self.window, self.stride)
        found = found.permute(0, 2, 3, 1, 4, 5).flatten(3)
        found = found - found.mean(-1, keepdim=True)
        return (found / torch.sqrt(found.var(-1, keepdim=True) + 0.01)).numpy()

    def fit(self, images: np.ndarray) -> RandomFeatures:
        """Whitening from the windows of images (N, C, H, W), pixels in [0, 1], and the random frequencies. Returns self."""
        from sklearn.decomposition import PCA  # as in the loader of digits: an extra
        from sklearn.kernel_approximation import RBFSampler

        draws = stream(self.seed, "start", 3)
        some = np.sort(draws.permutation(len(images))[:2000])
        windows = self._windows(images[some])
        windows = windows.reshape(-1, windows.shape[-1])
        windows = windows[np.sort(draws.permutation(len(windows))[:_WINDOWS])]
        state = [int(word) for word in draws.integers(2**31, size=2)]
        components = min(_COMPONENTS, windows.shape[1] - 1, len(windows) - 1)
        self.whitening = PCA(n_components=components, whiten=True, random_state=state[0]).fit(windows)
        sampler = RBFSampler(gamma=self.gamma / components, n_components=self.features, random_state=state[1])
        self.sampler = sampler.fit(self.whitening.transform(windows[:2]))
        return self

    def transform(self, images: np.ndarray) -> torch.Tensor:
        """Tokens (N, cells, F), float32, of images (N, C, H, W); cells row by row."""
        found = []
        for part in np.array_split(images, max(1, -(-len(images) // _AT_ONCE))):
            windows = self._windows(part)
            flat = self.sampler.transform(self.whitening.transform(windows.reshape(-1, windows.shape[-1])))
            grid = flat.reshape(*windows.shape[:3], self.features).astype(np.float32)
            cells = np.einsum("gh,nhvf,kv->ngkf", self.mean, grid, self.mean, optimize=True)
            found.append(cells.reshape(len(part), -1, self.features).astype(np.float32))
        return torch.from_numpy(np.concatenate(found))
