"""The forward kernel: one program makes the output of a tile of rows of one head and lane.

Shapes: N heads, B lanes, Q rows, X rows padded, I rows of a tile (ROWS), J columns of a tile (COLUMNS), H head dim.
"""

import triton
import triton.language as tl

from pretrain.model.fused.gpu.tile_parts import (
    add_product,
    distance_scores,
    document_scores,
    dropout_rows,
    half_band,
    keeps,
    load_document_scores,
    load_queries,
    load_vectors,
    log2_scores,
    store_vectors,
    travelling,
)


@triton.jit
def attend_forward(
    query, key, value, distance, content_bias, distance_bias, document_score, output, log_sum,
    row_index, row_shift, row_group_code, row_num_codes, row_document,
    key_index, key_code, key_document,
    tile_shift, tile_halves, runs, num_runs,
    query_stride_n, query_stride_b, query_stride_q,
    key_stride_n, key_stride_b, key_stride_k,
    value_stride_n, value_stride_b, value_stride_k,
    distance_stride_n, distance_stride_r,
    document_stride_n, document_stride_b, document_stride_q, document_stride_2,
    output_stride_n, output_stride_b, output_stride_q,
    num_rows_padded, num_columns, num_distances, scale, seed, threshold, keep_scale,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX_RUNS: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_CONTENT_BIAS: tl.constexpr, HAS_DISTANCE_BIAS: tl.constexpr,
    HAS_DOCUMENTS: tl.constexpr, HAS_DROPOUT: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write output [N, B, Q, H] and the logarithm (base 2) of each row's sum of weights [N, B, X]."""
    tile, head, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(1)
    wide_head, wide_lane = head.to(tl.int64), lane.to(tl.int64)
    query += wide_head * query_stride_n + wide_lane * query_stride_b
    key += wide_head * key_stride_n + wide_lane * key_stride_b
    value += wide_head * value_stride_n + wide_lane * value_stride_b
    output += wide_head * output_stride_n + wide_lane * output_stride_b
    distance += wide_head * distance_stride_n

    x_I = lane * num_rows_padded + tile * ROWS + tl.arange(0, ROWS)
    index_I = tl.load(row_index + x_I)
    exists_I = index_I >= 0
    group_code_I, num_codes_I = tl.load(row_group_code + x_I), tl.load(row_num_codes + x_I)
    of_keys_IH, of_distances_IH = load_queries(
        query, content_bias, distance_bias, head, index_I, exists_I, query_stride_q, scale,
        HEAD_DIM, H, HAS_DISTANCES, HAS_CONTENT_BIAS, HAS_DISTANCE_BIAS,
    )  # fmt: skip
    narrow = query.dtype.element_ty
    t_J = tl.arange(0, COLUMNS)
    place = lane * (num_rows_padded // ROWS) + tile
    base, num_halves = tl.load(tile_shift + place), tl.load(tile_halves + place)
    if HAS_DOCUMENTS:
        document_I = tl.load(row_document + x_I)
        document_score += wide_head * document_stride_n + wide_lane * document_stride_b
        same_I, other_I = load_document_scores(
            document_score, index_I, exists_I, document_stride_q, document_stride_2
        )
    if HAS_DROPOUT:
        row_key_I = dropout_rows(seed, index_I, lane * num_heads + head)

    highest_I = tl.full([ROWS], float("-inf"), tl.float32)
    sum_I = tl.zeros([ROWS], tl.float32)
    mixed_IH = tl.zeros([ROWS, H], tl.float32)
    before_IJ = travelling(tl.zeros([ROWS, COLUMNS], tl.float32), of_distances_IH)
    for run in range(tl.load(num_runs + place)):
        first = tl.load(runs + (place * MAX_RUNS + run) * 2)
        last = tl.load(runs + (place * MAX_RUNS + run) * 2 + 1)
        if HAS_DISTANCES and not WIDE:
            before_IJ = half_band(
                of_distances_IH, distance, first * COLUMNS + base, num_distances, distance_stride_r,
                HEAD_DIM, H, COLUMNS, PRECISION,
            )  # fmt: skip
        for key_tile in range(first, last):
            c_J = lane * num_columns + key_tile * COLUMNS + t_J
            key_index_J = tl.load(key_index + c_J)
            exists_J = key_index_J >= 0
            score_IJ = tl.zeros([ROWS, COLUMNS], tl.float32)
            if HAS_DISTANCES:
                # Loaded here: the compiler would keep what follows from it for the whole loop, in many registers.
                u_I = tl.load(row_shift + x_I) - base
                score_IJ, before_IJ = distance_scores(
                    before_IJ, u_I, num_halves, of_distances_IH, distance, key_tile * COLUMNS + base,
                    num_distances, distance_stride_r, ROWS, HEAD_DIM, H, COLUMNS, WIDE, PRECISION,
                )  # fmt: skip
            key_JH = load_vectors(key, key_index_J, exists_J, key_stride_k, HEAD_DIM, H)
            score_IJ = add_product(score_IJ, of_keys_IH, tl.trans(key_JH), PRECISION)
            if HAS_DOCUMENTS:
                key_document_J = tl.load(key_document + c_J)
                score_IJ += document_scores(
                    key_document_J[None, :], document_I[:, None], same_I[:, None], other_I[:, None]
                )
            key_code_J = tl.load(key_code + c_J)
            score_IJ = log2_scores(score_IJ, key_code_J[None, :], group_code_I[:, None], num_codes_I[:, None])
            new_I = tl.maximum(highest_I, tl.max(score_IJ, 1))
            # Rows that have seen nothing yet: -inf - -inf is no number.
            finite_I = tl.where(new_I == float("-inf"), 0.0, new_I)
            weight_IJ = tl.exp2(score_IJ - finite_I[:, None])
            shrink_I = tl.exp2(highest_I - finite_I)
            highest_I = new_I
            sum_I = sum_I * shrink_I + tl.sum(weight_IJ, 1)
            if HAS_DROPOUT:
                is_kept_IJ = keeps(row_key_I[:, None], key_index_J[None, :], threshold)
                weight_IJ = tl.where(is_kept_IJ, weight_IJ, 0.0)
            value_JH = load_vectors(value, key_index_J, exists_J, value_stride_k, HEAD_DIM, H)
            mixed_IH = add_product(mixed_IH * shrink_I[:, None], weight_IJ.to(narrow), value_JH, PRECISION)
    sees_any_I = sum_I > 0
    divisor_I = tl.where(sees_any_I, sum_I, 1.0)
    if HAS_DROPOUT:
        mixed_IH = mixed_IH * keep_scale
    mixed_IH = mixed_IH / divisor_I[:, None]
    store_vectors(output, index_I, exists_I, output_stride_q, mixed_IH, HEAD_DIM, H)
    # The weights of a row that sees nothing come out as 0 in the backward kernels, too.
    log_sum_I = tl.where(sees_any_I, highest_I + tl.log2(divisor_I), float("inf"))
    tl.store(
        log_sum + (wide_lane * num_heads + head) * num_rows_padded + tile * ROWS + tl.arange(0, ROWS),
        log_sum_I,
    )
