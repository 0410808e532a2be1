#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace mgpu::ops {

// What cuDNN needs a plan of its own for: sequences of one length, or (`tokens` is not 0) at most
// so many sequences and tokens, of any lengths up to `length`.
struct AttentionShape {
  std::int64_t sequences = 0, length = 0;
  std::int64_t tokens = 0;
  bool padded = false;  // cuDNN gets copies, which have other strides than views
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;

  friend auto operator<=>(const AttentionShape&, const AttentionShape&) = default;
};

struct AttentionPlanLimits {
  std::size_t at_once = 8;  // this many shapes get a plan at their first micro-batch
  int often = 8;            // the others at this micro-batch of theirs
  std::size_t most = 64;    // plans; further shapes get none
  std::size_t counted = 4096;
};

// Decides which shapes of micro-batches cuDNN computes and which flash attention. To build a plan
// takes as long as cuDNN saves in several micro-batches of the shape, and PyTorch never frees a
// plan. So the first shapes get one, which is all that most jobs have, then shapes that come often,
// and the number of plans is bounded. With more than `counted` shapes without a plan, their counts
// start again.
class AttentionPlans {
 public:
  explicit AttentionPlans(const AttentionPlanLimits& limits = {}) : limits_(limits) {}

  // Counts one more micro-batch of this shape. Returns whether cuDNN computes it: once true for a
  // shape, always true.
  bool count(const AttentionShape& shape);

  std::size_t plans() const { return plans_.size(); }
  std::size_t counts() const { return counts_.size(); }

 private:
  AttentionPlanLimits limits_;
  std::set<AttentionShape> plans_;
  std::map<AttentionShape, int> counts_;  // of shapes without a plan
};

// What a plan for all sequences at `starts` [sequences + 1] must cover. `model` has the heads.
AttentionShape packed_shape(std::span<const std::int32_t> starts, const AttentionShape& model);
// Whether a plan for `wider` computes `shape`.
bool covers(const AttentionShape& wider, const AttentionShape& shape);
// What a new plan for a shape covers: up to three times the sequences, twice the length and 1.25
// times the tokens, so that few plans serve all micro-batches.
AttentionShape with_reserve(const AttentionShape& shape);

// Decides which plans for several lengths there are.
class PackedShapes {
 public:
  explicit PackedShapes(const AttentionPlanLimits& limits = {}) : plans_(limits) {}

  // Counts one more micro-batch of this shape. Returns the shape of the plan that computes it, or
  // nothing. A plan for at most four times the sequences and twice the tokens is used if there is
  // one; otherwise a new plan, if the limits allow it; otherwise any plan that covers the shape.
  std::optional<AttentionShape> count(const AttentionShape& shape);
  // The plan for this shape, which count() returned, cannot be built: it is not tried again.
  void refuse(const AttentionShape& shape);

 private:
  AttentionPlans plans_;
  std::set<AttentionShape> shapes_;  // with a plan
  std::set<AttentionShape> refused_;
};

// Sequences of one length that is a multiple of this are what cuDNN computes fastest.
inline constexpr std::int64_t kAttentionStep = 64;

// A sequence, or adjacent ones of equal length, that cuDNN computes.
struct CudnnPart {
  std::int64_t begin = 0;     // its first token in the micro-batch
  std::int64_t count = 0;     // sequences
  std::int64_t length = 0;    // of each
  std::int64_t computed = 0;  // with the padding at its end, which no real token sees

  std::int64_t tokens() const { return count * length; }
};

// What computes the sequences of a micro-batch.
struct AttentionDivision {
  std::vector<CudnnPart> cudnn;
  // The other sequences, for flash attention, as if there were no others.
  std::vector<std::int64_t> rest;         // their tokens in the micro-batch
  std::vector<std::int32_t> rest_starts;  // [sequences + 1], or empty if there is no rest
  std::int64_t rest_longest = 0;
};

// Counts a micro-batch with sequences at `starts` [sequences + 1]. Sequences of equal length are
// one part. Of others each long one is, padded to one of eight lengths between two powers of 2, so
// that few plans serve all lengths. `model` has the heads.
AttentionDivision divide_attention(std::span<const std::int32_t> starts,
                                   const AttentionShape& model, AttentionPlans& plans);

}  // namespace mgpu::ops
