import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from data_prep.tokenizers.config import TokenizerConfig
from data_prep.tokenizers.splits import ENCODING_SPLITS, training_split

# Short runs, so that random texts have longer ones; and characters of each class in the patterns.
_RUN = 4
_TEXTS = st.text(
    alphabet='ab Z_.(="  \n\n\r\t\f12漢字ひカー٣½é́€\u3000\u00a0\u2028👍\u0301\u200b', max_size=24
)
_CONFIGS = st.builds(
    TokenizerConfig,
    digits=st.sampled_from(["single", "up_to_three"]),
    punctuation=st.sampled_from(["joined", "separate"]),
    max_whitespace_run=st.just(_RUN),
)


def _one_after_the_other(config: TokenizerConfig) -> pre_tokenizers.PreTokenizer:
    """Apply the rules one after the other: each splits the pieces of the previous one."""
    rules = [r"\p{N}"] if config.digits == "single" else []
    if config.punctuation == "separate":
        rules.append(r"[^\s\p{L}\p{M}\p{N}_](?=[\p{L}\p{M}])")
    rules.append(rf"\s{{{config.max_whitespace_run}}}(?=\s)")
    splits = (*ENCODING_SPLITS, *rules)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated") for split in splits])


def _pieces(cuts: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    return [piece for piece, _ in cuts.pre_tokenize_str(text)]


@settings(max_examples=100)
@given(_CONFIGS, _TEXTS)
@example(TokenizerConfig(max_whitespace_run=_RUN), "x((naïve)\n     y = [漢字1 2]\n\n\n\n\n\t\t\t\t\t\tz")
def test_one_pattern_splits_as_the_rules_one_after_the_other(config: TokenizerConfig, text: str) -> None:
    # Line breaks in greater number than a run may have go with the punctuation before them.
    text = re.sub(rf"[\r\n]{{{_RUN},}}", "\n", text)
    one = pre_tokenizers.Split(Regex(training_split(config)), "isolated")
    assert _pieces(one, text) == _pieces(_one_after_the_other(config), text)
