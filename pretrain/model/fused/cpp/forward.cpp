// softmax(q k + q r + document, over the keys a row sees) v, a block of rows at a time.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "problem.h"

namespace permcode {
namespace {

// Keys, values and distance keys of all heads as second factors of products.
template <typename T>
struct Packed {
  Buffer<T> keys, values, distances;
  int64_t per_head, per_table;

  Packed(const Problem& problem, const at::Tensor& key_NBKH, const at::Tensor& value_NBKH,
         const OptionalTensor& distance_NRH)
      : per_head(problem.padded_keys * problem.width), per_table(problem.distances.padded() * problem.width) {
    const int64_t heads = problem.heads, lanes = problem.lanes, keys_count = problem.keys;
    keys.make(heads * lanes * per_head);
    values.make(heads * lanes * per_head);
    at::parallel_for(0, heads * lanes, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t n = task / lanes, b = task % lanes;
        pack_columns(head<const T>(key_NBKH, n, b), keys_count, problem.padded_keys, problem.width,
                     keys.data() + task * per_head);
        pack_rows(head<const T>(value_NBKH, n, b), keys_count, problem.padded_keys, problem.width,
                  values.data() + task * per_head);
      }
    });
    if (!distance_NRH) return;
    distances.make(heads * per_table);
    at::parallel_for(0, heads, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n)
        pack_columns(head<const T>(*distance_NRH, n), problem.distances.count, problem.distances.padded(),
                     problem.width, distances.data() + n * per_table);
    });
  }
};

// score[i, k] += (query i) (key of the distance from i to k)
template <typename T>
void add_distances(const Problem& problem, const Products& products, Matrix<const T> queries, const T* table, int64_t b,
                   int64_t first_row, int64_t num_rows, Buffer<float>& scratch, float* scores) {
  const std::vector<KeyRun>& runs = problem.runs[b];
  const int64_t* position = problem.positions(b, first_row);
  const Window window = problem.distances.window(position, num_rows, runs);
  scratch.make(num_rows * window.width);
  products.multiply(num_rows, window.width, problem.width, queries, table + window.first * kPair<T>,
                    problem.distances.padded(), scratch.data(), window.width);
  for (int64_t i = 0; i < num_rows; ++i)
    problem.distances.stretches(position[i], runs, window, [&](int64_t row, int64_t key, int64_t count) {
      add(scratch.data() + i * window.width + row, scores + i * problem.padded_keys + key, count);
    });
}

template <typename T>
std::tuple<at::Tensor, at::Tensor> attend(const Problem& problem, const Inputs& inputs,
                                          const OptionalTensor& document_NBQ2, const Bits& visible, const Bits& other,
                                          bool keeps_weights) {
  const int64_t lanes = problem.lanes, width = problem.width, padded = problem.padded_keys;
  const Packed<T> packed(problem, inputs.key_NBKH, inputs.value_NBKH, inputs.distance_NRH);
  const auto options = inputs.query_NBQH.options();
  at::Tensor weights_NBQS = at::empty({problem.heads, lanes, keeps_weights ? problem.rows : 0, padded}, options);
  at::Tensor mixed_BQNH = at::empty({lanes, problem.rows, problem.heads, width}, options);
  at::Tensor mixed_NBQH = mixed_BQNH.permute({2, 0, 1, 3});
  at::parallel_for(0, problem.heads * lanes * problem.blocks, 1, [&](int64_t first, int64_t last) {
    const Products products;
    Buffer<float> scores(kBlockRows * padded), shifted, mixed(kBlockRows * width);
    Buffer<T> queries(kBlockRows * width), passing(keeps_weights ? 0 : kBlockRows * padded);
    for (int64_t task = first; task < last; ++task) {
      const int64_t pair = task / problem.blocks, n = pair / lanes, b = pair % lanes;
      const int64_t first_row = task % problem.blocks * kBlockRows;
      const int64_t num_rows = std::min(kBlockRows, problem.rows - first_row);
      const int64_t* order = problem.order(b, first_row);
      const auto asked = [&](const OptionalTensor& bias_NH) {
        return inputs.asked(bias_NH, n, b, order, num_rows, queries.data());
      };
      T* weights = keeps_weights ? head<T>(weights_NBQS, n, b).row(first_row) : passing.data();
      const auto out = head<T>(mixed_NBQH, n, b);
      products.multiply(num_rows, padded, width, asked(inputs.content_bias_NH),
                        packed.keys.data() + pair * packed.per_head, padded, scores.data(), padded);
      if (inputs.distance_NRH)
        add_distances(problem, products, asked(inputs.distance_bias_NH),
                      packed.distances.data() + n * packed.per_table, b, first_row, num_rows, shifted, scores.data());
      for (int64_t i = 0; i < num_rows; ++i) {
        const int64_t row = first_row + i;
        const T* document = document_NBQ2 ? head<const T>(*document_NBQ2, n, b).row(order[i]) : nullptr;
        softmax(scores.data() + i * padded, padded, {visible.row(b, row), other.row(b, row)}, document,
                weights + i * padded);
      }
      products.multiply(num_rows, width, padded, {weights, padded},
                        packed.values.data() + pair * packed.per_head, width, mixed.data(), width);
      for (int64_t i = 0; i < num_rows; ++i) convert(mixed.data() + i * width, out.row(order[i]), width);
    }
  });
  return {mixed_NBQH, weights_NBQS};
}

}  // namespace

bool multiplies(at::ScalarType type) {
  if (type != at::kBFloat16) return type == at::kFloat;
  const Products products;
  const at::BFloat16 pair[2] = {};
  float product = 0.0f;
  try {
    products.multiply<at::BFloat16>(1, 1, 2, {pair, 2}, pair, 1, &product, 1);
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query_NBQH, double scale,
                                           const OptionalTensor& content_bias_NH,
                                           const OptionalTensor& distance_bias_NH, const OptionalTensor& document_NBQ2,
                                           const at::Tensor& key_NBKH, const at::Tensor& value_NBKH,
                                           const OptionalTensor& distance_NRH, const at::Tensor& visible_BQW,
                                           const OptionalTensor& other_BQW, const at::Tensor& row_position_BQ,
                                           const at::Tensor& row_order_BQ, const at::Tensor& key_position_BK,
                                           int64_t highest_distance, bool keeps_weights) {
  const Inputs inputs =
      Inputs{query_NBQH, scale, content_bias_NH, distance_bias_NH, key_NBKH, value_NBKH, distance_NRH}.with_plain_rows();
  const Problem problem(inputs, row_position_BQ, row_order_BQ, key_position_BK, highest_distance);
  problem.check_bits(visible_BQW);
  problem.check_bits(other_BQW);
  TORCH_CHECK(document_NBQ2.has_value() == other_BQW.has_value(), "documents need scores and bits");
  if (document_NBQ2) problem.check_heads(*document_NBQ2, problem.rows, 2);
  const OptionalTensor documents = with_plain_rows(document_NBQ2);
  return problem.type == at::kFloat
             ? attend<float>(problem, inputs, documents, Bits(visible_BQW), Bits(other_BQW), keeps_weights)
             : attend<at::BFloat16>(problem, inputs, documents, Bits(visible_BQW), Bits(other_BQW), keeps_weights);
}

}  // namespace permcode
