"""The backward kernel of keys and values: one program makes the gradients of a tile of columns of one head and lane.

Tiles lie the other way round than in the forward kernel, [J, I], so that they are the left factors of the sums over
rows.

Shapes: N heads, B lanes, Q rows, X rows padded, I rows of a tile (ROWS), J columns of a tile (COLUMNS), H head dim.
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
    store_vectors,
    travelling,
    uses_half,
)


@triton.jit
def _distance_scores(
    u_I, num_halves, of_distances_IH, distance, start, num_distances, stride,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, H: tl.constexpr, COLUMNS: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the scores [J, I] for the distances of a tile, from half bands of distances from `start` on."""
    t_J = tl.arange(0, COLUMNS)
    chosen_JI = travelling(tl.zeros([COLUMNS, ROWS], tl.float32), of_distances_IH)
    if WIDE:
        for number in range(num_halves):
            distance_JH = load_distances(
                distance, start + number * COLUMNS, num_distances, stride, HEAD_DIM, H, COLUMNS
            )
            half_JI = travelling(product(distance_JH, tl.trans(of_distances_IH), PRECISION), of_distances_IH)
            v_I, half_I = u_I & (COLUMNS - 1), u_I // COLUMNS
            is_used_JI = uses_half(v_I[None, :], half_I[None, :], number, t_J[:, None])
            chosen_JI = tl.where(is_used_JI, half_JI, chosen_JI)
    else:
        distance_JH = load_distances(distance, start, num_distances, stride, HEAD_DIM, H, COLUMNS)
        first_JI = travelling(product(distance_JH, tl.trans(of_distances_IH), PRECISION), of_distances_IH)
        distance_JH = load_distances(distance, start + COLUMNS, num_distances, stride, HEAD_DIM, H, COLUMNS)
        second_JI = travelling(product(distance_JH, tl.trans(of_distances_IH), PRECISION), of_distances_IH)
        chosen_JI = tl.where(t_J[:, None] >= u_I[None, :], first_JI, second_JI)
    rotation_JI = (u_I[None, :] + t_J[:, None]) & (COLUMNS - 1)
    return tl.gather(chosen_JI, rotation_JI, 0).to(tl.float32)


