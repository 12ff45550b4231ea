// Gradients of forward.cpp's attention from its weights, a block of rows at a time.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "problem.h"

namespace permcode {
namespace {

struct Forward {
  Inputs inputs;
  at::Tensor gradient_NBQH, weights_NBQS;
};

struct Gradients {
  at::Tensor query_NBQH, key_NBKH, value_NBKH;
  OptionalTensor content_bias_NH, distance_bias_NH, document_NBQ2, distance_NRH;
};

// The gradients that a block of rows adds to one head of one lane. Names: S padded keys, R padded distances, H head dim.
template <typename T>
class LaneGradients {
 public:
  LaneGradients(const Problem& problem, const Forward& forward, const Bits& other, Gradients& gradients)
      : problem_(problem),
        forward_(forward),
        inputs_(forward.inputs),
        other_(other),
        gradients_(gradients),
        width_(problem.width),
        padded_(problem.padded_keys),
        values_HS_(width_ * padded_),
        keys_SH_(width_ * padded_),
        key_gradient_HS_(width_ * padded_),
        value_gradient_HS_(width_ * padded_),
        scores_(kBlockRows * padded_),
        score_rows_(kBlockRows * padded_),
        pairs_(kBlockRows * padded_),
        scratch_(kBlockRows * width_),
        columns_(kBlockRows * width_),
        gathered_(kBlockRows * width_),
        rows_(kBlockRows * width_),
        distance_rows_(kBlockRows * width_) {}

  // `distances_RH` as a second factor; the gradient of the distance keys is added up in `distance_gradient_HR`, those of
  // the two biases are left in `bias_gradient_2H`.
  void run(int64_t n, int64_t b, const T* distances_RH, float* distance_gradient_HR, float* bias_gradient_2H) {
    n_ = n, b_ = b;
    std::fill_n(bias_gradient_2H, 2 * width_, 0.0f);
    pack_columns(head<const T>(inputs_.value_NBKH, n, b), problem_.keys, padded_, width_, values_HS_.data());
    pack_rows(head<const T>(inputs_.key_NBKH, n, b), problem_.keys, padded_, width_, keys_SH_.data());
    key_gradient_HS_.zero();
    value_gradient_HS_.zero();
    for (first_ = 0; first_ < problem_.rows; first_ += kBlockRows) {
      num_rows_ = std::min(kBlockRows, problem_.rows - first_);
      order_ = problem_.order(b, first_);
      scores();
      if (gradients_.document_NBQ2) documents();
      content(bias_gradient_2H);
      if (distances_RH) distances(distances_RH, distance_gradient_HR, bias_gradient_2H + width_);
      write_queries();
    }
    finish(key_gradient_HS_, head<T>(gradients_.key_NBKH, n, b));
    finish(value_gradient_HS_, head<T>(gradients_.value_NBKH, n, b));
  }

 private:
  // The block's rows; good until the next call of either.
  Matrix<const T> gathered(const at::Tensor& heads_NBQH) {
    return gather_rows(head<const T>(heads_NBQH, n_, b_), order_, num_rows_, width_, gathered_.data());
  }

  Matrix<const T> asked(const OptionalTensor& bias_NH) {
    return inputs_.asked(bias_NH, n_, b_, order_, num_rows_, gathered_.data());
  }

  // Gradients of the block's scores, and those of the values.
  void scores() {
    const auto gradient = gathered(forward_.gradient_NBQH);
    const Matrix<const T> weights{head<const T>(forward_.weights_NBQS, n_, b_).row(first_), padded_};
    products_.multiply(num_rows_, padded_, width_, gradient, values_HS_.data(), padded_, scores_.data(), padded_);
    for (int64_t i = 0; i < num_rows_; ++i)
      softmax_backward(scores_.data() + i * padded_, weights.row(i), padded_, score_rows_.data() + i * padded_);
    pack_rows(weights, num_rows_, kBlockRows, padded_, pairs_.data());
    add_product(gradient, pairs_.data(), padded_, value_gradient_HS_.data(), padded_);
  }

  void documents() {
    const auto out = head<T>(*gradients_.document_NBQ2, n_, b_);
    for (int64_t i = 0; i < num_rows_; ++i) {
      const uint16_t* other = other_.row(b_, first_ + i);
      Floats total{}, total_other{};
      for (int64_t key = 0; key < padded_; key += kLanes) {
        const Floats gradient = load(score_rows_.data() + i * padded_ + key);
        total += where(other[key / kLanes], Floats{}, gradient);
        total_other += where(other[key / kLanes], gradient, Floats{});
      }
      out.row(order_[i])[0] = T(sum(total));
      out.row(order_[i])[1] = T(sum(total_other));
    }
  }

  // The block's queries for keys, in `rows_`.
  void content(float* bias_gradient_H) {
    const Matrix<const T> score_rows{score_rows_.data(), padded_};
    products_.multiply(num_rows_, width_, padded_, score_rows, keys_SH_.data(), width_, rows_.data(), width_);
    add_rows(rows_, bias_gradient_H);
    pack_rows(score_rows, num_rows_, kBlockRows, padded_, pairs_.data());
    add_product(asked(inputs_.content_bias_NH), pairs_.data(), padded_, key_gradient_HS_.data(), padded_);
  }

