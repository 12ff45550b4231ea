"""The backward kernel of the queries: one program makes the gradients of a tile of rows of one head and lane.

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
    load_distances,
    load_document_scores,
    load_queries,
    load_vectors,
    log2_scores,
    product,
    store_vectors,
    travelling,
    uses_half,
)


@triton.jit
def add_through_distances(
    sum_IH, rest_IJ, of_score_IJ, u_I, num_halves, distance, start, num_distances, stride,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a tile's scores, times the keys of their distances, to `sum_IH`; return it and the new rest.

    The rest is what belongs to the second half band, which the next tile completes. With WIDE there is none.
    """
    t_J = tl.arange(0, COLUMNS)
    narrow = distance.dtype.element_ty
    turned_IJ = tl.gather(of_score_IJ.to(narrow), (t_J[None, :] - u_I[:, None]) & (COLUMNS - 1), 1)
    nothing_IJ = tl.zeros_like(turned_IJ)
    if WIDE:
        for number in range(num_halves):
            is_used_IJ = uses_half(
                (u_I & (COLUMNS - 1))[:, None], (u_I // COLUMNS)[:, None], number, t_J[None, :]
            )
            distance_JH = load_distances(
                distance, start + number * COLUMNS, num_distances, stride, HEAD_DIM, H, COLUMNS
            )
            half_IJ = tl.where(is_used_IJ, turned_IJ, nothing_IJ)
            sum_IH = add_product(sum_IH, half_IJ, distance_JH, PRECISION)
    else:
        is_first_IJ = t_J[None, :] >= u_I[:, None]
        distance_JH = load_distances(distance, start, num_distances, stride, HEAD_DIM, H, COLUMNS)
        complete_IJ = tl.where(is_first_IJ, turned_IJ, rest_IJ)
        sum_IH = add_product(sum_IH, complete_IJ, distance_JH, PRECISION)
        rest_IJ = tl.where(is_first_IJ, nothing_IJ, turned_IJ)
    return sum_IH, rest_IJ


@triton.jit
def rows_backward(
    query, key, value, distance, content_bias, distance_bias, document_score, output, output_gradient, log_sum,
    row_dot, of_keys, of_distances, query_gradient, document_gradient,
    row_index, row_shift, row_group_code, row_num_codes, row_document,
    key_index, key_code, key_document,
    tile_shift, tile_halves, runs, num_runs,
    query_stride_n, query_stride_b, query_stride_q,
    key_stride_n, key_stride_b, key_stride_k,
    value_stride_n, value_stride_b, value_stride_k,
    distance_stride_n, distance_stride_r,
    document_stride_n, document_stride_b, document_stride_q, document_stride_2,
    output_stride_n, output_stride_b, output_stride_q,
    gradient_stride_n, gradient_stride_b, gradient_stride_q,
    num_rows, num_rows_padded, num_columns, num_distances, scale, seed, threshold, keep_scale,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX_RUNS: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_CONTENT_BIAS: tl.constexpr, HAS_DISTANCE_BIAS: tl.constexpr,
    HAS_DOCUMENTS: tl.constexpr, HAS_DROPOUT: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the queries [N, B, Q, H], and of the documents' scores [N, B, Q, 2].

    Also what the other backward kernels read: each row's dot product of output and gradient [B, N, X] and its queries
    for keys and for distances [B, N, X, H].
    """
    tile, head, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(1)
    wide_head, wide_lane = head.to(tl.int64), lane.to(tl.int64)
    query += wide_head * query_stride_n + wide_lane * query_stride_b
    query_gradient += wide_head * output_stride_n + wide_lane * output_stride_b
    key += wide_head * key_stride_n + wide_lane * key_stride_b
    value += wide_head * value_stride_n + wide_lane * value_stride_b
    output += wide_head * output_stride_n + wide_lane * output_stride_b
    output_gradient += wide_head * gradient_stride_n + wide_lane * gradient_stride_b
    distance += wide_head * distance_stride_n

    x_I = lane * num_rows_padded + tile * ROWS + tl.arange(0, ROWS)
    index_I = tl.load(row_index + x_I)
    exists_I = index_I >= 0
    group_code_I, num_codes_I = tl.load(row_group_code + x_I), tl.load(row_num_codes + x_I)
    of_head = (wide_lane * num_heads + head) * num_rows_padded + tile * ROWS + tl.arange(0, ROWS)
    log_sum_I = tl.load(log_sum + of_head)
    narrow = query.dtype.element_ty
    gradient_IH = load_vectors(output_gradient, index_I, exists_I, gradient_stride_q, HEAD_DIM, H)
    output_IH = load_vectors(output, index_I, exists_I, output_stride_q, HEAD_DIM, H)
    dot_I = tl.sum(gradient_IH.to(tl.float32) * output_IH.to(tl.float32), 1)
    tl.store(row_dot + of_head, dot_I)
    of_keys_IH, of_distances_IH = load_queries(
        query, content_bias, distance_bias, head, index_I, exists_I, query_stride_q, scale,
        HEAD_DIM, H, HAS_DISTANCES, HAS_CONTENT_BIAS, HAS_DISTANCE_BIAS,
    )  # fmt: skip
    t_J, h = tl.arange(0, COLUMNS), tl.arange(0, H)
    of_head_IH = of_head[:, None] * HEAD_DIM + h[None, :]
    tl.store(of_keys + of_head_IH, of_keys_IH, mask=(h < HEAD_DIM)[None, :])
    if HAS_DISTANCES:
        tl.store(of_distances + of_head_IH, of_distances_IH, mask=(h < HEAD_DIM)[None, :])
    place = lane * (num_rows_padded // ROWS) + tile
    base, num_halves = tl.load(tile_shift + place), tl.load(tile_halves + place)
    if HAS_DOCUMENTS:
        document_I = tl.load(row_document + x_I)
        document_score += wide_head * document_stride_n + wide_lane * document_stride_b
        same_I, other_I = load_document_scores(
            document_score, index_I, exists_I, document_stride_q, document_stride_2
        )
        of_all_I = tl.zeros([ROWS], tl.float32)
        of_other_I = tl.zeros([ROWS], tl.float32)
    if HAS_DROPOUT:
        row_key_I = dropout_rows(seed, index_I, lane * num_heads + head)

    of_query_IH = tl.zeros([ROWS, H], tl.float32)
    before_IJ = travelling(tl.zeros([ROWS, COLUMNS], tl.float32), of_distances_IH)
    rest_IJ = tl.zeros([ROWS, COLUMNS], narrow)
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
            weight_IJ = tl.exp2(score_IJ - log_sum_I[:, None])
            value_JH = load_vectors(value, key_index_J, exists_J, value_stride_k, HEAD_DIM, H)
            of_weight_IJ = product(gradient_IH, tl.trans(value_JH), PRECISION)
            if HAS_DROPOUT:
                is_kept_IJ = keeps(row_key_I[:, None], key_index_J[None, :], threshold)
                of_weight_IJ = tl.where(is_kept_IJ, of_weight_IJ * keep_scale, 0.0)
            of_score_IJ = weight_IJ * (of_weight_IJ - dot_I[:, None])
            of_query_IH = add_product(of_query_IH, of_score_IJ.to(narrow), key_JH, PRECISION)
            if HAS_DOCUMENTS:
                is_other_IJ = key_document_J[None, :] != document_I[:, None]
                of_all_I += tl.sum(of_score_IJ, 1)
                of_other_I += tl.sum(tl.where(is_other_IJ, of_score_IJ, 0.0), 1)
            if HAS_DISTANCES:
                of_query_IH, rest_IJ = add_through_distances(
                    of_query_IH, rest_IJ, of_score_IJ, u_I, num_halves, distance, key_tile * COLUMNS + base,
                    num_distances, distance_stride_r, HEAD_DIM, H, COLUMNS, WIDE, PRECISION,
                )  # fmt: skip
        if HAS_DISTANCES and not WIDE:
            distance_JH = load_distances(
                distance, last * COLUMNS + base, num_distances, distance_stride_r, HEAD_DIM, H, COLUMNS
            )
            of_query_IH = add_product(of_query_IH, rest_IJ, distance_JH, PRECISION)
            rest_IJ = tl.zeros([ROWS, COLUMNS], narrow)

    store_vectors(query_gradient, index_I, exists_I, output_stride_q, of_query_IH * scale, HEAD_DIM, H)
    if HAS_DOCUMENTS:
        pairs_I = document_gradient + ((wide_head * tl.num_programs(2) + lane) * num_rows + index_I) * 2
        narrow_score = document_gradient.dtype.element_ty
        tl.store(pairs_I, (of_all_I - of_other_I).to(narrow_score), mask=exists_I)
        tl.store(pairs_I + 1, of_other_I.to(narrow_score), mask=exists_I)
