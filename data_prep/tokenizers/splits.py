"""Pre-tokenization: the splits of encoding, and the finer ones of training."""

from tokenizers import Regex, pre_tokenizers

from data_prep.tokenizers.config import TokenizerConfig

_CJK = "\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff"
# The splits of encoding are exactly DeepSeek-V3's, because the fast encoder supports only a fixed set of patterns.
# They are applied one after the other: numbers in groups of at most three digits from the left; CJK; then a word with
# the one sign or space before it, punctuation with the space before it and the line breaks after it, blank lines,
# whitespace up to the space that belongs to the next word.
ENCODING_SPLITS = (
    r"\p{N}{1,3}",
    f"[{_CJK}]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
    "\r\n"
    r"""]*|\s*["""
    "\r\n"
    r"""]+|\s+(?!\S)|\s+""",
)
# ASCII's punctuation but the underscore.
_SIGN = r"!-/:-@\[-^`{-~"
_WORD = rf"[\p{{L}}\p{{M}}&&[^{_CJK}]]+"
_JOINED_WORDS = (rf"[{_SIGN}_][A-Za-z]+", rf"[^\r\n\p{{L}}\p{{P}}\p{{S}}]?{_WORD}")
# Splits what encoding keeps in one piece with the letters after it: a sign, then those letters; a control character.
_SEPARATE_WORDS = (
    r"_[A-Za-z]+",
    rf"[{_SIGN}](?=[A-Za-z])",
    rf"(?<=(?:\A|[^ \p{{P}}\p{{S}}])[{_SIGN}])[A-Za-z]+",
    rf"[^\s\p{{L}}\p{{M}}\p{{N}}\p{{P}}\p{{S}}](?={_WORD})",
    rf"[\p{{M}}[^\S\r\n]]?{_WORD}",
)


def training_split(config: TokenizerConfig) -> str:
    """Return the pattern of training, which splits as encoding does and by the config's rules.

    Encoding needs only `ENCODING_SPLITS`: a token across a split of these rules is never learned, so no merge joins
    what a rule separates. One pattern has the same result as several applied in turn and takes half the time;
    splitting is nearly all of training.
    """
    run = config.max_whitespace_run
    alternatives = (
        r"\p{N}" if config.digits == "single" else r"\p{N}{1,3}",
        f"[{_CJK}]+",
        # A run is split by its length only if more whitespace follows; the last part stays with its word.
        rf"\s{{{run}}}(?=\s*[\r\n])",
        rf"[^\S\r\n]{{{run}}}(?=\s)",
        *(_JOINED_WORDS if config.punctuation == "joined" else _SEPARATE_WORDS),
        r" ?[\p{P}\p{S}]+[\r\n]*",
        r"\s*[\r\n]+",
        # Numbers and CJK are pieces of their own, so no space is left for them.
        rf"\s+(?![^\s\p{{N}}{_CJK}])",
        r"\s+",
    )
    return "|".join(alternatives)


def pre_tokenizer(splits: tuple[str, ...]) -> pre_tokenizers.PreTokenizer:
    """Return a pre-tokenizer that splits by each of `splits` in turn, then maps every byte to one character."""
    cuts = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in splits]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