  // The block's queries for distances, in `distance_rows_`.
  void distances(const T* distances_RH, float* distance_gradient_HR, float* bias_gradient_H) {
    const std::vector<KeyRun>& runs = problem_.runs[b_];
    const int64_t* position = problem_.positions(b_, first_);
    const Window window = problem_.distances.window(position, num_rows_, runs);
    shifted_rows_.make(kBlockRows * window.width);
    pairs_.make(kBlockRows * window.width);
    const bool one_key_a_row = problem_.distances.one_key_a_row(position, num_rows_, runs);
    for (int64_t i = 0; i < num_rows_; ++i) {
      T* shifted = shifted_rows_.data() + i * window.width;
      if (one_key_a_row)
        move_row(position[i], i, window, shifted);
      else
        add_row(position[i], i, window, shifted);
    }
    const Matrix<const T> shifted_rows{shifted_rows_.data(), window.width};
    products_.multiply(num_rows_, width_, window.width, shifted_rows, distances_RH + window.first * width_, width_,
                       distance_rows_.data(), width_);
    add_rows(distance_rows_, bias_gradient_H);
    pack_rows(shifted_rows, num_rows_, kBlockRows, window.width, pairs_.data());
    add_product(asked(inputs_.distance_bias_NH), pairs_.data(), window.width,
                distance_gradient_HR + window.first, problem_.distances.padded());
  }

  // The score gradients of row i of the block, by table row of the window.
  void move_row(int64_t position, int64_t i, Window window, T* shifted) {
    std::memset(shifted, 0, window.width * sizeof(T));
    problem_.distances.stretches(position, problem_.runs[b_], window, [&](int64_t row, int64_t key, int64_t count) {
      std::memcpy(shifted + row, score_rows_.data() + i * padded_ + key, count * sizeof(T));
    });
  }

  void add_row(int64_t position, int64_t i, Window window, T* shifted) {
    shifted_.make(window.width);
    std::memset(shifted_.data(), 0, window.width * sizeof(float));
    problem_.distances.stretches(position, problem_.runs[b_], window, [&](int64_t row, int64_t key, int64_t count) {
      add(score_rows_.data() + i * padded_ + key, shifted_.data() + row, count);
    });
    convert(shifted_.data(), shifted, window.width);
  }

  // sum_HX += (the block's rows)^T factor_X
  void add_product(Matrix<const T> rows, const T* factor, int64_t factor_width, float* sum_HX, int64_t sum_stride) {
    transpose_rows(rows, num_rows_, kBlockRows, width_, scratch_.data(), columns_.data());
    products_.multiply(width_, factor_width, kBlockRows, {columns_.data(), kBlockRows}, factor, factor_width, sum_HX,
                       sum_stride, true);
  }

  void add_rows(const Buffer<float>& rows, float* sum_H) const {
    for (int64_t i = 0; i < num_rows_; ++i) add(rows.data() + i * width_, sum_H, width_);
  }

  void write_queries() {
    if (inputs_.distance_NRH) add(distance_rows_.data(), rows_.data(), num_rows_ * width_);
    const auto out = head<T>(gradients_.query_NBQH, n_, b_);
    for (int64_t i = 0; i < num_rows_; ++i)
      scale_and_add<float, T>(rows_.data() + i * width_, float(inputs_.scale), nullptr, out.row(order_[i]), width_);
  }

  void finish(const Buffer<float>& gradient_HS, Matrix<T> out) {
    transpose_floats(gradient_HS.data(), padded_, problem_.keys, width_, out);
  }

  const Products products_;
  const Problem& problem_;
  const Forward& forward_;
  const Inputs& inputs_;
  const Bits& other_;
  Gradients& gradients_;
  const int64_t width_, padded_;
  Buffer<T> values_HS_, keys_SH_;
  Buffer<float> key_gradient_HS_, value_gradient_HS_, scores_;
  // A packed second factor is used at once, from one buffer: all of them together do not fit the second-level cache.
  Buffer<T> score_rows_, pairs_, scratch_, columns_, gathered_, shifted_rows_;
  Buffer<float> rows_, distance_rows_, shifted_;
  const int64_t* order_ = nullptr;
  int64_t n_ = 0, b_ = 0, first_ = 0, num_rows_ = 0;
};

at::Tensor empty_like_heads(const at::Tensor& heads_NBXH) {
  const auto size = heads_NBXH.sizes();
  return at::empty({size[1], size[2], size[0], size[3]}, heads_NBXH.options()).permute({2, 0, 1, 3});
}

// The distance keys of all heads as second factors [R, H].
template <typename T>
Buffer<T> packed_distances(const Problem& problem, const at::Tensor& distance_NRH) {
  const int64_t padded = problem.distances.padded();
  Buffer<T> packed(problem.heads * padded * problem.width);
  at::parallel_for(0, problem.heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n)
      pack_rows(head<const T>(distance_NRH, n), problem.distances.count, padded, problem.width,
                packed.data() + n * padded * problem.width);
  });
  return packed;
}

