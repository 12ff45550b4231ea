"""Parts of the attention kernels: loads, visibility, scores by distance, dropout. Triton's language, compiled for GPUs.

Shapes: I rows of a tile (ROWS), J columns of a tile (COLUMNS), X either, H head dim (padded to a power of 2).

Scores by distance. Rows are sorted by position, and keys are laid out by position in *columns*, so that row i and
column c have the distance number c + shift_i; the shift falls as the row's position grows. Let base be the smallest
shift of a tile's rows, u_i = shift_i - base, and c0 the tile's first column. Row i needs the J distances from
c0 + base + u_i on. They lie in one or two *half bands*: half band number m has the J distances from c0 + base + m J on.
With the products p_m [I, J] of the rows and the half bands, h_i = u_i // J and v_i = u_i mod J,

    chosen[i, t] = p_m[i, t],   m = h_i where t >= v_i, else h_i + 1,
    score[i, j] = chosen[i, (u_i + j) mod J].

So the relative shift (Dai et al. 2019, appendix B) of a tile is a choice between half bands and a rotation of each row.
Gradients of the scores go the same way back. Where rows are close (u_i <= J) there are two half bands, and the second
one is the first one of the next tile of columns.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def product(left, right, PRECISION: tl.constexpr):
    """Return the matrix product in float32. PRECISION is Triton's, or "interpreted": on the CPU bfloat16 is widened."""
    if PRECISION == "interpreted":
        return tl.dot(left.to(tl.float32), right.to(tl.float32))
    return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def add_product(total, left, right, PRECISION: tl.constexpr):
    """Return `total` plus the matrix product."""
    if PRECISION == "interpreted":
        return tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    return tl.dot(left, right, total, input_precision=PRECISION)


