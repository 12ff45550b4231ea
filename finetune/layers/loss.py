"""What writing systems learn by.

Shapes: X predictions, V vocabulary.
"""

from torch import Tensor

from pretrain.model.precision import at_least_float32
from pretrain.objective import prediction_loss


def writing_loss(logits_XV: Tensor, wanted_X: Tensor, label_smoothing: float) -> Tensor:
    """Mean negative log-likelihood in nats, float32 at least, whatever the logits are.

    `label_smoothing` is the share e of every target that is spread over the vocabulary (Szegedy et al. 2016, section
    7). With l the logits and w the wanted token the loss is -log p_w + e (l_w - mean l): so the likelihood's fused
    operator serves, and no float32 copy of the logits is made.
    """
    loss = prediction_loss(logits_XV[None], wanted_X[None])
    if label_smoothing == 0.0:
        return loss
    wanted_logit_X = at_least_float32(logits_XV.gather(1, wanted_X[:, None])[:, 0])
    mean_logit_X = logits_XV.mean(dim=-1, dtype=wanted_logit_X.dtype)
    return loss + label_smoothing * (wanted_logit_X - mean_logit_X).mean()
