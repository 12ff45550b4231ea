"""Where text is cut before merges: the cuts of encoding, and the finer ones of training."""

from tokenizers import Regex, pre_tokenizers

from data_prep.tokenizers.config import TokenizerConfig

# The cuts of encoding are DeepSeek-V3's, letter by letter, for the fast encoder knows a fixed set of them only.
# Applied one after the other: numbers by at most three digits from the left; CJK; then a word with the one sign
# or space before it, punctuation with the space before it and the line breaks after it, blank lines, whitespace
# up to the space that goes with the next word.
ENCODING_SPLITS = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
    "\r\n"
    r"""]*|\s*["""
    "\r\n"
    r"""]+|\s+(?!\S)|\s+""",
)


def training_splits(config: TokenizerConfig) -> tuple[str, ...]:
    """The cuts of training: those of encoding and one for each rule.

    Encoding needs no more than `ENCODING_SPLITS`: a token that crosses a cut of these rules is never learned,
    so no merge joins what the rule keeps apart.
    """
    rules = []
    if config.digits == "single":
        rules.append(r"\p{N}")
    if config.punctuation == "separate":
        rules.append(r"[^\s\p{L}\p{M}\p{N}_](?=[\p{L}\p{M}])")
    # A run is cut by this length only where more whitespace follows; the last part keeps its word.
    rules.append(rf"\s{{{config.max_whitespace_run}}}(?=\s)")
    return (*ENCODING_SPLITS, *rules)


def pre_tokenizer(splits: tuple[str, ...]) -> pre_tokenizers.PreTokenizer:
    """Cut by each of `splits` in turn, then spell every byte as one character."""
    cuts = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in splits]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
