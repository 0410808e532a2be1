#include "runtime/kernels/packed_plan.hpp"

#include <ATen/cudnn/Handle.h>
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace mgpu::ops {

// The package would search for CUDA's libraries by name, and refuse a machine that has two versions
// of one. PyTorch has loaded those that are meant.
inline void* loaded_library(const char* name) {
  if (std::strcmp(name, "libcuda.so") == 0) name = "libcuda.so.1";
  return ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
}

}  // namespace mgpu::ops

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define dlopen(name, flags) ::mgpu::ops::loaded_library(name)
#include <cudnn_frontend.h>
#undef dlopen

namespace cudnn_frontend {
void* cudnn_dlhandle = RTLD_DEFAULT;
}

namespace mgpu::ops {
namespace {

namespace fe = cudnn_frontend;
using Tensor = fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor>;
using Operand = PackedOperand;

// The first with fewer heads of keys than of queries in sequences of several lengths, and whose
// workspace then depends on the number of tokens.
constexpr std::size_t kLeastVersion = 90600;

void check(fe::error_t status) {
  if (status.is_bad()) throw std::runtime_error("cuDNN: " + status.get_message());
}

// The layout of the operands.
class Layout {
 public:
  Layout(const AttentionShape& shape, at::ScalarType type) : shape_(shape), type_(type) {}

  void begin(fe::graph::Graph& graph) const {
    graph.set_io_data_type(type_ == at::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  // Lengths or starts.
  TensorPointer numbers(fe::graph::Graph& graph, Operand operand, std::int64_t count) const {
    Tensor tensor;
    tensor.set_uid(static_cast<std::int64_t>(operand) + 1)
        .set_dim({count, 1, 1, 1})
        .set_stride({1, 1, 1, 1})
        .set_data_type(fe::DataType_t::INT32);
    return graph.tensor(tensor);
  }
  TensorPointer lengths(fe::graph::Graph& graph) const {
    return numbers(graph, Operand::lengths, shape_.sequences);
  }
  TensorPointer starts(fe::graph::Graph& graph, Operand operand) const {
    return numbers(graph, operand, shape_.sequences + 1);
  }

  // With `heads` at `row` elements from one token to the next.
  Tensor& set(Tensor& tensor, Operand operand, std::int64_t heads, std::int64_t row,
              const TensorPointer& starts) const {
    return tensor.set_uid(static_cast<std::int64_t>(operand) + 1)
        .set_dim({shape_.sequences, heads, shape_.length, shape_.head_dim})
        .set_stride({row * shape_.length, shape_.head_dim, row, 1})
        .set_ragged_offset(starts);
  }
  Tensor& set_q(Tensor& tensor, Operand operand, const TensorPointer& starts) const {
    return set(tensor, operand, shape_.heads, input_row(), starts);
  }
  Tensor& set_key(Tensor& tensor, Operand operand, const TensorPointer& starts) const {
    return set(tensor, operand, shape_.kv_heads, input_row(), starts);
  }
  Tensor& set_out(Tensor& tensor, Operand operand, const TensorPointer& starts) const {
    return set(tensor, operand, shape_.heads, shape_.heads * shape_.head_dim, starts);
  }
  Tensor& set_key_gradient(Tensor& tensor, Operand operand, const TensorPointer& starts) const {
    return set(tensor, operand, shape_.kv_heads, shape_.kv_heads * shape_.head_dim, starts);
  }
  Tensor& set_stats(Tensor& tensor, const TensorPointer& starts) const {
    return tensor.set_uid(static_cast<std::int64_t>(Operand::stats) + 1)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({shape_.sequences, shape_.heads, shape_.length, 1})
        .set_stride({shape_.heads * shape_.length, 1, shape_.heads, 1})
        .set_ragged_offset(starts);
  }

  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_dim)); }

 private:
  std::int64_t input_row() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }

  AttentionShape shape_;
  at::ScalarType type_;
};

void build(fe::graph::Graph& graph) {
  const auto handle = at::native::getCudnnHandle();
  check(graph.validate());
  check(graph.build_operation_graph(handle));
  check(graph.create_execution_plans({fe::HeurMode_t::A}));
  check(graph.check_support(handle));
  check(graph.build_plans(handle));
}

