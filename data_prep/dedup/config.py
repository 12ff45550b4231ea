"""Settings of near-duplicate removal."""

from pydantic import Field

from cluster.config import Config

NGRAM_WORDS = 5
"""Words per n-gram. A document with fewer words has no n-gram and no near duplicates."""
NUM_BANDS = 36
ROWS_PER_BAND = 7
"""MinHash values per band, all of which must agree for two documents to share the band's key."""


class NearDuplicatesConfig(Config):
    """The definition of near duplicates.

    Documents are compared as sets of word n-grams. The bands only propose pairs: every proposed pair is checked by its
    exact Jaccard similarity. With 36 bands of 7 rows a pair of similarity 0.8 is proposed with probability 0.9998, one
    of 0.7 with 0.955, one of 0.5 with 0.25.
    """

    enabled: bool = True
    threshold: float = Field(default=0.7, gt=0, le=1)
    """The lowest Jaccard similarity of near duplicates."""
