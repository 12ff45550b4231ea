"""An encoder that uses a fast one as long as it agrees with the plain one, and the comparison that decides it."""

import random
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cluster.errors import first_line
from data_prep.documents import SPECIAL_TOKENS
from data_prep.tokenizers.encoding import EncodedBatch, Encoder, Ids

_SEED = 20_260_101
_WHITESPACE = (" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x85", "\xa0", "\u2028", "\u3000", "\u200b")
_SIGNS = tuple("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\0\x01\x1b\x7f§€«»→≠")
_WORDS = ("def", "return", "self", "x", "HTTPServer", "camelCase", "snake_case", "__init__", "don't", "naïve")
_FOREIGN_WORDS = (
    "'s",
    "'LL",
    "e\u0301",
    "Größe",
    "данные",
    "변수",
    "变量",
    "ひらがな",
    "カタカナ",
    "नमस्ते",
    "ไทย",
    "שָׁלוֹם",
)
_NUMBERS = ("0", "42", "1234567", "3.14e-10", "0xFFee", "1_000", "٣٤", "½", "Ⅷ", "²", "१२३")
_OTHERS = (
    "👩‍👩‍👧",
    "🇪🇺",
    "\ufeff",
    "\ufffd",
    "\ue000",
    "\U000e0041",
    "\u0378",
    "\u2581",
    "𝔘𝔫",
    "ﬁ",
    "İ",
    "ǅ",
    "ª",
    "ʰ",
)
_LINES = (
    "def {a}({b}, *, {c}: int = {n}) -> None:\n",
    "    if self.{a}[{n}] == '{b}' and not {c}:\n",
    '        raise ValueError(f"{a}: {{{b}!r}} is not a {c}")\n\n\n',
    "\tfor (int {a} = 0; {a} < {n}; ++{a}) {{ {b}[{a}] += {c}->next; }}\r\n",
    '  "{a}": {{"{b}": [{n}, -{n}.5e{n}, null], "{c}": "\\u00e9\\n"}},\n',
    "# {a} {b}'s {c}, http://{a}.{b}/{c}?q={n}#{a}\n",
    "<div class=\"{a}-{b}\" id='{c}'>&nbsp;{a}</div>\n",
    "const {a} = async ({b}) => {{ await {c}(`${{{b}}}`) }};\n",
)


@cache
def battery() -> tuple[bytes, ...]:
    """Return some 250 KB of difficult strings and of generated code in several languages; the same everywhere."""
    rng = random.Random(_SEED)
    atoms = (*_WHITESPACE, *_SIGNS, *_WORDS, *_FOREIGN_WORDS, *_NUMBERS, *_OTHERS, *SPECIAL_TOKENS[:12])
    texts = ["", *atoms, *SPECIAL_TOKENS]
    texts += [f"{a}{b}" for a in _WHITESPACE for b in atoms[::3]]
    texts += ["".join(rng.choices(atoms, k=rng.randint(2, 40))) for _ in range(600)]
    texts += [
        one * rng.choice((3, 63, 64, 65, 400)) for one in (*_WHITESPACE, *_SIGNS, *_NUMBERS, "a", "é", "漢")
    ]
    # Every kind of character: one in a hundred, without surrogates, each next to others of its range.
    points = [*range(0x80, 0xD7F0, 37), *range(0xE000, 0x20000, 61)]
    texts.append("".join(f"a{chr(p)}b {chr(p)}{chr(p + rng.randint(0, 3))}1" for p in points))
    texts += [_code(rng) for _ in range(8)]
    return tuple(text.encode() for text in texts)


def _code(rng: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    names = [
        *_WORDS,
        *_FOREIGN_WORDS,
        *("".join(rng.choices(letters, k=rng.randint(1, 14))) for _ in range(60)),
    ]
    lines = []
    for _ in range(120):
        a, b, c = rng.choices(names, k=3)
        line = rng.choice(_LINES).format(a=a, b=b, c=c, n=rng.randrange(10 ** rng.randint(1, 8)))
        lines.append(rng.choice(("", "", "    ", "        ", "\t\t")) + line)
    return "".join(lines)


def first_difference(one: Encoder, other: Encoder, texts: Sequence[bytes]) -> bytes | None:
    """Return the first of `texts` that the two encode differently, None if they agree on all."""
    a, b = one.encode(texts), other.encode(texts)
    for number, text in enumerate(texts):
        if not np.array_equal(_ids(a, number), _ids(b, number)):
            return text
    return None


def _ids(batch: EncodedBatch, number: int) -> Ids:
    return batch.ids[batch.ends[number] : batch.ends[number + 1]]


class VerifiedEncoder:
    """Encodes exactly as `plain` does, with the fast encoder if it agrees on all texts of the battery.

    Every batch is checked again: its tokens must have as many bytes as the texts. When the fast encoder is abandoned,
    `fallback_reason` says why, in one line.
    """

    def __init__(
        self, plain: Encoder, make_fast: Callable[[], Encoder], token_bytes_V: NDArray[np.int64]
    ) -> None:
        self.fallback_reason: str | None = None
        self._plain = plain
        # uint16, because the lengths of a complete batch are looked up at once.
        self._token_bytes_V = token_bytes_V.astype(np.uint16)
        self._chosen = plain
        try:
            fast = make_fast()
            difference = first_difference(fast, plain, battery())
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        # A panic in compiled code raises a BaseException.
        except BaseException as error:
            self.fallback_reason = f"the fast encoder failed: {first_line(error)}"
            return
        if difference is not None:
            self.fallback_reason = f"the fast encoder differs on {difference[:40]!r}"
            return
        self._chosen = fast

    @property
    def name(self) -> str:
        """The name of the encoder in use."""
        return self._chosen.name

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Return the ids of each text, which must be valid UTF-8."""
        batch = self._chosen.encode(texts)
        if self._chosen is not self._plain and not self._covers(batch, texts):
            self.fallback_reason = "the fast encoder lost bytes of a text"
            self._chosen = self._plain
            batch = self._chosen.encode(texts)
        return batch

    def _covers(self, batch: EncodedBatch, texts: Sequence[bytes]) -> bool:
        return int(self._token_bytes_V[batch.ids].sum(dtype=np.int64)) == sum(map(len, texts))
