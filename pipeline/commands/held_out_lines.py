"""The held-out lines from which `permcode scan` takes its threshold: found for a run, scored once and then cached."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UserError
from cluster.storage import fingerprint, read_document, sha256_file, write_document
from pipeline.folder.prep_folder import find_prep_folder, prep_read_by
from pretrain.checkpoint.listing import COMMIT_NAME

if TYPE_CHECKING:
    from data_prep.finished.prepared import PreparedCorpus
    from pretrain.inference.false_alarms import HeldOutSurprises
    from pretrain.inference.folders import ModelFiles
    from pretrain.inference.language_model import PermutationLM

HELD_OUT_TOKENS = 32_768
_FORMAT = 1
_LEVELS = 6
"""A prep folder is looked for so many folders above the model: a finetuned one is in RUN/TASK/SYSTEM/seed-N/model."""


def surprises_of_held_out_lines(
    model: "PermutationLM", files: "ModelFiles", corpus: Path | None, *, fast: bool
) -> "HeldOutSurprises":
    """Return the surprises of lines of the validation split of `corpus`, or of the corpus beside the model.

    They are stored in the user's cache by model and corpus, if it can be written to. Raises UserError if there is no
    corpus.
    """
    from data_prep.finished.prepared import open_prepared
    from pretrain.inference.false_alarms import HeldOutSurprises, held_out_texts

    prepared = open_prepared(find_prep_folder(corpus).prep if corpus is not None else _corpus_of(files))
    cached = cache_folder() / f"{_key(files, prepared, fast)}.json"
    with suppress(UserError, OSError, KeyError, TypeError, ValueError):
        return HeldOutSurprises.of(read_document(cached)["surprises"])
    texts = held_out_texts(prepared, HELD_OUT_TOKENS)
    found = [line.surprise_bits for text in model.scan(texts, fast=fast) for line in text.lines]
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_document(cached, {"surprises": found})
    return HeldOutSurprises.of(found)


def corpus_beside(files: "ModelFiles") -> Path | None:
    """Return the prep folder that the model's pretraining read, else the newest one of its run, or None."""
    for folder in [files.folder.resolve(), *files.folder.resolve().parents][:_LEVELS]:
        if folder.name.startswith("pretrain-") and (read := prep_read_by(folder)) is not None:
            return read
        with suppress(UserError):
            return find_prep_folder(folder).prep
    return None


def _corpus_of(files: "ModelFiles") -> Path:
    if (found := corpus_beside(files)) is not None:
        return found
    raise UserError(
        f"there is no prepared corpus beside {files.folder}, from whose validation documents the threshold is taken: "
        "give --corpus FOLDER, or --top N for lines without a threshold"
    )


def _key(files: "ModelFiles", corpus: "PreparedCorpus", fast: bool) -> str:
    """Return the name of the cached surprises: a fingerprint of all they depend on."""
    from pretrain.inference.scanned_text import FAST_LINES_APART

    # Either file has the checksums of the model's other files.
    identity = files.folder / COMMIT_NAME if files.is_checkpoint else files.description
    apart = FAST_LINES_APART if fast else None
    return fingerprint([_FORMAT, sha256_file(identity), str(corpus.manifest_sha256), HELD_OUT_TOKENS, apart])


def cache_folder() -> Path:
    """Return the folder of all cached surprises, which may be removed at any time."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return home / "permcode" / "held-out-lines"
