"""permcode's model to a folder in Hugging Face's format."""

import shutil
from pathlib import Path
from typing import Any

from cluster.storage import read_json, sha256_file, write_json
from pretrain.hf.tokenizer_files import FOREIGN_FOLDER, is_ours, write_tokenizer
from pretrain.hf.weight_files import write_weights
from pretrain.hf.weight_names import to_xlnet
from pretrain.hf.whole_folder import whole_folder
from pretrain.hf.xlnet_config import xlnet_config_json
from pretrain.inference.folders import ModelFiles, OnDamaged, checked_model

_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


def export_to_hf(source: Path, out: Path, on_damaged: OnDamaged | None = None) -> ModelFiles:
    """Write config, weights (float32) and tokenizer so that `transformers` loads an equal XLNetLMHeadModel.

    `source` is a run's, a stage's, a checkpoint's or a model's folder; returns the model found there. A tokenizer
    that came with an import and is none of permcode's goes back as it came. Damaged checkpoints passed over are named
    to `on_damaged`. Raises UserError when there is no model or a damaged one, XLNet's code cannot express it, or `out`
    is not empty.
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
            config |= _foreign_token_ids(folder / "config.json")
        write_json(folder / "config.json", config)
    return files


def _foreign_token_ids(config: Path) -> dict[str, Any]:
    content = read_json(config, "restore it")
    return {key: content[key] for key in _TOKEN_IDS if key in content}
