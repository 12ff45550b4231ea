"""What writing systems learn by.

Shapes: X predictions, V vocabulary.
"""

from torch import Tensor
from torch.nn import functional

from pretrain.model.precision import at_least_float32
from pretrain.objective import prediction_loss


def writing_loss(logits_XV: Tensor, wanted_X: Tensor, label_smoothing: float) -> Tensor:
    """Mean negative log-likelihood in nats, float32 at least, whatever the logits are.

    `label_smoothing` is the share of every target that is spread over the vocabulary (Szegedy et al. 2016, section 7).
    """
    if label_smoothing == 0.0:
        return prediction_loss(logits_XV[None], wanted_X[None])
    return functional.cross_entropy(at_least_float32(logits_XV), wanted_X, label_smoothing=label_smoothing)
