"""Log-probabilities of tokens as OpenAI's protocol shows them."""

import codecs
from collections.abc import Sequence
from typing import Any

from pretrain.inference.language_model import PermutationLM
from pretrain.inference.scored_text import score_texts
from pretrain.inference.scoring import LikelyTokens
from pretrain.inference.shared_writing import WrittenToken
from pretrain.inference.worker import ServeOthers


def log_probabilities(tokens: Sequence[WrittenToken], first_character: int) -> dict[str, Any]:
    """Return the object `logprobs`: natural logarithms, at temperature 1, over the whole vocabulary.

    `text_offset` counts the characters before each token, from `first_character` on. A token that is no text by itself
    is shown as its bytes.
    """
    offsets, offset = [], first_character
    characters = codecs.getincrementaldecoder("utf-8")("ignore")
    for token in tokens:
        offsets.append(offset)
        offset += len(characters.decode(token.data))
    return {
        "tokens": [_shown(token.data) for token in tokens],
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [{_shown(data): score for data, score in token.alternatives} for token in tokens],
        "text_offset": offsets,
    }


def scored_tokens(
    model: PermutationLM, prompt: bytes, num_alternatives: int, serve_others: ServeOthers
) -> list[WrittenToken]:
    """Return a prompt's tokens with the log-probability of each given those before it, and the most likely ones.

    Raises UserError for an empty prompt.
    """
    (scored,) = score_texts(
        model.network, model.tokenizer, [prompt], model.segment_tokens, num_alternatives, serve_others
    )
    tokens = []
    likely = scored.scores.likely or LikelyTokens.empty(len(scored.token_P), 0)
    for token, score, token_K, score_K in zip(
        scored.token_P.tolist(),
        scored.scores.log_probability_P.tolist(),
        likely.token_PK.tolist(),
        likely.log_probability_PK.tolist(),
        strict=True,
    ):
        serve_others()
        decoded = [model.tokenizer.decode_bytes([one]) for one in token_K]
        data = model.tokenizer.decode_bytes([token])
        tokens.append(WrittenToken(data, score, tuple(zip(decoded, score_K, strict=True))))
    return tokens


def _shown(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