// Adds the lanes' sums [N, B, H, R] up, in the order of lanes.
template <typename T>
void add_lanes(const Problem& problem, Buffer<float>& sums, const at::Tensor& gradient_NRH) {
  const int64_t padded = problem.distances.padded(), size = padded * problem.width;
  at::parallel_for(0, problem.heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      float* total = sums.data() + n * problem.lanes * size;
      for (int64_t b = 1; b < problem.lanes; ++b) add(total + b * size, total, size);
      transpose_floats(total, padded, problem.distances.count, problem.width, head<T>(gradient_NRH, n));
    }
  });
}

// The same of the biases' sums [N, B, 2, H].
template <typename T>
void add_lanes_of_bias(const Problem& problem, Buffer<float>& sums, int64_t which, const at::Tensor& gradient_NH) {
  const int64_t width = problem.width;
  for (int64_t n = 0; n < problem.heads; ++n) {
    float* total = sums.data() + (n * problem.lanes * 2 + which) * width;
    for (int64_t b = 1; b < problem.lanes; ++b) add(total + b * 2 * width, total, width);
    convert(total, gradient_NH.data_ptr<T>() + n * width, width);
  }
}

template <typename T>
void differentiate(const Problem& problem, const Forward& forward, const Bits& other, Gradients& gradients) {
  const Inputs& inputs = forward.inputs;
  const int64_t table = problem.distances.padded() * problem.width;
  Buffer<T> distances;
  Buffer<float> distance_sums, bias_sums(problem.heads * problem.lanes * 2 * problem.width);
  if (inputs.distance_NRH) {
    distances = packed_distances<T>(problem, *inputs.distance_NRH);
    distance_sums.make(problem.heads * problem.lanes * table);
  }
  at::parallel_for(0, problem.heads * problem.lanes, 1, [&](int64_t first, int64_t last) {
    LaneGradients<T> lane(problem, forward, other, gradients);
    for (int64_t task = first; task < last; ++task) {
      const int64_t n = task / problem.lanes;
      const bool has = inputs.distance_NRH.has_value();
      if (has) std::memset(distance_sums.data() + task * table, 0, table * sizeof(float));
      lane.run(n, task % problem.lanes, has ? distances.data() + n * table : nullptr,
               has ? distance_sums.data() + task * table : nullptr, bias_sums.data() + task * 2 * problem.width);
    }
  });
  if (gradients.content_bias_NH) add_lanes_of_bias<T>(problem, bias_sums, 0, *gradients.content_bias_NH);
  if (gradients.distance_bias_NH) add_lanes_of_bias<T>(problem, bias_sums, 1, *gradients.distance_bias_NH);
  if (gradients.distance_NRH) add_lanes<T>(problem, distance_sums, *gradients.distance_NRH);
}

}  // namespace

BackwardResult backward(const at::Tensor& gradient_NBQH, const at::Tensor& weights_NBQS, const at::Tensor& query_NBQH,
                        double scale, const OptionalTensor& content_bias_NH, const OptionalTensor& distance_bias_NH,
                        const at::Tensor& key_NBKH, const at::Tensor& value_NBKH, const OptionalTensor& distance_NRH,
                        const OptionalTensor& other_BQW, const at::Tensor& row_position_BQ,
                        const at::Tensor& row_order_BQ, const at::Tensor& key_position_BK, int64_t highest_distance) {
  const Inputs inputs{query_NBQH, scale, content_bias_NH, distance_bias_NH, key_NBKH, value_NBKH, distance_NRH};
  const Forward forward{inputs.with_plain_rows(), with_plain_rows(gradient_NBQH), weights_NBQS.contiguous()};
  const Problem problem(forward.inputs, row_position_BQ, row_order_BQ, key_position_BK, highest_distance);
  problem.check_heads(gradient_NBQH, problem.rows, problem.width);
  problem.check_heads(weights_NBQS, problem.rows, problem.padded_keys);
  problem.check_bits(other_BQW);
  Gradients gradients{empty_like_heads(query_NBQH), empty_like_heads(key_NBKH), empty_like_heads(value_NBKH)};
  const auto options = query_NBQH.options();
  if (content_bias_NH) gradients.content_bias_NH = at::empty(content_bias_NH->sizes(), options);
  if (distance_bias_NH) gradients.distance_bias_NH = at::empty(distance_bias_NH->sizes(), options);
  if (other_BQW) gradients.document_NBQ2 = at::empty({problem.heads, problem.lanes, problem.rows, 2}, options);
  if (distance_NRH) gradients.distance_NRH = at::empty(distance_NRH->sizes(), options);
  if (problem.type == at::kFloat)
    differentiate<float>(problem, forward, Bits(other_BQW), gradients);
  else
    differentiate<at::BFloat16>(problem, forward, Bits(other_BQW), gradients);
  return {gradients.query_NBQH, gradients.content_bias_NH, gradients.distance_bias_NH, gradients.document_NBQ2,
          gradients.key_NBKH,   gradients.value_NBKH,      gradients.distance_NRH};
}

}  // namespace permcode
