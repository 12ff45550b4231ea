"""Settings of near-duplicate removal."""

from pydantic import Field

from cluster.config import Config


class NearDuplicatesConfig(Config):
    """The definition of near duplicates, and how they are found.

    Documents are compared as sets of word n-grams. The bands only propose pairs: every proposed pair is checked by its
    exact Jaccard similarity. With 36 bands of 7 rows a pair of similarity 0.8 is proposed with probability 0.9998, one
    of 0.7 with 0.955, one of 0.5 with 0.25.
    """

    enabled: bool = True
    threshold: float = Field(default=0.7, gt=0, le=1)
    """The lowest Jaccard similarity of near duplicates."""
    ngram_words: int = Field(default=5, ge=1, le=64)
    """Words per n-gram. A document with fewer words has no n-gram and no near duplicates."""
    num_bands: int = Field(default=36, ge=1, le=256)
    rows_per_band: int = Field(default=7, ge=1, le=32)
    """MinHash values per band, all of which must agree for two documents to share the band's key."""
