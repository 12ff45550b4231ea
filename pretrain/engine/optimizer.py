"""AdamW over the model's parameters, with weight decay and learning rates by layer."""

import torch
from torch import nn

from pretrain.config import OptimizerConfig
from pretrain.model.transformer import TwoStreamTransformer

BETA1 = 0.9
_HEAD = ("output.", "output_bias_V", "final_norm.")
_BLOCKS = "blocks."


def adamw(model: TwoStreamTransformer, settings: OptimizerConfig, fused: bool) -> torch.optim.AdamW:
    """Make AdamW over all parameters; `set_learning_rate` sets the rate of its groups.

    The rate is 0 until then: some of DeepSpeed's optimizers make a step of their own when they are built, and the
    weights must not decay in it.
    """
    return torch.optim.AdamW(
        parameter_groups(model, settings),
        lr=0.0,
        betas=(BETA1, settings.beta2),
        eps=settings.epsilon,
        fused=fused,
    )


def parameter_groups(model: TwoStreamTransformer, settings: OptimizerConfig) -> list[dict[str, object]]:
    """Return groups of parameters with the same `weight_decay` and `rate_share`, matrices before vectors.

    One-dimensional weights do not decay. With `layer_decay` 1 all have the same rate, and there are two groups.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = settings.weight_decay if parameter.dim() >= 2 else 0.0
        share = settings.layer_decay ** _layers_below_the_head(name, model.config.num_layers)
        groups.setdefault((share, decay), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "rate_share": share}
        for (share, decay), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
    ]


def set_learning_rate(groups: list[dict[str, object]], rate: float) -> None:
    """Set the rate of the next update; a group gets its share of it."""
    for group in groups:
        share = group["rate_share"]
        assert isinstance(share, float)
        group["lr"] = rate * share


def _layers_below_the_head(name: str, num_layers: int) -> int:
    """Return 0 for the head, 1 for the highest layer, num_layers + 1 for embeddings (tied ones too)."""
    if name.startswith(_HEAD):
        return 0
    if name.startswith(_BLOCKS):
        return num_layers - int(name.removeprefix(_BLOCKS).split(".")[0])
    return num_layers + 1
