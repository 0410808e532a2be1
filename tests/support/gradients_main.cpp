// Writes the logits of every token, the loss and the gradient of every weight, for a model and rows
// of token ids and target tokens. Tests compare them with those of transformers.
//   gradients_of MODEL ROWS.jsonl OUTPUT fp32|bf16|fp16      on a GPU if one is visible
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/to_device.hpp"
#include "runtime/train/weights_io.hpp"

namespace {

using namespace mgpu;

constexpr double kLossScale = 1024;  // of test_gradients.py

data::Batch read_rows(const std::string& file) {
  data::Batch batch;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    const std::vector<std::int32_t> ids = row.at("input_ids"), labels = row.at("labels");
    batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.longest = std::max(batch.longest, static_cast<std::int32_t>(ids.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      batch.tokens.push_back(ids[i]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.targets.push_back(i + 1 < ids.size() ? labels[i + 1] : data::kNoTarget);
      batch.target_tokens += batch.targets.back() != data::kNoTarget ? 1 : 0;
    }
  }
  batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  return batch;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::runtime_error("MODEL ROWS OUTPUT fp32|bf16|fp16");
  const std::string type = argv[4];
  const auto dtype = type == "bf16" ? at::kBFloat16 : type == "fp16" ? at::kHalf : at::kFloat;
  const double loss_scale = type == "fp16" ? kLossScale : 1;
  const auto device = train::take_device(0, train::visible_gpus() > 0);
  train::TrainConfig config;
  config.model_name_or_path = argv[1];
  const auto source = train::open_model(config);
  const auto comm = comm::join({}, {});
  parallel::ShardOptions shard_options;
  shard_options.device = device;
  shard_options.dtype = dtype;
  parallel::Shards shards(source.config, model::lay_out(source.config), shard_options, *comm);
  train::load_weights(shards, *source.weights, source.config, source.vocab_on_disk);
  model::TransformerOptions options;
  options.device = device;
  options.dtype = dtype;
  model::Transformer transformer(source.config, options);

  const auto rows = read_rows(argv[2]);
  const auto batch = train::to_device(rows, device);
  std::vector<std::pair<std::string, at::Tensor>> results;
  results.emplace_back("logits", transformer.logits(batch, shards));
  shards.begin_micro_batch(true, true);
  const double scale = 1.0 / static_cast<double>(rows.target_tokens);
  const auto sums = transformer.train(batch, scale * loss_scale, 1, shards);
  shards.finish_gradients();
  results.emplace_back("loss", sums.loss.mul(scale).reshape({1}));
  for (const auto& own : shards.owned())
    results.emplace_back(own.fragment.name, own.grad.div(loss_scale));

  std::vector<checkpoint::TensorPlan> plan;
  for (const auto& [name, value] : results)
    plan.push_back({name, checkpoint::DType::f32, value.sizes().vec()});
  checkpoint::WeightsWriter writer(argv[3], plan);
  for (const auto& [name, value] : results) {
    const auto host = value.to(at::kCPU).to(at::kFloat).contiguous();
    writer.write(name, std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                                 static_cast<std::size_t>(host.nbytes())));
  }
  writer.finish();
} catch (const std::exception& e) {
  fmt::print(stderr, "gradients_of: {}\n", e.what());
  return 1;
}
