// Which keys each row sees, a bit per pair: computed once for all layers and heads.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "layout.h"
#include "operators.h"

namespace permcode {
namespace {

// Words [B, Q, W] whose bits are test(lane, row of all lanes, key); the bits after the last key are 0.
template <typename Test>
at::Tensor bits(int64_t lanes, int64_t rows, int64_t keys, Test test) {
  const int64_t width = padded_keys_of(keys) / kLanes;
  at::Tensor made = at::empty({lanes, rows, width}, at::kShort);
  int16_t* out = made.data_ptr<int16_t>();
  at::parallel_for(0, lanes * rows, kBlockRows, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      for (int64_t word = 0; word < width; ++word) {
        uint16_t packed = 0;
        for (int64_t bit = 0; bit < std::min(kLanes, keys - word * kLanes); ++bit)
          packed |= uint16_t(test(row / rows, row, word * kLanes + bit)) << bit;
        out[row * width + word] = static_cast<int16_t>(packed);
      }
  });
  return made;
}

}  // namespace

at::Tensor visible(const at::Tensor& bound_BQ, const at::Tensor& row_group_BQ, const at::Tensor& rank_BK,
                   const at::Tensor& key_group_BK, int64_t unfilled_group) {
  const at::Tensor bounds = bound_BQ.contiguous(), row_groups = row_group_BQ.contiguous();
  const at::Tensor ranks = rank_BK.contiguous(), key_groups = key_group_BK.contiguous();
  TORCH_CHECK(bounds.sizes().equals(row_groups.sizes()) && ranks.sizes().equals(key_groups.sizes()) &&
                  bounds.dim() == 2 && ranks.dim() == 2 && bounds.size(0) == ranks.size(0),
              "bounds, ranks and groups of different shapes");
  const int64_t *bound = bounds.data_ptr<int64_t>(), *row_group = row_groups.data_ptr<int64_t>();
  const int64_t *rank = ranks.data_ptr<int64_t>(), *key_group = key_groups.data_ptr<int64_t>();
  const int64_t keys = ranks.size(1);
  return bits(bounds.size(0), bounds.size(1), keys, [=](int64_t lane, int64_t index, int64_t key) {
    const int64_t group = key_group[lane * keys + key];
    return (group == row_group[index]) & (group != unfilled_group) & (rank[lane * keys + key] < bound[index]);
  });
}

at::Tensor different(const at::Tensor& row_BQ, const at::Tensor& key_BK) {
  const at::Tensor rows = row_BQ.contiguous(), keys = key_BK.contiguous();
  TORCH_CHECK(rows.dim() == 2 && keys.dim() == 2 && rows.size(0) == keys.size(0), "documents of different lanes");
  const int64_t *row = rows.data_ptr<int64_t>(), *key_of = keys.data_ptr<int64_t>();
  const int64_t num_keys = keys.size(1);
  return bits(rows.size(0), rows.size(1), num_keys, [=](int64_t lane, int64_t index, int64_t key) {
    return key_of[lane * num_keys + key] != row[index];
  });
}

}  // namespace permcode
