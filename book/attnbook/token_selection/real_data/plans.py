"""The experiments: sizes of the parts, backbone, optimiser and horizon of each data set, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Plan:
    """Sizes and settings of one data set's experiment. A stored table holds them, so they are plain values.

    phase1, pool, test: number of samples of each part, all of the split `official` unless `test_split` names another for the
    test set (test None: all of that one). `balanced`: every part has equally many samples of each class; in phase 1 those of a
    class that has too few are repeated (test None: as many as the smallest class allows). steps: horizon by n; batch: minibatch
    by n (None full). `shape` of the small ViT (empty: a pretrained one is needed); `random_features`: settings of
    `RandomFeatures`, whose tokens the small ViT then takes instead of pixels; `fixed`: it takes those of a pretrained backbone, "lite0",
    "lite2" or "mpnet", and `features` of its channels, drawn by seed; `mixed`: noise is added, of so many standard deviations of
    a channel (`setups.weakened`); epochs and step size of phase 1. schedule: settings of phase 2 besides step size, steps and batch
    (`noise_study`). For texts: the number of positions `max_length`, whether [CLS] is position 0, and whether the head has BERT's
    pooler (a dense tanh layer, trained with it). data: name of the data set where the plan has a name of its own. confidence: the
    frozen head's logits are multiplied by one number, so that `setups.head_confidence` is this (0: as phase 1 left them). noise: the
    levels eta, from 0. seeds: how many are stored, from `first_seed` on.
    """

    kind: str
    official: str
    phase1: int
    pool: int
    test: int | None
    sizes: tuple[int, ...]
    step_size: float
    steps: Mapping[int, int]
    batch: Mapping[int, int | None]
    recorded: tuple[int, ...] = (0, 5, 10, 20, 30, 50, 100, 200, 400)
    shape: Mapping[str, int] = field(default_factory=dict)
    random_features: Mapping[str, Any] = field(default_factory=dict)
    fixed: str = ""
    mixed: float = 0.0
    schedule: Mapping[str, Any] = field(default_factory=dict)
    balanced: bool = False
    confidence: float = 0.0
    noise: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4)
    seeds: int = 5
    first_seed: int = 0
    max_length: int = 0
    special_tokens: bool = True
    epochs: int = 30
    head_step_size: float = 2e-3
    pooler: bool = True
    test_split: str = ""
    data: str = ""

    @property
    def all_seeds(self) -> range:
        """Those that are stored."""
        return range(self.first_seed, self.first_seed + self.seeds)


_SHAPE = {"image": 28, "patch": 7, "width": 64, "heads": 8, "layers": 2, "hidden": 128}  # of the small ViT
_FULL = {20: None, 200: None}  # batches: all samples
_TEXT_STEPS, _TEXT_BATCH = {20: 600, 200: 600, 1000: 700}, {20: None, 200: 32, 1000: 32}

_MNIST = Plan(
    kind="image",
    official="test",
    phase1=6000,
    pool=1500,
    test=2500,
    sizes=(20, 200, 1000),
    step_size=5e-3,
    steps=dict.fromkeys((20, 200, 1000), 600),
    batch=_FULL | {1000: 128},
    shape=_SHAPE,
    epochs=12,
)
_TREC = Plan(
    kind="text",
    official="train",
    phase1=3000,
    pool=1500,
    test=None,
    test_split="test",
    sizes=(20, 200, 1000),
    step_size=1e-3,
    steps=_TEXT_STEPS,
    batch=_TEXT_BATCH,
    max_length=32,
    head_step_size=1e-3,
)
PLANS = {
    "digits": replace(
        _MNIST,
        official="all",
        phase1=1000,
        pool=297,
        test=500,
        sizes=(20, 100, 200),
        epochs=30,
        steps=dict.fromkeys((20, 100, 200), 600),
        batch=dict.fromkeys((20, 100, 200)),
        shape={**_SHAPE, "image": 8, "patch": 2, "heads": 16},
    ),
    "mnist": _MNIST,
    "ag_news": replace(_TREC, official="test", test=2000, test_split="", max_length=48),
    "trec": _TREC,
}
# Pictures in colour, and pictures of two classes of very different size (the sets' own numbers: pneumonia 1214 and 3494, breast 147
# and 399 in the official training split): there every part is balanced, and the test set holds all of the smaller class.
_OFFICIAL = replace(_MNIST, official="train", test=None, test_split="test")
PLANS["cifar10"] = replace(_OFFICIAL, phase1=3000, shape={**_SHAPE, "image": 32, "patch": 4, "channels": 3}, epochs=40)
_MEDICAL = replace(
    _OFFICIAL,
    phase1=1200,
    pool=200,
    balanced=True,
    epochs=30,
    sizes=(20, 200),
    steps=dict.fromkeys(_FULL, 600),
    batch=_FULL,
    seeds=20,
)
PLANS["pneumonia_mnist"] = _MEDICAL
PLANS["breast_mnist"] = replace(_MEDICAL, phase1=500, test_split="val+test")
# The same samples on a backbone that is not trained: one layer on random features of small windows.
_FEATURES: dict[str, Any] = {"features": 256, "window": 6, "stride": 2, "gamma": 0.5}
_CELLS = {"digits": 2, "mnist": 7, "cifar10": 8, "pneumonia_mnist": 7, "breast_mnist": 7}  # widths, in pixels
for _name, _cell in _CELLS.items():
    PLANS[f"{_name}_random_features"] = replace(
        PLANS[_name],
        data=_name,
        shape={**PLANS[_name].shape, "patch": _cell, "layers": 1, "features": _FEATURES["features"]},
        random_features=_FEATURES | ({"window": 3, "stride": 1} if _name == "digits" else {}),
    )
# The same samples on a strong backbone: a class token that one layer reads from the 49 cells of EfficientNet-Lite0's last map, or from the
# word pieces of a text. All samples share its query, so that heads x width numbers choose all attention: 8 x 128 fit the flipped labels of
# 200 samples, 32 x 256 those of 1000 pictures, but in 2000 steps only .71, .64 and .47 of those of 1000 questions (eta .1, .2, .4; five
# times the step size: .61, .62, .30). Phase 1 was chosen on pool samples, and heads, width, step size and horizon by the fit of wrong
# training labels, at seeds 100 to 103: no test sample was looked at.
_PICTURES, _TEXTS = ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist"), ("ag_news", "trec")
_STRONG = [(name, "lite0", {"image": 7, "patch": 1, "features": 1280}) for name in _PICTURES] + [
    (name, "mpnet", {"tokens": PLANS[name].max_length, "features": 768, "padded": True}) for name in _TEXTS
]
for _name, _fixed, _shape in _STRONG:
    _few, _sizes = PLANS[_name].balanced, [n for n in PLANS[_name].sizes if n > 20]
    _layer = {"width": 128, "heads": 8} if _few else {"width": 256, "heads": 32}
    PLANS[f"{_name}_{_fixed}"] = replace(
        PLANS[_name], data=_name, shape={**_shape, **_layer, "layers": 1, "hidden": 256}, fixed=_fixed, sizes=tuple(_sizes),
        epochs=5 if _name == "ag_news" else 10, head_step_size=2e-4, step_size=5e-4 if _few else 2e-4,
        steps={n: 1500 if n == 200 else 2000 for n in _sizes}, batch={n: None if n == 200 else 128 for n in _sizes},
    )  # fmt: skip


def _as_the_authors(plan: Plan, name: str, *sizes: int) -> Plan:
    """Phase 2 as in the authors' code: transformers' Trainer as it is, AdamW without decay at 5e-5, linear to zero, 2000 epochs of batches
    of 16, torch's own start of a linear layer, whose weights have this standard deviation (theirs are uniform, ours normal; their gradients
    are cut at norm 1, ours are not)."""
    steps = {n: 2000 * -(-n // 16) for n in sizes}
    start = (3 * plan.shape.get("width", 768)) ** -0.5  # 768: of ViT-B and BERT-base
    return replace(
        plan, data=name, sizes=sizes, step_size=5e-5, steps=steps, batch=dict.fromkeys(steps, 16),
        schedule={"warmup": 0, "final_fraction": 0.0, "drop_last": False, "start_scale": start},
        recorded=(0, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    )  # fmt: skip


for _name, _fixed, _ in _STRONG:
    _own = PLANS[f"{_name}_{_fixed}"]
    PLANS[f"{_name}_{_fixed}_authors"] = _as_the_authors(_own, _name, *_own.sizes)
for _name in _PICTURES:
    PLANS[f"{_name}_authors"] = _as_the_authors(PLANS[_name], _name, 200)
PLANS["digits_authors"] = _as_the_authors(PLANS["digits"], "digits", 20, 200)
# A second backbone for pictures: 81 cells of EfficientNet-Lite2.
for _name in ("cifar10", "mnist"):
    _own = PLANS[f"{_name}_lite0"]
    PLANS[f"{_name}_lite2"] = replace(_own, fixed="lite2", shape={**_own.shape, "image": 9}, sizes=(200,))
# The authors' range of noise levels, on seeds that no other table holds: see `trial`.
for _name in ("cifar10_lite0", "ag_news_mpnet"):
    for _way in ("", "_authors"):
        PLANS[f"{_name}_range{_way}"] = replace(
            PLANS[_name + _way], sizes=(200,), noise=(0.0, 0.05, 0.1, 0.2), first_seed=5, seeds=20
        )
# A pretrained ViT, phase 1 as large as the authors'; test sets cut to what fits in memory (a ViT-B image is 0.6 MB at the last layer,
# twice).
_VIT = replace(_TREC, kind="image", phase1=10_000, pool=1000, test=1000, max_length=0)
PLANS["mnist_pretrained"] = replace(_VIT, data="mnist")
PLANS["cifar10_pretrained"] = replace(_VIT, data="cifar10")
PLANS["pneumonia_mnist_pretrained"] = replace(_VIT, data="pneumonia_mnist", phase1=3000, test=None)
PLANS["breast_mnist_pretrained"] = replace(_VIT, data="breast_mnist", phase1=200, pool=300, test=None, sizes=(20, 200))
for _name in (*_PICTURES, *_TEXTS):  # their texts have no [CLS]
    _own = PLANS.get(f"{_name}_pretrained") or replace(PLANS[_name], special_tokens=False)
    PLANS[f"{_name}_pretrained_authors"] = _as_the_authors(_own, _name, *_own.sizes)
# The same samples with a linear head, and with one that is trained gently: how much of the harm is the head's.
for _name in ("ag_news", "trec"):
    PLANS[f"{_name}_linear_head"] = replace(PLANS[_name], data=_name, pooler=False)
    PLANS[f"{_name}_gentle_head"] = replace(PLANS[_name], data=_name, epochs=15, head_step_size=1e-4)
# The same networks with equally confident heads: how much of the differences between the sets is the head's confidence.
for _name in (*_CELLS, *(f"{name}_random_features" for name in _CELLS), "ag_news", "trec"):
    PLANS[f"{_name}_equal_confidence"] = replace(
        PLANS[_name], data=PLANS[_name].data or _name, sizes=(200,), confidence=1.0
    )
# What decides (`causes`): the strong backbone's tokens (fewer channels, or noise) and the head's confidence, each varied with the other
# held. 16 x 128 fit the flipped labels of ten classes; step size and horizon by the fit at seed 100.
_FOUND = {"": (0.3, 1.0, 3.0, 10.0), "_20_channels": (1.0, 10.0), "_noise": (1.0, 10.0)}
_FOUND |= dict.fromkeys((f"_{kept}_channels" for kept in (10, 40, 80, 320)), (1.0,))
for _name in _PICTURES:
    _own = PLANS[f"{_name}_lite0"]
    _judged = {"": (1.0, 10.0), "_20_channels": (1.0,)} | ({"_noise": (1.0,)} if _own.balanced else {})
    for _weak, _confidences in (_FOUND if _name == "cifar10" else _judged).items():
        _features = int(_weak.split("_")[1]) if "channels" in _weak else _own.shape["features"]
        for _confidence in _confidences:
            PLANS[f"{_name}_lite0{_weak}_confidence_{_confidence:g}"] = replace(
                _own, shape={**_own.shape, "width": 128, "heads": 16, "features": _features}, mixed=1.5 * ("noise" in _weak),
                confidence=_confidence, sizes=(200,), seeds=5, step_size=1e-3, steps={200: 500}, batch={200: None},
            )  # fmt: skip


def own_pictures(template: Plan, pictures: int, sizes: Sequence[int] = (200,)) -> Plan:
    """A plan for pictures of one's own: that of `template`, with parts of this many pictures.

    A quarter of the pictures, at most 2500, is the test set; a quarter, at most 1500, the pool of phase 2; the rest, at most 6000, is
    phase 1, which takes 500 steps or more. Raises ValueError for an n above the pool.
    """
    test, pool = min(pictures // 4, 2500), min(pictures // 4, 1500)
    if max(sizes) > pool:
        raise ValueError(
            f"n must be at most the pool, a quarter of the pictures, {pool} of {pictures}; got {max(sizes)}: take a smaller --n, or "
            f"{4 * max(sizes)} pictures"
        )
    phase1 = min(pictures - test - pool, 6000)
    every = sorted({*template.steps, *sizes})
    like = {n: min((k for k in template.steps if k >= n), default=max(template.steps)) for n in every}
    own = replace(
        template, data="", official="all", test_split="", balanced=False, phase1=phase1, pool=pool, test=test, sizes=tuple(sizes),
        steps={n: template.steps[k] for n, k in like.items()}, batch={n: template.batch[k] for n, k in like.items()},
        epochs=max(template.epochs, -(-500 // max(1, phase1 // 64))),
    )  # fmt: skip
    return replace(_as_the_authors(own, "", *every), sizes=own.sizes) if template.schedule else own
