"""Every initial value of the model."""

from torch import nn

from pretrain.model.attention import TwoStreamAttention

QUERY_START_DEVIATION = 0.02
POSITION_BIAS_DEVIATION = 1.0


def initialise(model: nn.Module, model_dim: int) -> None:
    """Fill all parameters in place, drawing from torch's global generator.

    | parameter                                   | value                                     |
    | ------------------------------------------- | ----------------------------------------- |
    | linear weights                              | normal, D ** -0.5                         |
    | token embedding                             | normal, D ** -0.5                         |
    | the query stream's start (`query_start_D`)  | normal, 0.02 (XLNet)                      |
    | attention's content biases                  | normal, D ** -0.5                         |
    | attention's position biases                 | normal, 1                                 |
    | linear biases, output bias                  | 0                                         |
    | LayerNorm                                   | weight 1, bias 0                          |

    XLNet uses 0.02 everywhere, which suits its D of 768 and 1024 and long training. All queries start alike, so
    the query stream learns nothing until its attention tells positions apart; position biases of size 1 give
    every head a distance profile from the first step and shorten that plateau.
    """
    deviation = model_dim**-0.5
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=deviation)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=deviation)
        elif isinstance(module, TwoStreamAttention):
            nn.init.normal_(module.content_bias_NH, std=deviation)
            nn.init.normal_(module.position_bias_NH, std=POSITION_BIAS_DEVIATION)
