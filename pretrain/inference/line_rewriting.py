"""What a model would write in place of a line, given the rest of the text and the line's length.

The token that ends the line stays, so that what is written is one line.

Shapes: T tokens of a text, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.decoder import Decoder
from pretrain.inference.hole import Sides
from pretrain.inference.infilling import HoleRequest, fill_known_length
from pretrain.inference.results import Completion
from pretrain.inference.sampling import GREEDY
from pretrain.inference.scanned_text import ScannedLine
from pretrain.inference.text_stream import TextStream
from pretrain.inference.token_rules import TokenRules, specials_but

_MAX_LANES = 16


def rewrite_lines(
    decoder: Decoder, tokenizer: CodeTokenizer, text: bytes, lines: Sequence[ScannedLine]
) -> list[Completion | None]:
    """Write the most likely tokens, one after the other, in place of each line: as many as it has.

    The log-likelihood is that of the new tokens, without the one that ends the line. None for a line of more than half
    a segment, and for one that has no other token than its end.
    """
    tokens_T = tokenizer.encode_bytes(text).astype(np.int64)
    line_ends = [token for token in range(tokenizer.vocab_size) if b"\n" in tokenizer.decode_bytes([token])]
    is_end_T = np.isin(tokens_T, line_ends)
    places = [
        range(line.tokens.start, line.tokens.stop - int(is_end_T[line.tokens.stop - 1])) for line in lines
    ]
    most_tokens = max(1, decoder.segment_tokens // 2)
    written = [number for number, place in enumerate(places) if 0 < len(place) <= most_tokens]
    requests = [
        HoleRequest(
            Sides(
                np.insert(tokens_T[: places[number].start], 0, tokenizer.eod_id),
                tokens_T[places[number].stop :],
            ),
            len(places[number]),
        )
        for number in written
    ]
    rules = TokenRules((*specials_but(None), *line_ends))
    found: list[Completion | None] = [None] * len(lines)
    for first in range(0, len(requests), _MAX_LANES):
        filled = fill_known_length(decoder, requests[first : first + _MAX_LANES], GREEDY, rules)
        for number, (generated,) in zip(written[first : first + _MAX_LANES], filled, strict=True):
            end = tokens_T[places[number].stop : lines[number].tokens.stop].tolist()
            stream = TextStream(tokenizer)
            for token in (*generated.tokens, *end):
                stream.add(token)
            stream.close()
            found[number] = replace(Completion.of(generated, stream), num_tokens=len(lines[number].tokens))
    return found
