"""Made-up pairs, a small base model, and a plain training loop."""

import time
from collections.abc import Callable, Sequence

import torch

from data_prep.tokenizer import CodeTokenizer
from finetune.modalities.base import Learner, TaskData
from finetune.modalities.writing import Pair, Writer, WritingData
from finetune.systems.base import Base
from pretrain.model.config import ModelConfig, PositionsConfig, TransformerXLPositions
from pretrain.weights import ModelDescription

_NAMES = ("alpha", "beta", "gamma", "delta", "size", "index")


def toy_pairs(num_pairs: int = 30) -> list[Pair]:
    """`int name(x) { return n ; }` becomes a Python function with the words in another order."""
    pairs = []
    for number in range(num_pairs):
        name, other = _NAMES[number % 6], _NAMES[(number // 6) % 6]
        source = f"int {name} ( {other} ) {{ return {other} + {number} ; }}"
        target = f"def {name}({other}):\n    return {number} + {other}"
        pairs.append(Pair(str(number), source, (target,)))
    return pairs


def hole_pairs(num_pairs: int = 30) -> list[Pair]:
    """The middle is made of what stands on both sides."""
    return [
        Pair(str(number), f"{_NAMES[number % 6]} = ", (f"{_NAMES[number % 6]} + {number}",), f" # {number}\n")
        for number in range(num_pairs)
    ]


def as_data(pairs: Sequence[Pair]) -> WritingData:
    return TaskData(pairs, pairs, pairs)


def toy_base(
    tokenizer: CodeTokenizer,
    positions: PositionsConfig | None = None,
    *,
    segment_encodings: bool = False,
    segment_tokens: int = 64,
    model_dim: int = 64,
) -> Base:
    """Without weights: every start is from random ones."""
    positions = positions or TransformerXLPositions()
    config = ModelConfig(
        num_layers=2,
        model_dim=model_dim,
        num_heads=4,
        head_dim=model_dim // 4,
        ffn_dim=2 * model_dim,
        memory_tokens=0 if positions.kind.startswith("absolute") else 16,
        dropout=0.0,
        positions=positions,
        segment_encodings=segment_encodings,
    )
    description = ModelDescription(config, tokenizer.vocab_size, segment_tokens)
    return Base(description, tokenizer, None, torch.device("cpu"))


def train(
    learner: Learner, steps: int, rate: float = 3e-3, batch: int = 15, dtype: torch.dtype = torch.float32
) -> float:
    """A plain AdamW loop; the last loss."""
    learner.module.to(dtype).train()
    wanted = [parameter for parameter in learner.module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(wanted, lr=rate, weight_decay=0.0)
    loss = torch.tensor(0.0)
    torch.manual_seed(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20, 2.0 * (steps - step) / steps)
        chosen = torch.randperm(len(learner.lengths_tokens))[:batch].tolist()
        loss = learner.module(learner.batch(chosen, step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(wanted, 1.0)
        optimizer.step()
    learner.module.eval()
    return float(loss.detach())


def written(writer: Writer, pairs: Sequence[Pair]) -> list[str]:
    reported: list[int] = []
    found = writer.write([(pair.source, pair.suffix) for pair in pairs], reported.append)
    assert reported == sorted(reported)
    assert not pairs or reported[-1] == len(pairs)
    return found


def num_exact(writer: Writer, pairs: Sequence[Pair]) -> int:
    return sum(one == pair.references[0] for one, pair in zip(written(writer, pairs), pairs, strict=True))


def timed(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
