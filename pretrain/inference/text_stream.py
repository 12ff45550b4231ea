"""Streaming of text from tokens."""

import codecs
from collections.abc import Callable, Sequence

from data_prep.tokenizer import CodeTokenizer


class TextStream:
    """Tokens in, text out: whole characters only, and nothing that may still become a stop string.

    `text` and `data` (its bytes) are the output before the first stop string. Bytes that are not UTF-8 are U+FFFD in
    `text`.
    """

    def __init__(
        self,
        tokenizer: CodeTokenizer,
        stop: Sequence[str | bytes] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._tokenizer, self._on_text = tokenizer, on_text
        self._stop = [one.encode() if isinstance(one, str) else one for one in stop if one]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._emitted_bytes = 0
        self.data = b""
        self.text = ""

    def add(self, token: int) -> bool:
        """Add a token; return True when a stop string is complete."""
        scanned = max(0, len(self.data) - max(map(len, self._stop), default=0))
        self.data += self._tokenizer.decode_bytes([token])
        places = [self.data.find(one, scanned) for one in self._stop]
        found = [place for place in places if place >= 0]
        if found:
            self.data = self.data[: min(found)]
        self._emit(len(self.data) if found else len(self.data) - self._held_back())
        return bool(found)

    @property
    def final_data(self) -> bytes:
        """The bytes so far that no later token can take back."""
        return self.data[: self._emitted_bytes]

    def close(self) -> None:
        """Emit the text that was held back, after the last token."""
        self._emit(len(self.data), final=True)

    def _held_back(self) -> int:
        """Return the number of bytes at the end that may be the beginning of a stop string."""
        longest = 0
        for one in self._stop:
            end = self.data[max(0, len(self.data) - len(one) + 1) :]
            place = end.find(one[:1])
            while 0 <= place < len(end) - longest:
                if one.startswith(end[place:]):
                    longest = len(end) - place
                    break
                place = end.find(one[:1], place + 1)
        return longest

    def _emit(self, end_bytes: int, final: bool = False) -> None:
        new = self._decoder.decode(self.data[self._emitted_bytes : end_bytes], final)
        self._emitted_bytes = max(self._emitted_bytes, end_bytes)
        self.text += new
        if new and self._on_text is not None:
            self._on_text(new)


class TextStart:
    """The beginning of a text, known ever further: `text` has its whole characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_bytes = 0
        self.text = ""

    def grown(self, data: bytes) -> str:
        """Return the characters that are new; `data` begins with what was given before, or is a beginning of it."""
        new = self._decoder.decode(data[self._num_bytes :])
        self._num_bytes = max(self._num_bytes, len(data))
        self.text += new
        return new
