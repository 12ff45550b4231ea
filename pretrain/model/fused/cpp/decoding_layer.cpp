#include "decoding_layer.h"

#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "activations.h"
#include "decoding_attention.h"

namespace permcode {
namespace {

template <typename T>
const T* data(const at::Tensor& tensor) {
  return tensor.const_data_ptr<T>();
}

template <typename T>
void normalise(const float* row, const at::Tensor& norm_2D, double epsilon, T* to) {
  const int64_t dim = norm_2D.size(1);
  Floats total{}, squares{};
  for (int64_t d = 0; d < dim; d += kLanes) total += load(row + d);
  const Floats mean = all(sum(total) / dim);
  for (int64_t d = 0; d < dim; d += kLanes) squares += (load(row + d) - mean) * (load(row + d) - mean);
  const Floats scale = all(1.0f / std::sqrt(sum(squares) / dim + float(epsilon)));
  const float *weight = data<float>(norm_2D), *bias = weight + dim;
  for (int64_t d = 0; d < dim; d += kLanes)
    store((load(row + d) - mean) * scale * load(weight + d) + load(bias + d), to + d);
}

// As it is read again if it is kept as a T.
template <typename T>
Floats rounded(Floats value) {
  T kept[kLanes];
  store(value, kept);
  return load(kept);
}

// A pass through one layer. T is the type of the matrices; what enters a product and what comes out of it is rounded to
// it, as PyTorch does.
template <typename T>
struct Pass {
  const DecodingLayer& layer;
  int64_t num_rows, dim;

  template <typename Finish>
  void multiply(const Buffer<T>& rows, const FrozenLinear& linear, const Finish& finish) const {
    multiply_frozen(rows.data(), num_rows, layer.max_few_rows, linear, finish);
  }

  // Rows as the first product of a sub-layer reads them.
  Buffer<T> entering(const float* rows, const at::Tensor& norm_2D) const {
    Buffer<T> entered(num_rows * dim);
    if (!layer.pre_norm) convert(rows, entered.data(), num_rows * dim);
    for (int64_t x = 0; layer.pre_norm && x < num_rows; ++x)
      normalise(rows + x * dim, norm_2D, layer.epsilon, entered.data() + x * dim);
    return entered;
  }

  // Queries, keys and values, [X, 3, N, H].
  Buffer<float> projected(const float* rows) const {
    const int64_t outputs = layer.projection.outputs();
    Buffer<float> projected(num_rows * outputs);
    multiply(entering(rows, layer.attention_norm_2D), layer.projection, [&](int64_t x, int64_t e, Floats product) {
      store(rounded<T>(product), projected.data() + x * outputs + e);
    });
    return projected;
  }

  // The activations between the two products of the network, [X, F].
  Buffer<T> middle(const Buffer<T>& entered) const {
    if (layer.activation == "swiglu") return gated(entered);
    return layer.activation == "relu" ? activated(entered, relu) : activated(entered, gelu);
  }

  template <typename Activation>
  Buffer<T> activated(const Buffer<T>& entered, const Activation& activation) const {
    const int64_t ffn_dim = layer.up.outputs();
    Buffer<T> middle(num_rows * ffn_dim);
    multiply(entered, layer.up, [&](int64_t x, int64_t f, Floats product) {
      store(activation(product), middle.data() + x * ffn_dim + f);
    });
    return middle;
  }

  Buffer<T> gated(const Buffer<T>& entered) const {
    const int64_t ffn_dim = layer.up.outputs();
    Buffer<T> middle(num_rows * ffn_dim);
    multiply(entered, *layer.gate, [&](int64_t x, int64_t f, Floats product) {
      store(silu(rounded<T>(product)), middle.data() + x * ffn_dim + f);
    });
    multiply(entered, layer.up, [&](int64_t x, int64_t f, Floats product) {
      T* to = middle.data() + x * ffn_dim + f;
      store(load(to) * rounded<T>(product), to);
    });
    return middle;
  }

