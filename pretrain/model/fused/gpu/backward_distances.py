"""The backward kernel of the keys of distances: one program sums the gradient of J distances of a head over some lanes.

A tile of rows meets the distances t0 to t0 + J - 1 at columns that differ from row to row. With base, u_i and h_i as in
`tile_parts`, half band number m of columns begins at t0 - base - m J, and place w of row i is in half band h_i where
w < J - u_i mod J, in the next one elsewhere. Products with keys and values are chosen so, everything else is done by
place, and the gradients of the scores are rotated to distances at the end.

Shapes: N heads, B lanes, Q rows, X rows padded, I rows of a tile (ROWS), J distances of a program (COLUMNS),
H head dim, G sets of lanes.
"""

import triton
import triton.language as tl

from pretrain.model.fused.gpu.tile_parts import (
    add_product,
    document_scores,
    dropout_rows,
    keeps,
    load_all_vectors,
    load_distances,
    load_document_scores,
    load_vectors,
    log2_scores,
    product,
    travelling,
)


@triton.jit
def _with_half(
    pairs, number, start, u_I, of_keys_IH, gradient_IH, key, value,
    key_index, key_code, key_document, key_stride_k, value_stride_k, lane, num_columns,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr,
    HAS_DOCUMENTS: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Fill in what rows have in half band `number` of columns: products; index, code and document of the keys."""
    score_JI, of_weight_JI, key_code_JI, key_index_JI, key_document_JI = pairs
    t_J = tl.arange(0, COLUMNS)
    column_J = start - number * COLUMNS + t_J
    inside_J = (column_J >= 0) & (column_J < num_columns)
    c_J = lane * num_columns + column_J
    key_index_J = tl.load(key_index + c_J, mask=inside_J, other=-1)
    exists_J = key_index_J >= 0
    key_JH = load_vectors(key, key_index_J, exists_J, key_stride_k, HEAD_DIM, H)
    value_JH = load_vectors(value, key_index_J, exists_J, value_stride_k, HEAD_DIM, H)
    half_I = tl.where(
        t_J[:, None] < COLUMNS - (u_I & (COLUMNS - 1))[None, :],
        (u_I // COLUMNS)[None, :],
        (u_I // COLUMNS + 1)[None, :],
    )
    is_used_JI = half_I == number
    products_JI = product(key_JH, tl.trans(of_keys_IH), PRECISION)
    score_JI = tl.where(is_used_JI, products_JI, score_JI)
    products_JI = product(value_JH, tl.trans(gradient_IH), PRECISION)
    of_weight_JI = tl.where(is_used_JI, products_JI, of_weight_JI)
    key_code_J = tl.load(key_code + c_J, mask=inside_J, other=-1)
    key_code_JI = tl.where(is_used_JI, key_code_J[:, None], key_code_JI)
    if HAS_DROPOUT:
        key_index_JI = tl.where(is_used_JI, key_index_J[:, None], key_index_JI)
    if HAS_DOCUMENTS:
        key_document_J = tl.load(key_document + c_J, mask=inside_J, other=-1)
        key_document_JI = tl.where(is_used_JI, key_document_J[:, None], key_document_JI)
    return score_JI, of_weight_JI, key_code_JI, key_index_JI, key_document_JI


@triton.jit
def distances_backward(
    of_keys, of_distances, key, value, distance, document_score, output_gradient, log_sum, row_dot,
    distance_sum, bias_sum,
    row_index, row_shift, row_group_code, row_num_codes, row_document,
    key_index, key_code, key_document,
    tile_shift, tile_halves, runs, num_runs,
    key_stride_n, key_stride_b, key_stride_k,
    value_stride_n, value_stride_b, value_stride_k,
    distance_stride_n, distance_stride_r,
    document_stride_n, document_stride_b, document_stride_q, document_stride_2,
    gradient_stride_n, gradient_stride_b, gradient_stride_q,
    num_lanes, num_rows_padded, num_columns, num_distances, seed, threshold, keep_scale,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX_RUNS: tl.constexpr,
    HAS_DISTANCE_BIAS: tl.constexpr, HAS_DOCUMENTS: tl.constexpr, HAS_DROPOUT: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write each set of lanes' part of the gradient of the distances' keys, float32 [G, N, R, H].

    Also each program's part of the distance bias's, [G, N, Y, H].
    """
    chunk, head, first_lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(1)
    wide_head = head.to(tl.int64)
    key += wide_head * key_stride_n
    value += wide_head * value_stride_n
    output_gradient += wide_head * gradient_stride_n
    distance += wide_head * distance_stride_n
    document_score += wide_head * document_stride_n
    t_J = tl.arange(0, COLUMNS)
    narrow = key.dtype.element_ty
    distance_JH = load_distances(
        distance, chunk * COLUMNS, num_distances, distance_stride_r, HEAD_DIM, H, COLUMNS
    )

    of_distance_JH = tl.zeros([COLUMNS, H], tl.float32)
    of_scores_J = tl.zeros([COLUMNS], tl.float32)
    num_sets = tl.num_programs(2)
    for number_of_lane in range(tl.cdiv(num_lanes - first_lane, num_sets)):
        lane = first_lane + number_of_lane * num_sets
        wide_lane = lane.to(tl.int64)
        place = lane * tl.num_programs(0) + chunk
        for run in range(tl.load(num_runs + place)):
            first = tl.load(runs + (place * MAX_RUNS + run) * 2)
            last = tl.load(runs + (place * MAX_RUNS + run) * 2 + 1)
            for row_tile in range(first, last):
                x_I = lane * num_rows_padded + row_tile * ROWS + tl.arange(0, ROWS)
                index_I = tl.load(row_index + x_I)
                exists_I = index_I >= 0
                of_head = (
                    (wide_lane * num_heads + head) * num_rows_padded + row_tile * ROWS + tl.arange(0, ROWS)
                )
                of_keys_IH = load_all_vectors(of_keys, of_head, HEAD_DIM, HEAD_DIM, H)
                of_distances_IH = load_all_vectors(of_distances, of_head, HEAD_DIM, HEAD_DIM, H)
                gradient_IH = load_vectors(
                    output_gradient + wide_lane * gradient_stride_b,
                    index_I, exists_I, gradient_stride_q, HEAD_DIM, H,
                )  # fmt: skip
                row_place = lane * (num_rows_padded // ROWS) + row_tile
                base = tl.load(tile_shift + row_place)
                u_I = tl.load(row_shift + x_I) - base
                # Per pair of place w and row: products and what is known of the key there.
                score_JI = tl.zeros([COLUMNS, ROWS], tl.float32)
                of_weight_JI = tl.zeros([COLUMNS, ROWS], tl.float32)
                key_code_JI = tl.full([COLUMNS, ROWS], -1, tl.int32)
                key_index_JI = tl.zeros([COLUMNS, ROWS], tl.int32)
                key_document_JI = tl.zeros([COLUMNS, ROWS], tl.int32)
                pairs = (score_JI, of_weight_JI, key_code_JI, key_index_JI, key_document_JI)
                start = chunk * COLUMNS - base
                if WIDE:
                    for number in range(tl.load(tile_halves + row_place)):
                        pairs = _with_half(
                            pairs, number, start, u_I, of_keys_IH, gradient_IH,
                            key + wide_lane * key_stride_b, value + wide_lane * value_stride_b,
                            key_index, key_code, key_document, key_stride_k, value_stride_k,
                            lane, num_columns, HEAD_DIM, H, COLUMNS, HAS_DOCUMENTS, HAS_DROPOUT, PRECISION,
                        )  # fmt: skip
                else:
                    for number in tl.static_range(2):
                        pairs = _with_half(
                            pairs, number, start, u_I, of_keys_IH, gradient_IH,
                            key + wide_lane * key_stride_b, value + wide_lane * value_stride_b,
                            key_index, key_code, key_document, key_stride_k, value_stride_k,
                            lane, num_columns, HEAD_DIM, H, COLUMNS, HAS_DOCUMENTS, HAS_DROPOUT, PRECISION,
                        )  # fmt: skip
                score_JI, of_weight_JI, key_code_JI, key_index_JI, key_document_JI = pairs
                by_distance_JI = travelling(
                    product(distance_JH, tl.trans(of_distances_IH), PRECISION), of_distances_IH
                )
                score_JI += tl.gather(by_distance_JI, (t_J[:, None] + u_I[None, :]) & (COLUMNS - 1), 0)
                if HAS_DOCUMENTS:
                    document_I = tl.load(row_document + x_I)
                    same_I, other_I = load_document_scores(
                        document_score + wide_lane * document_stride_b,
                        index_I, exists_I, document_stride_q, document_stride_2,
                    )  # fmt: skip
                    score_JI += document_scores(
                        key_document_JI, document_I[None, :], same_I[None, :], other_I[None, :]
                    )
                group_code_I, num_codes_I = tl.load(row_group_code + x_I), tl.load(row_num_codes + x_I)
                score_JI = log2_scores(score_JI, key_code_JI, group_code_I[None, :], num_codes_I[None, :])
                weight_JI = tl.exp2(score_JI - tl.load(log_sum + of_head)[None, :])
                if HAS_DROPOUT:
                    row_key_I = dropout_rows(seed, index_I, lane * num_heads + head)
                    is_kept_JI = keeps(row_key_I[None, :], key_index_JI, threshold)
                    of_weight_JI = tl.where(is_kept_JI, of_weight_JI * keep_scale, 0.0)
                of_score_JI = weight_JI * (of_weight_JI - tl.load(row_dot + of_head)[None, :])
                by_distance_JI = tl.gather(
                    of_score_JI.to(narrow), (t_J[:, None] - u_I[None, :]) & (COLUMNS - 1), 0
                )
                if HAS_DISTANCE_BIAS:
                    of_scores_J += tl.sum(by_distance_JI.to(tl.float32), 1)
                of_distance_JH = add_product(of_distance_JH, by_distance_JI, of_distances_IH, PRECISION)

    h = tl.arange(0, H)
    r_J = chunk * COLUMNS + t_J
    first = (first_lane.to(tl.int64) * num_heads + head) * num_distances
    places_JH = distance_sum + (first + r_J)[:, None] * HEAD_DIM + h[None, :]
    tl.store(places_JH, of_distance_JH, mask=(r_J < num_distances)[:, None] & (h < HEAD_DIM)[None, :])
    if HAS_DISTANCE_BIAS:
        total_H = tl.sum(of_scores_J[:, None] * distance_JH.to(tl.float32), 0)
        part = ((first_lane.to(tl.int64) * num_heads + head) * tl.num_programs(0) + chunk) * HEAD_DIM
        tl.store(bias_sum + part + h, total_H, mask=h < HEAD_DIM)
