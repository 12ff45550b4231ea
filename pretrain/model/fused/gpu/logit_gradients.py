"""A kernel that turns logits into their gradients, in place, and returns each row's loss.

Shapes: X rows, V vocabulary.
"""

import triton
import triton.language as tl


@triton.jit
def logit_gradients(logits, wanted, nats, stride_x, vocab_size, BLOCK: tl.constexpr):
    """Write -log softmax(logits)[wanted] of every row to `nats`, float32 [X], and the gradients over the logits."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * stride_x
    v_V = tl.arange(0, BLOCK)
    highest, total = float("-inf"), 0.0
    for first in range(0, vocab_size, BLOCK):
        logit_V = tl.load(logits + first + v_V, mask=first + v_V < vocab_size, other=float("-inf"))
        logit_V = logit_V.to(tl.float32)
        new = tl.maximum(highest, tl.max(logit_V, 0))
        total = total * tl.exp(highest - new) + tl.sum(tl.exp(logit_V - new), 0)
        highest = new
    log_total = highest + tl.log(total)
    token = tl.load(wanted + row)
    tl.store(nats + row, log_total - tl.load(logits + token).to(tl.float32))
    for first in range(0, vocab_size, BLOCK):
        is_inside_V = first + v_V < vocab_size
        logit_V = tl.load(logits + first + v_V, mask=is_inside_V, other=float("-inf")).to(tl.float32)
        gradient_V = tl.exp(logit_V - log_total) - tl.where(first + v_V == token, 1.0, 0.0)
        tl.store(logits + first + v_V, gradient_V.to(logits.dtype.element_ty), mask=is_inside_V)
