"""Clusters of near duplicates over all documents."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.dedup import pairs
from data_prep.dedup.candidates import find_candidates
from data_prep.dedup.catalogue import DedupPart, build_catalogue
from data_prep.dedup.components import component_labels
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.verification import verify_candidates
from data_prep.work import Work


def near_duplicate_clusters(
    parts: Sequence[DedupPart], config: NearDuplicatesConfig, work: Work
) -> NDArray[np.int64]:
    """Return the label of each document, in the order of the parts' rows: the smallest document of its cluster.

    Documents are in one cluster if near duplicates connect them: pairs that share a band key and have a Jaccard
    similarity of at least `threshold`. Needs an open Ray session; files that a killed run left in the work folder are
    reused. The result depends on the parts, the rows and the config only. UserError beyond 2^32 documents.
    """
    documents = build_catalogue(parts, work)
    if documents.num_documents > pairs.MAX_DOCUMENTS:
        raise UserError(
            f"near duplicates: {documents.num_documents} documents are more than {pairs.MAX_DOCUMENTS}: "
            "prepare the corpus in several parts"
        )
    if documents.num_documents == 0:
        return np.empty(0, np.int64)
    candidates = find_candidates(documents, config, work)
    verified = verify_candidates(candidates, documents, config, work)
    key = fingerprint([documents.key, config.model_dump()])
    return component_labels(verified, documents.num_documents, key, work)
