#include "runtime/rl/weight_sync.hpp"

#include <ATen/ops/cat.h>

#include <utility>
#include <vector>

#include "runtime/model/layout.hpp"
#include "runtime/train/weights_io.hpp"
#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;

namespace {

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.max_position = 64;
  config.tied = false;
  return config;
}

// Keeps the sent packs.
class Recorder : public servers::Transport {
 public:
  explicit Recorder(std::vector<at::Tensor>& packs) : packs_(packs) {}
  void join(const CheckServer&) override {}
  void broadcast(const at::Tensor& bytes, const CheckServer&) override {
    packs_.push_back(bytes.clone());
  }

 private:
  std::vector<at::Tensor>& packs_;
};

}  // namespace

TEST_CASE("all weights are sent with the announced names and in the announced order", "[rl]") {
  const auto config = small_config();
  const auto comm = comm::join(rendezvous::Contract{}, {.backend = comm::Backend::gloo});
  parallel::ShardOptions options;
  options.dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const bool fp16 = options.dtype == at::kHalf;  // anything else is sent in bf16
  const auto dtype = fp16 ? at::kHalf : at::kBFloat16;
  parallel::Shards shards(config, model::lay_out(config, {}), options, *comm);
  train::draw_weights(shards, .1, 7);

  const HttpServer server([](const HttpRequest&) { return HttpResponse{}; });
  const auto client = client_of(server);
  std::vector<at::Tensor> packs;
  const auto sync = rl::make_transfer_sync({client, "M", {.address = "127.0.0.1"}},
                                           std::make_unique<Recorder>(packs), shards, *comm);
  CHECK(sync->send(3) == "M");

  json info;
  for (const auto& request : server.requests())
    if (request.path == "/update_weights") info = json::parse(request.body).at("update_info");
  const auto& names = info.at("names");
  CHECK(names.size() == 3 + 9 * 2);  // not fused, as in the files
  CHECK(std::ranges::count(names, "model.layers.1.self_attn.q_proj.weight") == 1);
  const auto sent = at::cat(packs).view(dtype);
  std::int64_t begin = 0;
  std::size_t number = 0;
  shards.visit(true, [&](const std::string& name, const at::Tensor& value) {
    CHECK(names.at(number) == name);
    CHECK(info.at("shapes").at(number) == json(value.sizes().vec()));
    CHECK(info.at("dtype_names").at(number) == (fp16 ? "float16" : "bfloat16"));
    const auto wanted = value.to(dtype).view({-1});
    CHECK(sent.narrow(0, begin, wanted.numel()).equal(wanted));
    begin += wanted.numel();
    ++number;
  });
  CHECK(number == names.size());
  CHECK(begin == sent.numel());
}
