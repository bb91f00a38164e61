"""`prepare`: a data set by name, made ready for the noise study on the backbone of its plan or on a pretrained model."""

from pathlib import Path
from typing import Any

from attnbook.token_selection.real_data.backbones import BACKBONES
from attnbook.token_selection.real_data.loaders import load
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.pretrained import pretrained_setup
from attnbook.token_selection.real_data.setups import Setup, head_confidence, scale_head, small_vit_setup
from attnlib import checks


def prepare(
    name: str,
    seed: int,
    *,
    plan: Plan | None = None,
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    **options: Any,
) -> Setup:
    """Load a data set, divide it, train phase 1, cache the last layer's input for pool and test, and scale the head by the plan.

    name: a key of `PLANS`. encoder: folder or hub name of a pretrained ViT or BERT-like model, needed for texts and for images
    whose plan has no small ViT, used for any set it is given for. data: folder of published files, see `load`.
    options: `encoder_name`, what a stored table calls the encoder; `cache`, folder of encoded texts and pictures; `progress`, bars or none.

    Raises what `load` raises, ValueError when the parts do not fit or an encoder is needed and missing.
    """
    plan = plan or PLANS[checks.one_of("name", name, tuple(PLANS))]
    if encoder is None and not plan.shape:
        raise ValueError(
            f"encoder must be given for {name}: the folder of a pretrained model, or its name on the hub (the paper's is "
            f"{BACKBONES[plan.kind]!r})"
        )
    found = load(plan.data or name, data)
    if encoder:
        made = pretrained_setup(found, plan, seed, encoder, **options)
    else:
        options.pop("encoder_name", None)
        made = small_vit_setup(found, plan, seed, **options)
    return scale_head(made, plan.confidence / head_confidence(made)) if plan.confidence else made
