r"""A fixed backbone that learns nothing from labels: random Fourier features of small windows, averaged over the cells of a grid.

    window w (k x k pixels, all channels), contrast-normalised, whitened: z = PCA(w)
    feature  phi_j(z) = sqrt(2/F) cos(omega_j . z + b_j),  omega_j ~ N(0, 2 gamma I), b_j uniform,  so that
             E phi(z) . phi(z') = exp(-gamma |z - z'|^2)
    token    x_l = mean of phi over the windows whose centre lies in cell l (on a border: the cell to the left, or above)

The whitening is that of windows of the pictures given to `fit` (no labels). Whitening and features are scikit-learn's `PCA` and
`RBFSampler`; random Fourier features: Rahimi and Recht, 2007.
"""

from __future__ import annotations

import numpy as np
import torch

from attnlib import checks
from attnlib.randomness import stream

_WINDOWS = 20_000  # from which the whitening is estimated
_COMPONENTS = 40  # of the whitening, at most
_AT_ONCE = 100  # pictures


class RandomFeatures:
    """Tokens of pictures without any trained weight.

    image: width of the square pictures; cell: width of a grid cell, a divisor of it; features: F; window: k; stride between
    windows; gamma: of the kernel, divided by the number of components. Draws: stream(seed, "start", 3).
    Raises ValueError for sizes that do not fit.
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
        for name, value in {
            "image": image, "cell": cell, "features": features, "window": window, "stride": stride
        }.items():  # fmt: skip
            checks.whole_number(name, value, at_least=1)
        checks.positive_number("gamma", gamma)
        if image % cell:
            raise ValueError(f"cell must divide image; got cell {cell} and image {image}")
        if window < 2 or window > image:
            raise ValueError(f"window must lie in 2..{image}, the width of the pictures; got {window}")
        starts = np.arange(0, image - window + 1, stride)
        cells = ((starts + (window - 1) / 2) // cell).astype(int)
        members = np.equal.outer(np.arange(image // cell), cells).astype(np.float32)
        if not members.any(1).all():
            raise ValueError(f"every cell needs a window; got cell {cell}, window {window}, stride {stride}")
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

    def _checked(self, images: np.ndarray) -> np.ndarray:
        if images.ndim != 4 or images.shape[2:] != (self.image, self.image):
            raise ValueError(f"images must have shape (N, C, {self.image}, {self.image}); got {images.shape}")
        return images.astype(np.float32, copy=False)

    def fit(self, images: np.ndarray) -> RandomFeatures:
        """Whitening from the windows of images (N, C, H, W), pixels in [0, 1], and the random frequencies. Returns self."""
        from sklearn.decomposition import PCA  # as in the loader of digits: an extra
        from sklearn.kernel_approximation import RBFSampler

        images = self._checked(images)
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
        """Tokens (N, cells, F), float32, of images (N, C, H, W); cells row by row. Raises ValueError before `fit`."""
        images = self._checked(images)
        if not hasattr(self, "sampler"):
            raise ValueError("transform needs the whitening and the frequencies: call fit(images) first")
        found = []
        for part in np.array_split(images, max(1, -(-len(images) // _AT_ONCE))):
            windows = self._windows(part)
            flat = self.sampler.transform(self.whitening.transform(windows.reshape(-1, windows.shape[-1])))
            grid = flat.reshape(*windows.shape[:3], self.features).astype(np.float32)
            cells = np.einsum("gh,nhvf,kv->ngkf", self.mean, grid, self.mean, optimize=True)
            found.append(cells.reshape(len(part), -1, self.features).astype(np.float32))
        return torch.from_numpy(np.concatenate(found))
