"""The model as its users hold it: text in, text out.

    model = PermutationLM.from_run(Path("runs/demo"))
    print(model.complete("def main(", max_new_tokens=64)[0].text)

A text is read as a document that begins behind an `<eod>`, as in training. What is written is appended to the
prompt's bytes exactly; where the prompt ends in the middle of what the tokenizer would make one token, the model
goes on from tokens it seldom saw, so a prompt is better cut after a whole word or line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.folders import find_model_folder
from pretrain.inference.left_to_right import check_prompts, complete_tokens
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.session import Decoder
from pretrain.inference.text_stream import TextStream
from pretrain.inference.vocabulary import TokenRules
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription, build_model, check_model_folder

OnText = Callable[[int, str], None]
"""Told (number of the completion, new text) as soon as text is certain."""


@dataclass(frozen=True)
class Completion:
    """What was written after a prompt. `finish` is "end" (of the text), "stop" (a stop string) or "length".

    `data` are the bytes of `text`; `log_likelihood` (nats) is of all tokens that were chosen, at temperature 1.
    """

    text: str
    data: bytes
    num_tokens: int
    log_likelihood: float
    finish: str


class PermutationLM:
    """A network and its tokenizer."""

    def __init__(
        self, network: TwoStreamTransformer, tokenizer: CodeTokenizer, segment_tokens: int | None = None
    ) -> None:
        if network.vocab_size != tokenizer.vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} tokens and the model {network.vocab_size}: "
                "use the tokenizer the model was trained with"
            )
        self.network, self.tokenizer = network.eval(), tokenizer
        self.segment_tokens = ModelDescription.of(network, segment_tokens).segment_tokens

    @classmethod
    def from_run(cls, folder: Path | str, device: str | None = None) -> "PermutationLM":
        """The model of a run's, a stage's, a checkpoint's or a model's folder, on the GPU if there is one.

        Raises UserError when there is none or a file is damaged or belongs to another model.
        """
        files = find_model_folder(Path(folder))
        if files.is_checkpoint:
            from pretrain.checkpoint import problem_of

            problem = problem_of(files.folder)
            if problem is not None:
                raise UserError(f"checkpoint {files.folder}: {problem}; use another checkpoint")
            description = ModelDescription.read(files.description)
        else:
            description = check_model_folder(files.folder)
        tokenizer = CodeTokenizer.load(files.tokenizer)
        network = build_model(description, files.weights)
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return cls(network, tokenizer, description.segment_tokens)

    @cached_property
    def decoder(self) -> Decoder:
        """The network made ready for decoding; do not train it afterwards."""
        return Decoder(self.network, self.segment_tokens)

    def complete(
        self,
        prompts: str | bytes | Sequence[str | bytes],
        *,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
        num_samples: int = 1,
        stop: Sequence[str] = (),
        on_text: OnText | None = None,
        max_lanes: int = 16,
    ) -> list[Completion]:
        """Go on from every prompt, left to right, up to the end of the text, a stop string or `max_new_tokens`.

        `num_samples` completions per prompt, those of a prompt in a row; `max_lanes` are decoded side by side.
        A stop string is not part of the text. Raises UserError for an empty prompt, and for one that is too long
        for absolute positions.
        """
        texts = [prompts] if isinstance(prompts, str | bytes) else list(prompts)
        if not texts or not all(texts):
            raise UserError("the prompt is empty: give at least one character to go on from")
        rows = [self._document(text) for text in texts]
        check_prompts(rows, max_new_tokens)
        rules = TokenRules(self._never(but="<eod>"), self.tokenizer.eod_id)
        completions: list[Completion] = []
        per_batch = max(1, max_lanes // num_samples)
        for first in range(0, len(rows), per_batch):
            batch = rows[first : first + per_batch]
            streams = [
                TextStream(self.tokenizer, stop, _numbered(on_text, len(completions) + lane))
                for lane in range(len(batch) * num_samples)
            ]
            generated = complete_tokens(
                self.decoder,
                batch,
                max_new_tokens,
                sampling,
                rules,
                num_samples=num_samples,
                watch=lambda lane, token, streams=streams: streams[lane].add(token),  # type: ignore[misc]
            )
            for one, stream in zip(generated, streams, strict=True):
                stream.close()
                finish = "end" if one.ended else "stop" if one.stopped else "length"
                completions.append(
                    Completion(stream.text, stream.data, len(one.tokens), one.log_likelihood, finish)
                )
        return completions

    def _document(self, text: str | bytes) -> NDArray[np.int64]:
        data = text.encode() if isinstance(text, str) else text
        return np.concatenate([[self.tokenizer.eod_id], self.tokenizer.encode_bytes(data)]).astype(np.int64)

    def _never(self, but: str) -> tuple[int, ...]:
        return tuple(number for number, token in enumerate(SPECIAL_TOKENS) if token != but)


def _numbered(on_text: OnText | None, number: int) -> Callable[[str], None]:
    return lambda text: on_text(number, text) if on_text else None