  // The end of a sub-layer: rows grow by its last product.
  void add(const Buffer<T>& from, const FrozenLinear& linear, const at::Tensor& norm_2D, float* rows) const {
    multiply(from, linear, [&](int64_t x, int64_t d, Floats product) {
      store(load(rows + x * dim + d) + rounded<T>(product), rows + x * dim + d);
    });
    if (layer.pre_norm) return;
    for (int64_t x = 0; x < num_rows; ++x) normalise(rows + x * dim, norm_2D, layer.epsilon, rows + x * dim);
  }
};

// Keys and values of the first `num_content` rows of every lane to their columns.
void write(const Buffer<float>& projected_BQ3NH, int64_t num_rows, int64_t num_content, const DecodingKeys& keys) {
  const int64_t heads = keys.key_NBCH.size(0), lanes = keys.key_NBCH.size(1), width = keys.key_NBCH.size(3);
  for (int64_t b = 0; b < lanes; ++b)
    for (int64_t t = 0; t < num_content; ++t)
      for (int64_t n = 0; n < heads; ++n) {
        const float* key = projected_BQ3NH.data() + (((b * num_rows + t) * 3 + 1) * heads + n) * width;
        std::copy_n(key, width, head<float>(keys.key_NBCH, n, b).row(keys.column(b, t)));
        std::copy_n(key + heads * width, width, head<float>(keys.value_NBCH, n, b).row(keys.column(b, t)));
      }
}

// The attention output of the last `num_passed` of `num_rows` rows of every lane, [B, P, N, H].
template <typename T>
Buffer<T> gathered(const Buffer<float>& projected_BQ3NH, int64_t num_rows, int64_t num_passed,
                   const QueryBiases& biases, const DecodingKeys& keys) {
  const int64_t heads = keys.key_NBCH.size(0), lanes = keys.key_NBCH.size(1), width = keys.key_NBCH.size(3);
  const int64_t first_row = num_rows - num_passed;
  Buffer<T> gathered(lanes * num_passed * heads * width);
  at::parallel_for(0, lanes * heads, 1, [&](int64_t first, int64_t last) {
    HeadAttention<T> attention(biases, keys);
    for (int64_t task = first; task < last; ++task) {
      const int64_t b = task / heads, n = task % heads;
      const float* queries = projected_BQ3NH.data() + ((b * num_rows + first_row) * 3 * heads + n) * width;
      attention.gather(n, b, first_row, num_passed, {queries, 3 * heads * width},
                       {gathered.data() + (b * num_passed * heads + n) * width, heads * width});
    }
  });
  return gathered;
}

template <typename T>
at::Tensor run(const DecodingLayer& layer, const at::Tensor& rows_BQD, int64_t num_content, int64_t num_passed,
               const DecodingKeys& keys) {
  const int64_t lanes = rows_BQD.size(0), num_rows = rows_BQD.size(1), dim = rows_BQD.size(2);
  const auto projected = Pass<T>{layer, lanes * num_rows, dim}.projected(data<float>(rows_BQD));
  write(projected, num_rows, num_content, keys);
  at::Tensor passed_BPD = rows_BQD.narrow(1, num_rows - num_passed, num_passed).clone(at::MemoryFormat::Contiguous);
  if (num_passed == 0) return passed_BPD;
  const QueryBiases biases{layer.distance_NH, layer.document_NH, layer.other_document_NH};
  const Pass<T> pass{layer, lanes * num_passed, dim};
  float* rows = passed_BPD.data_ptr<float>();
  pass.add(gathered<T>(projected, num_rows, num_passed, biases, keys), layer.output, layer.attention_norm_2D, rows);
  pass.add(pass.middle(pass.entering(rows, layer.feed_forward_norm_2D)), layer.down, layer.feed_forward_norm_2D, rows);
  return passed_BPD;
}

void check(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef shape) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous() && tensor.sizes() == shape, "wanted ", type, shape,
              " without gaps, got ", tensor.scalar_type(), tensor.sizes());
}

void check(const OptionalTensor& tensor, at::ScalarType type, at::IntArrayRef shape) {
  if (tensor) check(*tensor, type, shape);
}

void check(const FrozenLinear& linear, at::ScalarType type, int64_t outputs, int64_t inputs) {
  check(linear.weight_OI, type, {outputs, inputs});
  check(linear.bias_O, type, {outputs});
}

