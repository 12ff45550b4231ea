"""BLEU from its definition, in plain loops over lists: nothing of ours is used.

The evaluators it follows: microsoft/CodeXGLUE (commit ac74a62), Code-Code/code-to-code-trans/evaluator/bleu.py and
Code-Text/code-to-text/evaluator/evaluator.py.
"""

import math


def matching_ngrams(references: list[list[str]], written: list[str], order: int) -> tuple[int, int]:
    """Clipped matches: each n-gram of a reference can be matched as often as the reference holds it."""
    grams = [tuple(written[start : start + order]) for start in range(len(written) - order + 1)]
    matches = 0
    for gram in dict.fromkeys(grams):
        most = max(
            sum(
                tuple(reference[start : start + order]) == gram for start in range(len(reference) - order + 1)
            )
            for reference in references
        )
        matches += min(grams.count(gram), most)
    return matches, len(grams)


def slow_codexglue_bleu(references: list[list[str]], written: list[str]) -> float:
    """Corpus BLEU, one added to every order, shortest reference."""
    wanted_tokens = sum(min(len(text.split()) for text in texts) for texts in references)
    written_tokens = sum(len(text.split()) for text in written)
    if written_tokens == 0:
        return 0.0
    product = 1.0
    for order in (1, 2, 3, 4):
        counts = [
            matching_ngrams([text.split() for text in texts], one.split(), order)
            for texts, one in zip(references, written, strict=True)
        ]
        product *= (sum(hit for hit, _ in counts) + 1) / (sum(total for _, total in counts) + 1)
    penalty = 1.0 if written_tokens > wanted_tokens else math.exp(1 - wanted_tokens / written_tokens)
    return 100 * product**0.25 * penalty


def slow_sentence_bleu(references: list[list[str]], written: list[str]) -> float:
    """Sentence BLEU, one added to the orders above the first."""
    product = 1.0
    for order in (1, 2, 3, 4):
        hits, total = matching_ngrams(references, written, order)
        added = 0 if order == 1 else 1
        if total + added > 0:
            product *= (hits + added) / (total + added)
    shortest = min(len(reference) for reference in references)
    return 100 * product**0.25 * math.exp(min(0, 1 - (shortest + 1) / (len(written) + 1)))
