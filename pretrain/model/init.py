"""Every initial value of the model."""

from torch import nn

from pretrain.model.attention import TwoStreamAttention

EMBEDDING_DEVIATION = 0.02


def initialise(model: nn.Module, model_dim: int) -> None:
    """Fill all parameters in place, drawing from torch's global generator.

    | parameter                                   | value                                     |
    | ------------------------------------------- | ----------------------------------------- |
    | linear weights                              | normal, D ** -0.5                         |
    | token embedding, query stream's start       | normal, 0.02 (XLNet)                      |
    | attention's content and position biases     | normal, D ** -0.5                         |
    | linear biases, output bias                  | 0                                         |
    | LayerNorm                                   | weight 1, bias 0                          |

    XLNet uses 0.02 everywhere, which suits its D of 768 and 1024. A small model starts too flat with it: all
    queries start alike, so the query stream learns nothing until its attention tells positions apart.
    """
    deviation = model_dim**-0.5
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=deviation)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=EMBEDDING_DEVIATION)
        elif isinstance(module, TwoStreamAttention):
            nn.init.normal_(module.content_bias_NH, std=deviation)
            nn.init.normal_(module.position_bias_NH, std=deviation)