void build_forward(fe::graph::Graph& graph, const Layout& layout) {
  layout.begin(graph);
  const auto lengths = layout.lengths(graph);
  const auto starts = layout.starts(graph, Operand::input_starts);
  Tensor q, k, v;
  auto [out, stats] = graph.sdpa(graph.tensor(layout.set_q(q, Operand::q, starts)),
                                 graph.tensor(layout.set_key(k, Operand::k, starts)),
                                 graph.tensor(layout.set_key(v, Operand::v, starts)),
                                 fe::graph::SDPA_attributes()
                                     .set_name("attention")
                                     .set_generate_stats(true)
                                     .set_causal_mask(true)
                                     .set_attn_scale(layout.scale())
                                     .set_padding_mask(true)
                                     .set_seq_len_q(lengths)
                                     .set_seq_len_kv(lengths));
  layout.set_out(*out, Operand::out, layout.starts(graph, Operand::out_starts)).set_output(true);
  layout.set_stats(*stats, layout.starts(graph, Operand::stats_starts)).set_output(true);
  build(graph);
}

void build_backward(fe::graph::Graph& graph, const Layout& layout, std::int64_t tokens) {
  layout.begin(graph);
  const auto lengths = layout.lengths(graph);
  const auto starts = layout.starts(graph, Operand::input_starts);
  const auto out_starts = layout.starts(graph, Operand::out_starts);
  const auto key_starts = layout.starts(graph, Operand::key_starts);
  Tensor q, k, v, out, g, stats;
  auto [gq, gk, gv] = graph.sdpa_backward(
      graph.tensor(layout.set_q(q, Operand::q, starts)),
      graph.tensor(layout.set_key(k, Operand::k, starts)),
      graph.tensor(layout.set_key(v, Operand::v, starts)),
      graph.tensor(layout.set_out(out, Operand::out, out_starts)),
      graph.tensor(layout.set_out(g, Operand::out_gradient, out_starts)),
      graph.tensor(layout.set_stats(stats, layout.starts(graph, Operand::stats_starts))),
      fe::graph::SDPA_backward_attributes()
          .set_name("attention_backward")
          .set_causal_mask(true)
          .set_attn_scale(layout.scale())
          .set_padding_mask(true)
          .set_seq_len_q(lengths)
          .set_seq_len_kv(lengths)
          .set_max_total_seq_len_q(tokens)
          .set_max_total_seq_len_kv(tokens));
  layout.set_q(*gq, Operand::q_gradient, starts).set_output(true);
  layout.set_key_gradient(*gk, Operand::k_gradient, key_starts).set_output(true);
  layout.set_key_gradient(*gv, Operand::v_gradient, key_starts).set_output(true);
  build(graph);
}

class Plan : public PackedPlan {
 public:
  Plan(const AttentionShape& shape, at::ScalarType type) : shape_(shape) {
    const Layout layout(shape, type);
    build_forward(forward_, layout);
    build_backward(backward_, layout, shape.tokens);
  }

  const AttentionShape& shape() const override { return shape_; }
  std::int64_t forward_workspace() const override { return forward_.get_workspace_size(); }
  std::int64_t backward_workspace() const override { return backward_.get_workspace_size(); }
  void forward(const PackedOperands& operands, void* workspace) const override {
    run(forward_, operands, workspace);
  }
  void backward(const PackedOperands& operands, void* workspace) const override {
    run(backward_, operands, workspace);
  }

 private:
  static void run(const fe::graph::Graph& graph, const PackedOperands& operands, void* workspace) {
    std::unordered_map<std::int64_t, void*> pointers;
    for (const auto& [operand, pointer] : operands)
      pointers.emplace(static_cast<std::int64_t>(operand) + 1, pointer);
    check(graph.execute(at::native::getCudnnHandle(), pointers, workspace));
  }

  AttentionShape shape_;
  fe::graph::Graph forward_, backward_;
};

}  // namespace

bool has_packed_plans() {
  static const bool has = dlsym(RTLD_DEFAULT, "cudnnBackendExecute") != nullptr &&
                          fe::detail::get_backend_version() >= kLeastVersion;
  return has;
}

std::shared_ptr<const PackedPlan> build_packed_plan(const AttentionShape& shape,
                                                    at::ScalarType type) {
  return std::make_shared<Plan>(shape, type);
}

}  // namespace mgpu::ops
