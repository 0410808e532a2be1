#include "runtime/train/training_state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <filesystem>

#include "runtime/optim/adamw.hpp"
#include "runtime/train/weights_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::train;
using at::Tensor;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;
using ops::Moment;

namespace {

constexpr std::int64_t kWhole = 10000;

using Tensors = std::vector<std::pair<std::string, Tensor>>;

// Writes a training state of one file.
void write(const TempDir& dir, const Tensors& tensors) {
  std::vector<checkpoint::TensorPlan> plan;
  for (const auto& [name, tensor] : tensors)
    plan.push_back({name, dtype_of(tensor.scalar_type()), {tensor.numel()}});
  std::filesystem::create_directories(dir.root() / "training_state");
  checkpoint::SafetensorsWriter writer(dir.path("training_state/rank-00000-of-00001.safetensors"),
                                       plan);
  for (const auto& [name, tensor] : tensors)
    writer.write(name, std::span(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                 static_cast<std::size_t>(tensor.nbytes())));
  writer.finish();
}

Moment coded(const Tensor& values, std::int64_t begin, bool first) {
  const auto lead = begin % ops::kMomentBlock;
  const auto scales = ops::block_scales(values, lead);
  Moment moment{at::zeros({values.numel()}, at::kByte), at::zeros_like(scales),
                first ? optim::first_moment_table(at::kCPU) : optim::second_moment_table(at::kCPU),
                lead};
  ops::encode_(moment, values, scales);
  return moment;
}

// A rank's part [begin, begin + size) of a tensor, and an optimizer over it.
struct Rank {
  Tensor value, grad;
  std::vector<parallel::OwnedFragment> owned;
  optim::AdamW optimizer;

  Rank(std::int64_t begin, std::int64_t size, optim::Moments moments = optim::Moments::eight_bit)
      : value(at::zeros({size})),
        grad(at::zeros({size})),
        owned{{{.name = "w", .tensor_begin = begin, .size = size, .whole = kWhole}, value, grad}},
        optimizer(owned, size, {.moments = moments}) {}

  const Moment& first() { return optimizer.states().front().at("first"); }
  const Moment& second() { return optimizer.states().front().at("second"); }
};

struct Drawn {
  Tensor master, first, second;
};

Drawn draw() {
  at::manual_seed(11);
  return {at::randn({kWhole}), at::randn({kWhole}), at::randn({kWhole}).square()};
}

// The tensors that two ranks save if they own [0, cut) and [cut, end).
Tensors saved_by_two(const Drawn& drawn, std::int64_t cut) {
  Tensors tensors;
  for (const auto& [begin, size] :
       {std::pair{std::int64_t{0}, cut}, std::pair{cut, kWhole - cut}}) {
    const auto part = [&, from = begin, n = size](const Tensor& t) { return t.narrow(0, from, n); };
    const auto first = coded(part(drawn.first), begin, true);
    const auto second = coded(part(drawn.second), begin, false);
    tensors.emplace_back(fmt::format("master/w@{}", begin), part(drawn.master));
    tensors.emplace_back(fmt::format("first/w@{}", begin), first.values);
    tensors.emplace_back(fmt::format("first_scales/w@{}", begin), first.scales);
    tensors.emplace_back(fmt::format("second/w@{}", begin), second.values);
    tensors.emplace_back(fmt::format("second_scales/w@{}", begin), second.scales);
  }
  return tensors;
}

}  // namespace

TEST_CASE("codes are restored bit for bit where blocks were not cut", "[training_state]") {
  const TempDir dir(TempDir::in_memory());
  const auto drawn = draw();
  const auto tensors = saved_by_two(drawn, 5120);
  write(dir, tensors);
  SECTION("with the same number of ranks") {
    Rank rank(5120, kWhole - 5120);
    read_training_state(dir.root(), rank.optimizer);
    CHECK(at::equal(rank.first().values, tensors[6].second));
    CHECK(at::equal(rank.first().scales, tensors[7].second));
    CHECK(at::equal(rank.second().values, tensors[8].second));
    CHECK(at::equal(rank.second().scales, tensors[9].second));
  }
  SECTION("with one rank") {
    Rank rank(0, kWhole);
    read_training_state(dir.root(), rank.optimizer);
    const auto whole = coded(drawn.first, 0, true);
    CHECK(at::equal(rank.first().values, whole.values));
    CHECK(at::equal(rank.first().scales, whole.scales));
    CHECK(at::equal(rank.value, drawn.master));
  }
  SECTION("and to the same values in parts of a block") {
    const auto whole = ops::decode(coded(drawn.second, 0, false));
    const auto [begin, size] = GENERATE(std::pair{64, 3000}, std::pair{5184, 64});
    Rank rank(begin, size);
    read_training_state(dir.root(), rank.optimizer);
    CHECK(at::equal(ops::decode(rank.second()), whole.narrow(0, begin, size)));
  }
}

