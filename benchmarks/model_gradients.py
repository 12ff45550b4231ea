"""Measure the error of a step's gradients in lower precision against float64, for ours and Hugging Face's XLNet.

    python -m benchmarks.model_gradients

All compute the same step from the same weights, the same tokens and order, and the float64 model's memory of the
previous segment. The error is the L2 norm of the difference of all gradients over the norm of float64's. Weights are
initialized once as XLNet's (0.02 everywhere) and once as ours (`pretrain/model/init.py`). The program first checks that
the float64 gradients of the two models agree, and ends if they do not.
"""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.model_contenders import Contender, HFXLNet, Ours, our_model
from benchmarks.model_machine import STEADY_HEAP, describe_machine, keep, print_table, use_environment
from benchmarks.model_sizes import SIZES, Batch, Size
from pretrain.hf.weights import from_xlnet, to_xlnet
from pretrain.model.segment_memory import SegmentMemory

AGREEMENT = 1e-9


@dataclass(frozen=True)
class Case:
    """A step whose gradients are compared."""

    size: Size
    num_targets: int
    seed: int
    drawn_as: str

    def batch(self, number: int) -> Batch:
        """Return the batch of the previous segment (0) or of the step itself (1)."""
        return Batch.random(self.size, self.num_targets, seed=2 * self.seed + number)


def double_positions(xlnet: Contender) -> None:
    """Make XLNet compute its position table in float64 instead of float32."""
    network = xlnet.model.transformer

    def table(qlen: int, klen: int, bsz: int | None = None, device: torch.device | None = None) -> Tensor:
        frequency = 10_000.0 ** (-torch.arange(0, network.d_model, 2, dtype=torch.float64) / network.d_model)
        distance_R = torch.arange(klen, -qlen, -1, dtype=torch.float64)
        found: Tensor = network.positional_embedding(distance_R, frequency, bsz)
        return found

    network.relative_positional_encoding = table


def drawn_weights(case: Case) -> Mapping[str, Tensor]:
    """Return random weights by XLNet's names, float64."""
    torch.manual_seed(case.seed)
    xlnet = HFXLNet(case.size, "float64", case.batch(0)).model
    weights: dict[str, Tensor] = {name: value.detach() for name, value in xlnet.named_parameters()}
    if case.drawn_as == "ours":
        ours = our_model(case.size).double()
        weights = to_xlnet(ours.state_dict(), ours.config, case.size.vocab_size)
    return weights


def reference(case: Case, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return XLNet's float64 gradients of the step, and the memory [M, B, D] per layer that it starts from."""
    xlnet = HFXLNet(case.size, "float64", case.batch(0))
    load_xlnet(xlnet.model, weights)
    double_positions(xlnet)
    with torch.no_grad():
        xlnet.loss()
    assert xlnet.memory is not None
    remembered = list(xlnet.memory)
    second = HFXLNet(case.size, "float64", case.batch(1))
    second.model, second.memory = xlnet.model, remembered
    second.gradients()
    found = second.model.named_parameters()
    return {name: value.grad for name, value in found if value.grad is not None}, remembered


def load_xlnet(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy the weights to all parameters; the output layer shares the embedding's."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(weights[name])


def gradients_of(
    contender: Contender, weights: Mapping[str, Tensor], remembered: list[Tensor]
) -> dict[str, Tensor]:
    """Return a contender's gradients of the same step by XLNet's names, float64."""
    model = contender.model
    if isinstance(contender, Ours):
        model.load_state_dict(from_xlnet(weights, model.config, model.vocab_size, "the reference"))
        layers = tuple(layer.transpose(0, 1).to(contender.dtype) for layer in remembered)
        group_BM = torch.zeros_like(contender.memory.group_BM)
        contender.memory = SegmentMemory(layers, group_BM, group_BM)
    elif isinstance(contender, HFXLNet):
        load_xlnet(model, weights)
        contender.memory = [layer.to(contender.dtype) for layer in remembered]
    contender.gradients()
    found = {name: value.grad.double() for name, value in model.named_parameters() if value.grad is not None}
    return to_xlnet(found, model.config, model.vocab_size) if isinstance(contender, Ours) else found


def relative_error(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Return the relative L2 norm of the difference over all parameters in `wanted`."""
    assert found.keys() >= wanted.keys()
    difference = sum(float((found[name] - wanted[name]).square().sum()) for name in wanted)
    return math.sqrt(difference / sum(float(value.square().sum()) for value in wanted.values()))


def measure(case: Case) -> dict[str, float]:
    """Return the error of every contender by name."""
    weights = drawn_weights(case)
    wanted, remembered = reference(case, weights)
    batch, errors = case.batch(1), {}
    exact = gradients_of(Ours(case.size, "float64", batch), weights, remembered)
    errors["ours float64"] = relative_error(exact, wanted)
    if errors["ours float64"] > AGREEMENT:
        raise SystemExit(f"the models do not agree in float64: relative error {errors['ours float64']:.1e}")
    contenders: list[tuple[str, type[Ours] | type[HFXLNet], str]] = [
        ("XLNet autocast", HFXLNet, "autocast"),
        ("ours autocast", Ours, "autocast"),
        ("ours bfloat16", Ours, "bfloat16"),
        ("XLNet float32", HFXLNet, "float32"),
        ("ours float32", Ours, "float32"),
    ]
    for name, kind, precision in contenders:
        found = gradients_of(kind(case.size, precision, batch), weights, remembered)  # type: ignore[arg-type]
        errors[name] = relative_error(found, wanted)
    return errors


def cases(quick: bool) -> list[list[Case]]:
    """Return groups of cases; the cases of a group differ only in their seed."""
    if quick:
        return [[Case(SIZES["tiny"], 10, 0, "XLNet")], [Case(SIZES["tiny"], 10, 0, "ours")]]
    small, medium = SIZES["S"], SIZES["M"]
    groups = [(small, small.segment_tokens // 6, 2), (small, small.segment_tokens // 2, 1)]
    groups.append((medium, medium.segment_tokens // 6, 1))
    return [
        [Case(size, num_targets, seed, drawn_as) for seed in range(num_seeds)]
        for size, num_targets, num_seeds in groups
        for drawn_as in ("XLNet", "ours")
    ]


def main() -> None:
    """Measure all cases; print one table per group, with means over its seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    use_environment(STEADY_HEAP)
    print(f"Gradient error: {describe_machine()}")
    for group in cases(arguments.quick):
        measured = [measure(case) for case in group]
        mean = {name: sum(errors[name] for errors in measured) / len(measured) for name in measured[0]}
        case = group[0]
        for seed, errors in enumerate(measured):
            row = {"size": case.size.name, "num_targets": case.num_targets, "drawn_as": case.drawn_as}
            keep("gradients", row | {"seed": seed, "relative_error": errors})
        rows = [
            [
                name,
                f"{error:.2e}",
                f"{error / mean[f'XLNet {yardstick(name)}']:.2f}x" if yardstick(name) else "",
            ]
            for name, error in mean.items()
        ]
        title = f"{case.size.name}, P = {case.num_targets}, weights drawn as {case.drawn_as}: mean of {len(group)}"
        print_table(title, ["gradients", "relative error", "against XLNet"], rows)


def yardstick(name: str) -> str:
    """Return the precision of XLNet that a contender is compared with, "" for none."""
    if name.endswith("float64"):
        return ""
    return "float32" if name.endswith("float32") else "autocast"


if __name__ == "__main__":
    main()