@triton.jit
def load_vectors(pointer, index_X, valid_X, stride, HEAD_DIM: tl.constexpr, H: tl.constexpr):
    """Load vectors [X, H] at `index_X`; zeros where `valid_X` is false."""
    h = tl.arange(0, H)
    places_XH = pointer + index_X[:, None] * stride + h[None, :]
    if HEAD_DIM == H:
        return tl.load(places_XH, mask=valid_X[:, None], other=0.0)
    return tl.load(places_XH, mask=valid_X[:, None] & (h < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def load_all_vectors(pointer, index_X, stride, HEAD_DIM: tl.constexpr, H: tl.constexpr):
    """Load vectors [X, H] at `index_X`, all of which exist."""
    h = tl.arange(0, H)
    places_XH = pointer + index_X[:, None] * stride + h[None, :]
    if HEAD_DIM == H:
        return tl.load(places_XH)
    return tl.load(places_XH, mask=(h < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def store_vectors(pointer, index_X, valid_X, stride, values_XH, HEAD_DIM: tl.constexpr, H: tl.constexpr):
    """Store vectors [X, H] at `index_X` where `valid_X`, in the type of the target."""
    h = tl.arange(0, H)
    places_XH = pointer + index_X[:, None] * stride + h[None, :]
    mask_XH = valid_X[:, None] & (h < HEAD_DIM)[None, :]
    tl.store(places_XH, values_XH.to(pointer.dtype.element_ty), mask=mask_XH)


@triton.jit
def load_bias(pointer, head, HEAD_DIM: tl.constexpr, H: tl.constexpr):
    """Load one head's bias, float32 [1, H]."""
    h = tl.arange(0, H)
    return tl.load(pointer + head * HEAD_DIM + h, mask=h < HEAD_DIM, other=0.0).to(tl.float32)[None, :]


@triton.jit
def load_distances(
    pointer, first, num_distances, stride, HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr
):
    """Load the keys [J, H] of distances `first` to `first` + J - 1; zeros outside the table."""
    t = first + tl.arange(0, COLUMNS)
    return load_vectors(pointer, t, (t >= 0) & (t < num_distances), stride, HEAD_DIM, H)


@triton.jit
def log2_scores(score, key_code, group_code, num_codes):
    """Return scores in units of log2(e), -inf where a row does not see a key; shapes broadcast."""
    # One comparison for group and rank; -1, the code of hidden keys, is a large unsigned number then.
    sees = (key_code - group_code).to(tl.uint32) < num_codes.to(tl.uint32)
    return tl.where(sees, score * LOG2_E, float("-inf"))


@triton.jit
def document_scores(key_document, row_document, same, other):
    """Return the rows' scores for keys of their own and of other documents; shapes broadcast."""
    return tl.where(key_document != row_document, other, same)


@triton.jit
def travelling(scores, inputs):
    """Return scores in the type in which they move between threads: float16 with `inputs` of bfloat16.

    That is finer than bfloat16, in which the plain operations keep scores, and takes half of the registers and traffic.
    """
    # One return: of two, Triton wants the same type, also where only one of them is compiled.
    if inputs.dtype == tl.float32:
        moved = scores
    else:
        moved = scores.to(tl.float16)
    return moved


@triton.jit
def uses_half(v_X, half_X, number, t_X):
    """Whether a row (its h and v = u mod J) uses half band `number` at `t`; shapes broadcast."""
    return tl.where(t_X >= v_X, half_X, half_X + 1) == number


@triton.jit
def mix_bits(x):
    """Mix the bits of uint32 numbers ("lowbias32" of Ettinger and Wellons)."""
    x = x ^ (x >> 16)
    x = x * tl.full([], 0x21F0AAAD, tl.uint32)
    x = x ^ (x >> 15)
    x = x * tl.full([], 0xD35A2D97, tl.uint32)
    return x ^ (x >> 15)


@triton.jit
def dropout_rows(seed, row_index_X, lane_and_head):
    """Return the dropout generator's key of each row, uint32: a function of seed, lane, head and row."""
    low = seed.to(tl.uint32)
    high = (seed >> 32).to(tl.uint32)
    row_X = mix_bits(row_index_X.to(tl.uint32) * tl.full([], 0x9E3779B1, tl.uint32) + low)
    return mix_bits(row_X ^ mix_bits(lane_and_head.to(tl.uint32) + high))


@triton.jit
def keeps(row_key, key_index, threshold):
    """Whether weights are kept, for broadcastable shapes: where a random uint32 is not below `threshold`."""
    random = mix_bits(row_key + key_index.to(tl.uint32) * tl.full([], 0x85EBCA77, tl.uint32))
    return random >= threshold.to(tl.uint32)


@triton.jit
def load_queries(
    query, content_bias, distance_bias, head, index_I, exists_I, stride, scale,
    HEAD_DIM: tl.constexpr, H: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_CONTENT_BIAS: tl.constexpr, HAS_DISTANCE_BIAS: tl.constexpr,
):  # fmt: skip
    """Return a tile's scaled queries with their biases, for keys and for distances, [I, H] in the inputs' type."""
    query_IH = load_vectors(query, index_I, exists_I, stride, HEAD_DIM, H).to(tl.float32) * scale
    of_keys_IH = query_IH
    of_distances_IH = query_IH
    if HAS_CONTENT_BIAS:
        of_keys_IH += load_bias(content_bias, head, HEAD_DIM, H)
    if HAS_DISTANCES and HAS_DISTANCE_BIAS:
        of_distances_IH += load_bias(distance_bias, head, HEAD_DIM, H)
    narrow = query.dtype.element_ty
    return of_keys_IH.to(narrow), of_distances_IH.to(narrow)


@triton.jit
def load_document_scores(document_score, index_I, exists_I, stride_q, stride_2):
    """Return the rows' scores for keys of their own and of other documents, float32 [I] each."""
    places_I = document_score + index_I * stride_q
    same_I = tl.load(places_I, mask=exists_I, other=0.0).to(tl.float32)
    return same_I, tl.load(places_I + stride_2, mask=exists_I, other=0.0).to(tl.float32)


@triton.jit
def half_band(
    of_distances_IH, distance, first, num_distances, stride,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the products [I, J] of the queries and the J distances from `first` on."""
    distance_JH = load_distances(distance, first, num_distances, stride, HEAD_DIM, H, COLUMNS)
    return travelling(product(of_distances_IH, tl.trans(distance_JH), PRECISION), of_distances_IH)


@triton.jit
def distance_scores(
    before_IJ, u_I, num_halves, of_distances_IH, distance, start, num_distances, stride,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the scores [I, J] for the distances of a tile, and the second half band: the next tile's first.

    `before_IJ` is this tile's first half band, of distances from `start` on. With WIDE it is not used, because rows may
    need more than two.
    """
    t_J = tl.arange(0, COLUMNS)
    if WIDE:
        chosen_IJ = tl.zeros_like(before_IJ)
        for number in range(num_halves):
            first = start + number * COLUMNS
            half_IJ = half_band(
                of_distances_IH, distance, first, num_distances, stride, HEAD_DIM, H, COLUMNS, PRECISION
            )
            v_I, half_I = u_I & (COLUMNS - 1), u_I // COLUMNS
            is_used_IJ = uses_half(v_I[:, None], half_I[:, None], number, t_J[None, :])
            chosen_IJ = tl.where(is_used_IJ, half_IJ, chosen_IJ)
    else:
        first = start + COLUMNS
        after_IJ = half_band(
            of_distances_IH, distance, first, num_distances, stride, HEAD_DIM, H, COLUMNS, PRECISION
        )
        chosen_IJ = tl.where(t_J[None, :] >= u_I[:, None], before_IJ, after_IJ)
        before_IJ = after_IJ
    rotation_IJ = (u_I[:, None] + t_J[None, :]) & (COLUMNS - 1)
    return tl.gather(chosen_IJ, rotation_IJ, 1).to(tl.float32), before_IJ