TEST_CASE("a block that was cut is rounded once more, to its larger scale", "[training_state]") {
  const TempDir dir(TempDir::in_memory());
  const auto drawn = draw();
  const std::int64_t cut = 5184;  // 64 elements of a block, then 192
  write(dir, saved_by_two(drawn, cut));
  Rank rank(0, kWhole);
  read_training_state(dir.root(), rank.optimizer);
  const auto once = coded(drawn.first, 0, true);
  const auto block = cut / ops::kMomentBlock;
  const auto begin = block * ops::kMomentBlock;
  CHECK(at::equal(rank.first().values.narrow(0, 0, begin), once.values.narrow(0, 0, begin)));
  CHECK(at::equal(rank.first().scales, once.scales));
  const auto apart = (ops::decode(rank.first()) - drawn.first).abs().narrow(0, begin, 256);
  CHECK(apart.max().item<float>() < 0.016F * once.scales[block].item<float>());
}

TEST_CASE("moments are converted between fp32 and 8 bits", "[training_state]") {
  const TempDir dir(TempDir::in_memory());
  const auto drawn = draw();
  SECTION("to 8 bits: rounded once") {
    write(dir,
          {{"master/w@0", drawn.master}, {"first/w@0", drawn.first}, {"second/w@0", drawn.second}});
    Rank rank(64, 5000);
    read_training_state(dir.root(), rank.optimizer);
    const auto once = coded(drawn.first.narrow(0, 64, 5000), 64, true);
    CHECK(at::equal(rank.first().values, once.values));
    CHECK(at::equal(rank.first().scales, once.scales));
  }
  SECTION("to fp32: decoded") {
    write(dir, saved_by_two(drawn, 5120));
    Rank rank(64, 5000, optim::Moments::fp32);
    read_training_state(dir.root(), rank.optimizer);
    const auto decoded = ops::decode(coded(drawn.second, 0, false)).narrow(0, 64, 5000);
    CHECK(at::equal(rank.second().values, decoded));
  }
}

TEST_CASE("codes without matching scales are rejected by name", "[training_state]") {
  const TempDir dir(TempDir::in_memory());
  auto tensors = saved_by_two(draw(), 5120);
  SECTION("none") {
    tensors.erase(tensors.begin() + 2);
  }
  SECTION("too few") {
    tensors[2].second = tensors[2].second.narrow(0, 0, 19);
  }
  SECTION("of another type") {
    tensors[2].second = tensors[2].second.to(at::kBFloat16);
  }
  write(dir, tensors);
  Rank rank(0, kWhole);
  CHECK_THROWS_WITH(read_training_state(dir.root(), rank.optimizer),
                    Contains("first/w@0 has no matching scales"));
}

TEST_CASE("missing elements are reported with their tensor", "[training_state]") {
  const TempDir dir(TempDir::in_memory());
  auto tensors = saved_by_two(draw(), 5120);
  tensors.erase(tensors.begin() + 8, tensors.end());
  write(dir, tensors);
  Rank rank(5000, 1000);
  CHECK_THROWS_WITH(read_training_state(dir.root(), rank.optimizer),
                    Contains("second of w has 120 of the 1000 elements from 5000 on"));
}

TEST_CASE("any optimizer's state is restored by its names", "[training_state]") {
  // Keeps master weights and one vector that AdamW does not have.
  class Momentum : public optim::Optimizer {
   public:
    explicit Momentum(std::vector<parallel::OwnedFragment>& owned) {
      const auto size = owned.front().fragment.size;
      states_.push_back({&owned.front(),
                         {{"master", Moment{owned.front().value, {}, {}, 0}},
                          {"momentum", Moment{at::zeros({size}, at::kBFloat16), {}, {}, 0}}}});
    }
    void begin_step(const optim::StepSettings&) override {}
    void update(int, const optim::StepSettings&) override {}
    Tensor squared_gradient_norm() const override { return at::zeros({}); }
    std::int64_t steps_taken() const override { return 0; }
    void set_steps_taken(std::int64_t) override {}
    const std::vector<optim::FragmentState>& states() const override { return states_; }
    void use_loaded_state() override { ++loaded; }
    std::int64_t state_bytes() const override { return 0; }
    int loaded = 0;

   private:
    std::vector<optim::FragmentState> states_;
  };
  const TempDir dir(TempDir::in_memory());
  const auto drawn = draw();
  write(dir, {{"master/w@0", drawn.master}, {"momentum/w@0", drawn.first}});
  Rank rank(64, 5000);
  Momentum optimizer(rank.owned);
  read_training_state(dir.root(), optimizer);
  CHECK(at::equal(rank.value, drawn.master.narrow(0, 64, 5000)));
  CHECK(at::equal(optimizer.states().front().at("momentum").values,
                  drawn.first.narrow(0, 64, 5000).to(at::kBFloat16)));
  CHECK(optimizer.loaded == 1);
}
