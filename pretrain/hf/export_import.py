"""Export of a model to a folder in Hugging Face's format, and import of such a folder."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import fsync_folder, read_json, sha256_file, write_json
from pretrain.hf.tokenizer_files import FOREIGN_FOLDER, is_ours, take_tokenizer, write_tokenizer
from pretrain.hf.weights import from_xlnet, read_weights, tells_documents_apart, to_xlnet, write_weights
from pretrain.hf.xlnet_config import first_problem, read_xlnet_config, xlnet_config_json
from pretrain.inference.folders import ModelFiles, OnDamaged, checked_model
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an error; else nothing is left.

    Raises UserError when `path` is there already and is not an empty folder, or cannot be made.
    """
    path = path.resolve()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"{path} is there already and not an empty folder: choose another name or remove it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise UserError(f"{path} cannot be made ({error.strerror}): choose another place") from None
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


def export_to_hf(source: Path, out: Path, on_damaged: OnDamaged | None = None) -> ModelFiles:
    """Write config, weights (float32) and tokenizer so that `transformers` loads an equal XLNetLMHeadModel.

    `source` is the folder of a run, a stage, a checkpoint or a model; returns the model found there. A foreign
    tokenizer from an import is exported unchanged. `on_damaged` is called for damaged checkpoints that are skipped.
    Raises UserError when there is no model or a damaged one, XLNet's code cannot express it, or `out` is not empty.
    """
    files, description = checked_model(source, on_damaged)
    has_ours = is_ours(files.tokenizer)
    config = xlnet_config_json(
        description.config,
        description.vocab_size,
        sha256_file(files.tokenizer) if has_ours else None,
        description.segment_tokens,
    )
    model = files.build(description)
    with whole_folder(out) as folder:
        write_weights(to_xlnet(dict(model.named_parameters()), model.config, model.vocab_size), folder)
        if has_ours:
            write_tokenizer(files.tokenizer, folder)
        elif (files.folder / FOREIGN_FOLDER).is_dir():
            shutil.copytree(files.folder / FOREIGN_FOLDER, folder, dirs_exist_ok=True)
            foreign = read_json(folder / "config.json", "restore it")
            config |= {key: foreign[key] for key in _TOKEN_IDS if key in foreign}
        write_json(folder / "config.json", config)
    return files


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    config: ModelConfig
    num_parameters: int
    reads_text: bool
    """Whether permcode can use the tokenizer; otherwise only commands without text work."""


def import_from_hf(source: Path, out: Path, memory_tokens: int | None = None) -> Imported:
    """Write the model folder `out` with the weights of an XLNetLMHeadModel, which is not loaded with its library.

    `memory_tokens` replaces the checkpoint's `mem_len`. Raises UserError when the source cannot be read completely
    or has settings that permcode's model does not support, and when `out` is not empty.
    """
    xlnet = read_xlnet_config(source)
    theirs, found_in = read_weights(source)
    try:
        config = ModelConfig(**xlnet.model(memory_tokens), segment_encodings=tells_documents_apart(theirs))
    except ValidationError as error:
        raise UserError(f"{source}: {first_problem(error)}") from None
    weights = from_xlnet(theirs, config, xlnet.vocab_size, found_in)
    model = TwoStreamTransformer(config, xlnet.vocab_size)
    model.load_state_dict(weights)
    notes = xlnet.permcode
    with whole_folder(out) as folder:
        reads_text = take_tokenizer(source, xlnet.vocab_size, notes.tokenizer_sha256, folder)
        save_model(model, folder, folder / "tokenizer.json", segment_tokens=notes.segment_tokens)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Imported(config, num_parameters, reads_text)