void check_shapes(const DecodingLayer& layer) {
  const auto type = layer.projection.weight_OI.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "weights in float32 or bfloat16");
  const int64_t dim = layer.output.outputs(), inner = layer.output.inputs(), ffn_dim = layer.up.outputs();
  const int64_t width = inner / layer.num_heads;
  TORCH_CHECK(dim % 32 == 0 && inner % 32 == 0 && ffn_dim % 32 == 0, "D, I and F in multiples of 32");
  TORCH_CHECK(width % kLanes == 0 && inner % layer.num_heads == 0, "H in multiples of 16");
  check(layer.projection, type, 3 * inner, dim);
  check(layer.output, type, dim, inner);
  check(layer.up, type, ffn_dim, dim);
  check(layer.down, type, dim, ffn_dim);
  if (layer.gate) check(*layer.gate, type, ffn_dim, dim);
  check(layer.attention_norm_2D, at::kFloat, {2, dim});
  check(layer.feed_forward_norm_2D, at::kFloat, {2, dim});
  for (const auto& vector_NH : {layer.distance_NH, layer.document_NH, layer.other_document_NH})
    check(vector_NH, at::kFloat, {layer.num_heads, width});
  const bool gated = layer.activation == "swiglu";
  TORCH_CHECK(gated || layer.activation == "gelu" || layer.activation == "relu", "no activation ", layer.activation);
  TORCH_CHECK(layer.gate.has_value() == gated, "a gate for swiglu and for nothing else");
}

// Which keys a row sees, or which are of another document: [B, 1 or Q, K].
void check_pairs(const OptionalTensor& pairs_BQK, at::ScalarType type, const at::Tensor& rows_BQD, int64_t num_keys) {
  if (!pairs_BQK) return;
  const int64_t rows = pairs_BQK->size(1);
  TORCH_CHECK(pairs_BQK->scalar_type() == type && pairs_BQK->size(0) == rows_BQD.size(0) &&
                  (rows == 1 || rows == rows_BQD.size(1)) && pairs_BQK->size(2) == num_keys &&
                  (num_keys < 2 || pairs_BQK->stride(2) == 1),
              "a bit for every row and key");
}

// The lowest and the highest column of rows, and the highest one of content.
std::tuple<int64_t, int64_t, int64_t> bounds(const at::Tensor& column_BQ, int64_t num_content) {
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = -1, written = -1;
  const int64_t* column = data<int64_t>(column_BQ);
  for (int64_t x = 0; x < column_BQ.numel(); ++x) {
    lowest = std::min(lowest, column[x]);
    highest = std::max(highest, column[x]);
    if (x % column_BQ.size(1) < num_content) written = std::max(written, column[x]);
  }
  return {lowest, highest, written};
}

OptionalTensor find(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? OptionalTensor() : found->value();
}

FrozenLinear find_linear(const NamedTensors& tensors, const std::string& name) {
  const auto part = [&](const char* of_it) { return find(tensors, name + of_it); };
  return {tensors.at(name + ".weight_OI"), part(".packed"), part(".bias_O")};
}

}  // namespace

DecodingLayer::DecodingLayer(int64_t num_heads, bool pre_norm, double epsilon, std::string activation,
                             int64_t max_few_rows, const NamedTensors& tensors)
    : num_heads(num_heads), pre_norm(pre_norm), epsilon(epsilon), activation(std::move(activation)),
      max_few_rows(max_few_rows), projection(find_linear(tensors, "projection")),
      output(find_linear(tensors, "output")), up(find_linear(tensors, "up")), down(find_linear(tensors, "down")),
      attention_norm_2D(tensors.at("attention_norm_2D")), feed_forward_norm_2D(tensors.at("feed_forward_norm_2D")),
      distance_NH(find(tensors, "distance_NH")), document_NH(find(tensors, "document_NH")),
      other_document_NH(find(tensors, "other_document_NH")) {
  if (tensors.contains("gate.weight_OI")) gate = find_linear(tensors, "gate");
  check_shapes(*this);
}

bool DecodingLayer::takes_many_rows() const {
  return projection.packed && output.packed && up.packed && down.packed && (!gate || gate->packed);
}

