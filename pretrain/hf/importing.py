"""A folder in Hugging Face's format to permcode's model folder."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cluster.errors import UserError
from pretrain.hf.tokenizer_files import take_tokenizer
from pretrain.hf.weight_files import read_weights
from pretrain.hf.weight_names import from_xlnet, tells_documents_apart
from pretrain.hf.whole_folder import whole_folder
from pretrain.hf.xlnet_config import first_problem, read_xlnet_config
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import save_model


@dataclass(frozen=True)
class Imported:
    """What became of a folder."""

    config: ModelConfig
    num_parameters: int
    reads_text: bool
    """Whether the tokenizer is one that permcode uses; without it only commands that need no text work."""


def import_from_hf(source: Path, out: Path, memory_tokens: int | None = None) -> Imported:
    """Write the model folder `out` with the weights of an XLNetLMHeadModel, which is not loaded with its library.

    `memory_tokens` replaces the checkpoint's `mem_len`. Raises UserError when the source cannot be read completely
    or asks for what permcode's model does not compute, and when `out` is not empty.
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
