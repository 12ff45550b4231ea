"""Loading of a `tokenizer.json` of either kind."""

import json

from data_prep.tokenizers.bpe import open_bpe
from data_prep.tokenizers.opened import OpenedTokenizer
from data_prep.tokenizers.sentencepiece_models import KIND_KEY, open_sentencepiece

# A cache by SHA-256 of the file: every task of a worker loads the same tokenizer, and verifying it takes time.
_OPENED: dict[str, OpenedTokenizer] = {}
_MAX_OPENED = 4


def open_tokenizer(data: bytes, digest: str) -> OpenedTokenizer:
    """Load the tokenizer in `data`, whose SHA-256 is `digest`, or return it if this process has loaded it before.

    ForeignTokenizer when its special tokens are not permcode's, any other exception when it is damaged.
    """
    if digest not in _OPENED:
        while len(_OPENED) >= _MAX_OPENED:
            del _OPENED[next(iter(_OPENED))]
        content = data.decode()
        parsed = json.loads(content)
        if not isinstance(parsed, dict):
            raise ValueError("not a JSON object")
        _OPENED[digest] = open_sentencepiece(parsed) if KIND_KEY in parsed else open_bpe(content)
    return _OPENED[digest]