@triton.jit
def keys_backward(
    of_keys, of_distances, key, value, distance, document_score, output_gradient, log_sum, row_dot,
    key_gradient, value_gradient, content_sum,
    row_index, row_shift, row_group_code, row_num_codes, row_document,
    key_index, key_code, key_document,
    tile_shift, tile_halves, runs, num_runs,
    key_stride_n, key_stride_b, key_stride_k,
    value_stride_n, value_stride_b, value_stride_k,
    distance_stride_n, distance_stride_r,
    document_stride_n, document_stride_b, document_stride_q, document_stride_2,
    gradient_stride_n, gradient_stride_b, gradient_stride_q,
    result_stride_n, result_stride_b, result_stride_k,
    num_rows_padded, num_columns, num_distances, seed, threshold, keep_scale,
    HEAD_DIM: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX_RUNS: tl.constexpr,
    HAS_DISTANCES: tl.constexpr, HAS_CONTENT_BIAS: tl.constexpr, HAS_DOCUMENTS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of keys and values, [N, B, K, H], and each tile's part of the content bias's [N, B, Y, H]."""
    tile, head, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_heads = tl.num_programs(1)
    wide_head, wide_lane = head.to(tl.int64), lane.to(tl.int64)
    key += wide_head * key_stride_n + wide_lane * key_stride_b
    value += wide_head * value_stride_n + wide_lane * value_stride_b
    output_gradient += wide_head * gradient_stride_n + wide_lane * gradient_stride_b
    key_gradient += wide_head * result_stride_n + wide_lane * result_stride_b
    value_gradient += wide_head * result_stride_n + wide_lane * result_stride_b
    distance += wide_head * distance_stride_n

    t_J = tl.arange(0, COLUMNS)
    c_J = lane * num_columns + tile * COLUMNS + t_J
    key_index_J = tl.load(key_index + c_J)
    exists_J = key_index_J >= 0
    key_code_J = tl.load(key_code + c_J)
    narrow = key.dtype.element_ty
    key_JH = load_vectors(key, key_index_J, exists_J, key_stride_k, HEAD_DIM, H)
    value_JH = load_vectors(value, key_index_J, exists_J, value_stride_k, HEAD_DIM, H)
    if HAS_DOCUMENTS:
        key_document_J = tl.load(key_document + c_J)
        document_score += wide_head * document_stride_n + wide_lane * document_stride_b

    of_key_JH = tl.zeros([COLUMNS, H], tl.float32)
    of_value_JH = tl.zeros([COLUMNS, H], tl.float32)
    of_scores_J = tl.zeros([COLUMNS], tl.float32)
    place = lane * (num_columns // COLUMNS) + tile
    for run in range(tl.load(num_runs + place)):
        first = tl.load(runs + (place * MAX_RUNS + run) * 2)
        last = tl.load(runs + (place * MAX_RUNS + run) * 2 + 1)
        for row_tile in range(first, last):
            x_I = lane * num_rows_padded + row_tile * ROWS + tl.arange(0, ROWS)
            index_I = tl.load(row_index + x_I)
            exists_I = index_I >= 0
            of_head = (wide_lane * num_heads + head) * num_rows_padded + row_tile * ROWS + tl.arange(0, ROWS)
            of_keys_IH = load_all_vectors(of_keys, of_head, HEAD_DIM, HEAD_DIM, H)
            score_JI = tl.zeros([COLUMNS, ROWS], tl.float32)
            if HAS_DISTANCES:
                of_distances_IH = load_all_vectors(of_distances, of_head, HEAD_DIM, HEAD_DIM, H)
                row_place = lane * (num_rows_padded // ROWS) + row_tile
                base = tl.load(tile_shift + row_place)
                u_I = tl.load(row_shift + x_I) - base
                score_JI = _distance_scores(
                    u_I, tl.load(tile_halves + row_place), of_distances_IH, distance, tile * COLUMNS + base,
                    num_distances, distance_stride_r, ROWS, HEAD_DIM, H, COLUMNS, WIDE, PRECISION,
                )  # fmt: skip
            score_JI = add_product(score_JI, key_JH, tl.trans(of_keys_IH), PRECISION)
            if HAS_DOCUMENTS:
                document_I = tl.load(row_document + x_I)
                same_I, other_I = load_document_scores(
                    document_score, index_I, exists_I, document_stride_q, document_stride_2
                )
                score_JI += document_scores(
                    key_document_J[:, None], document_I[None, :], same_I[None, :], other_I[None, :]
                )
            group_code_I, num_codes_I = tl.load(row_group_code + x_I), tl.load(row_num_codes + x_I)
            score_JI = log2_scores(score_JI, key_code_J[:, None], group_code_I[None, :], num_codes_I[None, :])
            weight_JI = tl.exp2(score_JI - tl.load(log_sum + of_head)[None, :])
            gradient_IH = load_vectors(output_gradient, index_I, exists_I, gradient_stride_q, HEAD_DIM, H)
            of_weight_JI = product(value_JH, tl.trans(gradient_IH), PRECISION)
            kept_JI = weight_JI
            if HAS_DROPOUT:
                row_key_I = dropout_rows(seed, index_I, lane * num_heads + head)
                is_kept_JI = keeps(row_key_I[None, :], key_index_J[:, None], threshold)
                kept_JI = tl.where(is_kept_JI, weight_JI * keep_scale, 0.0)
                of_weight_JI = tl.where(is_kept_JI, of_weight_JI * keep_scale, 0.0)
            of_value_JH = add_product(of_value_JH, kept_JI.to(narrow), gradient_IH, PRECISION)
            of_score_JI = weight_JI * (of_weight_JI - tl.load(row_dot + of_head)[None, :])
            if HAS_CONTENT_BIAS:
                of_scores_J += tl.sum(of_score_JI, 1)
            of_key_JH = add_product(of_key_JH, of_score_JI.to(narrow), of_keys_IH, PRECISION)

    store_vectors(key_gradient, key_index_J, exists_J, result_stride_k, of_key_JH, HEAD_DIM, H)
    store_vectors(value_gradient, key_index_J, exists_J, result_stride_k, of_value_JH, HEAD_DIM, H)
    if HAS_CONTENT_BIAS:
        # The bias is added to the queries of all rows: its gradient is the sum of all gradients of scores times keys.
        h = tl.arange(0, H)
        part = ((wide_head * tl.num_programs(2) + lane) * tl.num_programs(0) + tile) * HEAD_DIM
        total_H = tl.sum(of_scores_J[:, None] * key_JH.to(tl.float32), 0)
        tl.store(content_sum + part + h, total_H, mask=h < HEAD_DIM)
