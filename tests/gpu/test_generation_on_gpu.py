"""Generation by CUDA graphs and kernels for few rows is generation by plain passes, and a repeated pass never waits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from pretrain.inference import completion, layer, session
from pretrain.inference.completion import complete_by_beam, complete_tokens
from pretrain.inference.context import Context
from pretrain.inference.decoder import Decoder
from pretrain.inference.gpu import static_passes
from pretrain.inference.gpu.self_check import deviation
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.session import DecodingSession
from pretrain.inference.token_rules import TokenRules
from tests.unit.pretrain.inference.gpu.decoders import (
    POSITIONS,
    SEGMENT,
    VOCABULARY,
    called_again,
    draw_prompts,
    make_decoder,
)

TOLERANCE = 1e-4
"""Of the largest logit; float32, sums in another order."""
CONTEXT_TOKENS = 6

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


@contextmanager
def ways(device: torch.device, graphs: bool, kernels: bool) -> Iterator[list[int]]:
    """Choose how passes are made within the block; yields a list with an entry for each pass that is recorded.

    Where there is no GPU the body of a recorded pass is called again.
    """
    recorded: list[int] = []
    real_record = static_passes.record

    def record(body: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(1)
        return real_record(body) if device.type == "cuda" else called_again(body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "can_record", lambda _device: graphs)
        patch.setattr(static_passes, "record", record)
        patch.setattr(static_passes, "_COLUMNS", 16)
        patch.setattr(layer, "runs_few_rows_kernels", lambda _rows: kernels)
        if device.type == "cpu":
            # It asks psutil for the machine's free memory, which a machine that has torch alone lacks.
            patch.setattr(completion, "check_room", lambda *_: None)
        yield recorded


@pytest.mark.parametrize("kernels", [False, True], ids=["graphs", "graphs and kernels"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_completions_are_those_of_plain_passes(positions: str, kernels: bool, device: torch.device) -> None:
    """Over several segments where the positions allow it; lanes that end are taken out."""
    decoder = make_decoder(positions, device=device)
    num_new = 9 if positions.startswith("absolute") else 30
    prompts, rules, sampling = draw_prompts([5, 9, 12]), TokenRules(end=3), Sampling(temperature=1.0)
    with ways(device, graphs=False, kernels=False):
        expected = complete_tokens(decoder, prompts, num_new, sampling, rules, num_samples=2)
    with ways(device, graphs=True, kernels=kernels) as recorded:
        found = complete_tokens(decoder, prompts, num_new, sampling, rules, num_samples=2)
    assert recorded
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-3)


def test_beams_are_those_of_plain_passes(device: torch.device) -> None:
    decoder, prompts = make_decoder("transformer_xl", device=device), draw_prompts([7, 7])
    with ways(device, graphs=False, kernels=False):
        expected = complete_by_beam(decoder, prompts, 8, 3, TokenRules())
    with ways(device, graphs=True, kernels=True) as recorded:
        found = complete_by_beam(decoder, prompts, 8, 3, TokenRules())
    assert recorded
    assert [[one.tokens for one in beam] for beam in found] == [
        [one.tokens for one in beam] for beam in expected
    ]


def logits_of_steps(decoder: Decoder, lanes: int, device: torch.device) -> list[Tensor]:
    """The logits of passes of some shapes in random columns, each shape four times."""
    draw = torch.Generator().manual_seed(0)
    columns = torch.stack([torch.randperm(SEGMENT * 2, generator=draw) for _ in range(lanes)]).to(device)
    context = Context(
        torch.randint(VOCABULARY, (lanes, CONTEXT_TOKENS), generator=draw).to(device),
        (torch.rand(lanes, CONTEXT_TOKENS, generator=draw) < 0.8).to(device),
        (torch.arange(CONTEXT_TOKENS) < 2).expand(lanes, -1).to(device),
    )
    one = DecodingSession(decoder, lanes, SEGMENT * 2 + CONTEXT_TOKENS)
    one.encode(context)
    one.num_columns = SEGMENT * 2
    found, written = [], 0
    for num_content, num_predicted in [(0, 2), (2, 1), (3, 3)]:
        for _ in range(4):
            ranks = torch.randint(3, (lanes, num_content + num_predicted), generator=draw).to(device)
            tokens = torch.randint(VOCABULARY, (lanes, num_content), generator=draw).to(device)
            end = written + num_content
            found.append(
                one.step(
                    tokens,
                    columns[:, written:end],
                    ranks[:, :num_content],
                    columns[:, end : end + num_predicted],
                    ranks[:, num_content:],
                )
            )
            written = end
    return found


@pytest.mark.parametrize("documents", [False, True], ids=["", "documents"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kernels", [False, True], ids=["graphs", "graphs and kernels"])
def test_passes_in_any_columns_are_the_plain_ones(
    positions: str, documents: bool, kernels: bool, device: torch.device
) -> None:
    """Each shape of pass comes four times: twice before it is recorded, twice recorded."""
    decoder = make_decoder(positions, documents, device=device)
    with ways(device, graphs=False, kernels=False):
        expected = logits_of_steps(decoder, 3, device)
    with ways(device, graphs=True, kernels=kernels) as recorded:
        found = logits_of_steps(decoder, 3, device)
    assert len(recorded) == 3
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < TOLERANCE * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("kernels", [False, True], ids=["graphs", "graphs and kernels"])
def test_a_repeated_pass_never_waits_for_the_gpu(kernels: bool, device: torch.device) -> None:
    """On a GPU; where a recorded body is called again, its operations are looked at by `called_again`."""
    decoder = make_decoder("transformer_xl", device=device)
    with ways(device, graphs=True, kernels=kernels) as recorded:
        one = DecodingSession(decoder, 2, SEGMENT * 2)
        one.encode(Context.of_text(torch.zeros(2, CONTEXT_TOKENS, dtype=torch.int64, device=device)))
        token_B = torch.ones(2, dtype=torch.int64, device=device)
        for column in range(CONTEXT_TOKENS, CONTEXT_TOKENS + 4):
            one.write_and_predict(token_B, column)
        assert recorded
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            logits_BV = one.write_and_predict(token_B, CONTEXT_TOKENS + 4)
        finally:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(logits_BV).all()


def test_greedy_tokens_of_many_lanes_and_columns_are_those_of_plain_passes(device: torch.device) -> None:
    """So many columns that the kernels divide them into splits, which they merge."""
    decoder = make_decoder("transformer_xl", memory_tokens=64, device=device)
    decoder.segment_tokens = 700 if device.type == "cuda" else 160
    prompts = draw_prompts([decoder.segment_tokens // 2] * 2)
    num_new = 24 if device.type == "cuda" else 3
    with ways(device, graphs=False, kernels=False):
        expected = complete_tokens(decoder, prompts, num_new, GREEDY, TokenRules())
    with ways(device, graphs=True, kernels=True):
        found = complete_tokens(decoder, prompts, num_new, GREEDY, TokenRules())
    assert [one.tokens for one in found] == [one.tokens for one in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("head_dim", [16, 32, 48, 64, 80, 128])
def test_attention_of_few_rows_is_the_plain_one(
    head_dim: int, dtype: torch.dtype, device: torch.device
) -> None:
    assert deviation(device, dtype, head_dim) == ""
