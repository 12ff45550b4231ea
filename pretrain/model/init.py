"""The initial values of all parameters of the model."""

from torch import nn

from pretrain.model.attention import SegmentEncodings
from pretrain.model.positions import LearnedInput, ShawLayer, TransformerXLLayer

QUERY_START_DEVIATION = 0.02
POSITION_BIAS_DEVIATION = 1.0


def initialise(model: nn.Module, model_dim: int) -> None:
    """Fill all parameters in place, drawing from torch's global generator.

    | parameter                                    | value                                     |
    | -------------------------------------------- | ----------------------------------------- |
    | linear weights                               | normal, D ** -0.5                         |
    | token embedding, learned input positions     | normal, D ** -0.5                         |
    | the query stream's start (`query_start_D`)   | normal, 0.02 (XLNet)                      |
    | Transformer-XL's content biases              | normal, D ** -0.5                         |
    | Transformer-XL's position biases             | normal, 1                                 |
    | Shaw's vectors, segment encodings            | normal, D ** -0.5                         |
    | linear biases, output bias                   | 0                                         |
    | LayerNorm                                    | weight 1, bias 0                          |

    XLNet uses 0.02 everywhere, which suits its D of 768 and 1024 and long training. All queries start alike, so
    the query stream learns nothing until its attention separates positions; position biases of size 1 give
    every head a distance profile from the first step and shorten that plateau.
    """
    deviation = model_dim**-0.5
    for module in model.modules():
        match module:
            case nn.Linear():
                nn.init.normal_(module.weight, std=deviation)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            case nn.Embedding():
                nn.init.normal_(module.weight, std=deviation)
            case TransformerXLLayer():
                nn.init.normal_(module.content_bias_NH, std=deviation)
                nn.init.normal_(module.position_bias_NH, std=POSITION_BIAS_DEVIATION)
            case ShawLayer():
                nn.init.normal_(module.key_CH, std=deviation)
                nn.init.normal_(module.value_CH, std=deviation)
            case LearnedInput():
                nn.init.normal_(module.position_XD, std=deviation)
            case SegmentEncodings():
                nn.init.normal_(module.query_bias_NH, std=deviation)
                nn.init.normal_(module.key_2NH, std=deviation)