at::Tensor DecodingLayer::advance(const at::Tensor& rows_BQD, int64_t num_content, int64_t num_passed,
                                  int64_t first_column, const at::Tensor& key_NBCH, const at::Tensor& value_NBCH,
                                  const OptionalTensor& distance_NRH, int64_t num_keys, int64_t highest_distance,
                                  const OptionalTensor& column_BQ, const OptionalTensor& hidden_BQK,
                                  const OptionalTensor& other_BQK) const {
  const int64_t lanes = rows_BQD.size(0), num_rows = rows_BQD.size(1), columns = key_NBCH.size(2);
  const int64_t width = output.inputs() / num_heads, num_distances = distance_NRH ? distance_NRH->size(1) : 0;
  check(rows_BQD, at::kFloat, {lanes, num_rows, output.outputs()});
  check(key_NBCH, at::kFloat, {num_heads, lanes, columns, width});
  check(value_NBCH, at::kFloat, {num_heads, lanes, columns, width});
  TORCH_CHECK(lanes * num_rows <= max_few_rows || takes_many_rows(), "weights in oneDNN's layout for so many rows");
  TORCH_CHECK(0 <= num_passed && num_passed <= num_rows, "rows that are passed on");
  TORCH_CHECK(0 <= num_content && num_content <= num_rows, "rows of content");
  int64_t lowest = first_column, highest = first_column + num_rows - 1, written = first_column + num_content - 1;
  if (column_BQ) {
    check(*column_BQ, at::kLong, {lanes, num_rows});
    std::tie(lowest, highest, written) = bounds(*column_BQ, num_content);
  }
  TORCH_CHECK(0 <= lowest && written < columns, "columns of the cache");
  TORCH_CHECK(0 <= num_keys && num_keys <= columns, "keys in the cache");
  TORCH_CHECK(distance_NRH.has_value() == distance_NH.has_value(), "distances have keys and queries");
  if (distance_NRH) {
    TORCH_CHECK(distance_NRH->scalar_type() == at::kFloat && distance_NRH->size(0) == num_heads &&
                    distance_NRH->size(2) == width && distance_NRH->stride(2) == 1,
                "a key [H] of every distance in rows");
    TORCH_CHECK(highest <= highest_distance && highest_distance - lowest + num_keys <= num_distances,
                "distances in the table");
  }
  check_pairs(hidden_BQK, projection.weight_OI.scalar_type(), rows_BQD, num_keys);
  check_pairs(other_BQK, at::kBool, rows_BQD, num_keys);
  TORCH_CHECK(!other_BQK || (document_NH && other_document_NH), "documents need queries and a key");
  const DecodingKeys keys{key_NBCH,         value_NBCH, distance_NRH, num_keys, first_column,
                          highest_distance, column_BQ,  hidden_BQK,   other_BQK};
  return projection.weight_OI.scalar_type() == at::kFloat
             ? run<float>(*this, rows_BQD, num_content, num_passed, keys)
             : run<at::BFloat16>(*this, rows_BQD, num_content, num_passed, keys);
}

bool DecodingLayers::takes_many_rows() const {
  return std::all_of(layers.begin(), layers.end(), [](const auto& layer) { return layer->takes_many_rows(); });
}

at::Tensor DecodingLayers::advance(at::Tensor rows_BQD, int64_t num_content, int64_t num_passed, int64_t first_column,
                                   const std::vector<at::Tensor>& key_NBCH, const std::vector<at::Tensor>& value_NBCH,
                                   const std::vector<at::Tensor>& distance_NRH, int64_t num_keys,
                                   int64_t highest_distance, const OptionalTensor& column_BQ,
                                   const OptionalTensor& hidden_BQK, const OptionalTensor& other_BQK) const {
  const size_t count = layers.size();
  TORCH_CHECK(key_NBCH.size() == count && value_NBCH.size() == count, "a cache for each layer");
  TORCH_CHECK(distance_NRH.empty() || distance_NRH.size() == count, "distances for each layer or for none");
  for (size_t l = 0; l < count; ++l) {
    const OptionalTensor distances = distance_NRH.empty() ? OptionalTensor() : distance_NRH[l];
    rows_BQD = layers[l]->advance(rows_BQD, num_content, l + 1 < count ? rows_BQD.size(1) : num_passed, first_column,
                                  key_NBCH[l], value_NBCH[l], distances, num_keys, highest_distance, column_BQ,
                                  hidden_BQK, other_BQK);
  }
  return rows_BQD;
}

}  // namespace permcode

TORCH_LIBRARY_FRAGMENT(permcode_attention, library) {
  library.class_<permcode::DecodingLayer>("DecodingLayer")
      .def(torch::init<int64_t, bool, double, std::string, int64_t, const permcode::NamedTensors&>());
  library.class_<permcode::DecodingLayers>("DecodingLayers")
      .def(torch::init<permcode::DecodingLayers::Layers>())
      .def("takes_many_rows", &permcode::DecodingLayers::takes_many_rows)
      .def("advance", &permcode::DecodingLayers::advance);
}
