#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "runtime/optim/adamw.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::optim;
using mgpu::parallel::Fragment;
using mgpu::parallel::OwnedFragment;

namespace {

struct Piece {
  std::int64_t begin, size, whole;  // in elements of the tensor
  bool decay = true;
  std::int64_t gap = 0;  // padding before it
};

// The fragments of a rank, one after the other.
struct Owned {
  Tensor values, grads;
  std::vector<OwnedFragment> fragments;
  std::int64_t size = 0;

  explicit Owned(const std::vector<Piece>& pieces, at::ScalarType type = at::kFloat) {
    for (const auto& piece : pieces) size += piece.gap + piece.size;
    at::manual_seed(5);
    values = at::zeros({size}, type);
    grads = at::zeros({size}, type);
    std::int64_t at = 0;
    for (const auto& piece : pieces) {
      at += piece.gap;
      const Fragment f{.name = "w" + std::to_string(fragments.size()),
                       .tensor_begin = piece.begin,
                       .size = piece.size,
                       .whole = piece.whole,
                       .flat = at,
                       .owned = at,
                       .decay = piece.decay};
      fragments.push_back({f, values.narrow(0, at, f.size), grads.narrow(0, at, f.size)});
      fragments.back().value.copy_(at::randn({f.size}));
      at += piece.size;
    }
  }

  // Gradients of many magnitudes. The same step gets the same gradients.
  void draw_gradients(int step) {
    at::manual_seed(100 + step);
    for (auto& o : fragments) {
      const auto n = o.fragment.size;
      o.grad.copy_(at::randn({n}) * at::exp(at::randn({n})));
    }
  }
};

constexpr AdamWOptions kEightBit{.weight_decay = 0.1, .moments = Moments::eight_bit};
constexpr double kRate = 1e-2;

Tensor scalar(double x) {
  return at::full({}, x);
}

void take_step(AdamW& optimizer, double rate, const Tensor& clip, const Tensor& skip) {
  const StepSettings step{rate, clip, skip};
  optimizer.begin_step(step);
  optimizer.update(0, step);
}

void take_steps(AdamW& optimizer, Owned& owned, int steps, double clip = 1) {
  for (int step = 0; step < steps; ++step) {
    owned.draw_gradients(step);
    take_step(optimizer, kRate, scalar(clip), scalar(0));
  }
}

// The definition, element by element: decodes, updates and encodes each block.
struct PlainLoop {
  std::vector<double> weights, first, second;
  std::int64_t lead = 0;
  int steps = 0;

  PlainLoop(const Tensor& values, std::int64_t begin)
      : first(static_cast<std::size_t>(values.numel())), second(first.size()), lead(begin % 256) {
    for (std::int64_t i = 0; i < values.numel(); ++i) weights.push_back(values[i].item<double>());
  }

  void step(const Tensor& grads, double clip, double decay) {
    ++steps;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = grads[static_cast<std::int64_t>(i)].item<double>() * clip;
      first[i] = 0.9 * first[i] + 0.1 * g;
      second[i] = 0.999 * second[i] + 0.001 * g * g;
      const double m = first[i] / (1 - std::pow(0.9, steps));
      const double v = second[i] / (1 - std::pow(0.999, steps));
      weights[i] = weights[i] * (1 - kRate * decay) - kRate * m / (std::sqrt(v) + 1e-8);
    }
    round(first, first_moment_table(at::kCPU)[0], false);
    round(second, second_moment_table(at::kCPU)[0], true);
  }

  void round(std::vector<double>& moment, const Tensor& levels, bool positive) const {
    const auto* level = levels.const_data_ptr<float>();
    const auto end = static_cast<std::int64_t>(moment.size());
    for (std::int64_t block = -lead; block < end; block += 256) {
      double scale = 0;
      for (auto i = std::max<std::int64_t>(0, block); i < std::min(end, block + 256); ++i)
        scale = std::max(scale, std::abs(moment[static_cast<std::size_t>(i)]));
      for (auto i = std::max<std::int64_t>(0, block); i < std::min(end, block + 256); ++i) {
        auto& x = moment[static_cast<std::size_t>(i)];
        int nearest = positive && x > 0 ? 1 : 0;
        for (int code = nearest; code < 256; ++code)
          if (std::abs(level[code] - x / scale) < std::abs(level[nearest] - x / scale))
            nearest = code;
        x = level[nearest] * scale;
      }
    }
  }
};

}  // namespace

TEST_CASE("8-bit steps match a plain loop over blocks", "[adamw]") {
  const auto begin = GENERATE(0, 64, 200);
  const auto clip = GENERATE(1.0, 0.25);
  Owned owned({{begin, 5000, 8000}});
  PlainLoop plain(owned.values, begin);
  AdamW optimizer(owned.fragments, owned.size, kEightBit);
  for (int step = 0; step < 4; ++step) {
    owned.draw_gradients(step);
    plain.step(owned.grads, clip, 0.1);
    take_step(optimizer, kRate, scalar(clip), scalar(0));
  }
  // An element halfway between two levels may round either way. Few do, and they stay close.
  const auto& state = optimizer.states().front();
  const auto first = mgpu::ops::decode(state.at("first"));
  const auto second = mgpu::ops::decode(state.at("second"));
  int apart = 0;
  for (std::int64_t i = 0; i < owned.size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool same =
        std::abs(first[i].item<double>() - plain.first[at]) <= 1e-5 * std::abs(plain.first[at]) &&
        std::abs(second[i].item<double>() - plain.second[at]) <= 1e-5 * plain.second[at];
    apart += same ? 0 : 1;
    CHECK(std::abs(owned.values[i].item<double>() - plain.weights[at]) <= (same ? 2e-5 : 1e-2));
  }
  CHECK(apart <= 10);
  CHECK(optimizer.steps_taken() == 4);
}

TEST_CASE("a skipped step changes no bit", "[adamw]") {
  // A skipped step once changed fp32 moments if gradients were in bf16.
  const auto moments = GENERATE(Moments::eight_bit, Moments::fp32, Moments::bf16);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  Owned owned({{0, 5000, 5000}, {0, 64, 64, false}}, type);
  AdamW optimizer(owned.fragments, owned.size, {.weight_decay = 0.1, .moments = moments});
  take_steps(optimizer, owned, 2);
  const auto bits = [&] {
    std::vector<Tensor> all{owned.values.clone()};
    for (const auto& s : optimizer.states()) {
      REQUIRE(s.vectors.size() == 3);
      for (const auto& vector : s.vectors)
        for (const auto& tensor : {vector.stored.values, vector.stored.scales})
          if (tensor.defined()) all.push_back(tensor.clone());
    }
    return all;
  };
  const auto before = bits();
  REQUIRE(before.size() == (moments == Moments::eight_bit ? 9 : 7));
  owned.grads.fill_(GENERATE(INFINITY, NAN, 1.0));
  take_step(optimizer, kRate, scalar(GENERATE(1.0, NAN)), scalar(1));
  const auto after = bits();
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(at::equal(before[i], after[i]));
  CHECK(optimizer.steps_taken() == 2);
}

TEST_CASE("moments in bf16 follow those in fp32", "[adamw]") {
  // Rounded to nearest, the second one stopped where a step changed it by less than half of bf16's
  // spacing: it neither reached its mean nor decayed.
  Owned ours({{0, 4096, 4096}}), theirs({{0, 4096, 4096}});
  AdamW rounded(ours.fragments, ours.size, {.moments = Moments::bf16});
  AdamW exact(theirs.fragments, theirs.size, {});
  const auto mean_error = [&](const char* moment) {
    const auto& bf16 = rounded.states().front().at(moment).values;
    const auto& fp32 = exact.states().front().at(moment).values;
    return (bf16.to(at::kFloat) / fp32 - 1).mean().item<double>();
  };
  const auto take = [&](int steps, double grad) {
    for (auto* owned : {&ours, &theirs}) owned->grads.fill_(grad);
    for (int step = 0; step < steps; ++step) {
      take_step(rounded, kRate, scalar(1), scalar(0));
      take_step(exact, kRate, scalar(1), scalar(0));
    }
  };
  take(1000, 1);
  CHECK(std::abs(mean_error("first")) < 0.001);
  CHECK(std::abs(mean_error("second")) < 0.01);
  CHECK(std::abs((ours.values - theirs.values).mean().item<double>()) < 0.01 * 1000 * kRate);
  take(1000, 0);
  CHECK(std::abs(mean_error("second")) < 0.01);
}

TEST_CASE("moments in bf16 are the same however a tensor is cut", "[adamw]") {
  constexpr AdamWOptions kBf16{.moments = Moments::bf16};
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  Owned whole({{0, 5000, 5000}}, type);
  Owned parts({{0, 3000, 5000}, {3000, 2000, 5000, true, 64}}, type);
  parts.fragments[0].value.copy_(whole.values.narrow(0, 0, 3000));
  parts.fragments[1].value.copy_(whole.values.narrow(0, 3000, 2000));
  AdamW one(whole.fragments, whole.size, kBf16), two(parts.fragments, parts.size, kBf16);
  for (int step = 0; step < 5; ++step) {
    whole.draw_gradients(step);
    parts.fragments[0].grad.copy_(whole.grads.narrow(0, 0, 3000));
    parts.fragments[1].grad.copy_(whole.grads.narrow(0, 3000, 2000));
    take_step(one, kRate, scalar(1), scalar(0));
    take_step(two, kRate, scalar(1), scalar(0));
  }
  for (const auto* name : {"master", "first", "second"}) {
    const auto& values = one.states()[0].at(name).values;
    CHECK(at::equal(values.narrow(0, 0, 3000), two.states()[0].at(name).values));
    CHECK(at::equal(values.narrow(0, 3000, 2000), two.states()[1].at(name).values));
  }
}

TEST_CASE("8-bit moments take 2 bytes per element and 8 per block; small tensors 8 per element",
          "[adamw]") {
  Owned owned({{0, 25600, 25600}, {0, 4096, 4096}, {0, 4095, 4095, false}});
  const AdamW optimizer(owned.fragments, owned.size, kEightBit);
  // The vector of codes has unused elements for the small tensor too.
  CHECK(optimizer.state_bytes() == 2 * owned.size + 8 * (25600 + 4096) / 256 + 8 * 4095 +
                                       8 * (owned.fragments[2].fragment.owned % 64));
  CHECK(AdamW(owned.fragments, owned.size, {}).state_bytes() == 8 * owned.size);
  CHECK(AdamW(owned.fragments, owned.size, {.moments = Moments::bf16}).state_bytes() ==
        4 * owned.size);
}

TEST_CASE("a part of a large tensor is in 8 bits however small the part is", "[adamw]") {
  Owned owned({{4032, 64, 8192}});
  AdamW optimizer(owned.fragments, owned.size, kEightBit);
  CHECK(optimizer.states().front().at("first").coded());
  Owned small({{0, 64, 64}});
  AdamW exact(small.fragments, small.size, kEightBit);
  CHECK_FALSE(exact.states().front().at("first").coded());
}

TEST_CASE("small tensors are updated by exact AdamW", "[adamw]") {
  const std::vector<Piece> pieces{{0, 64, 64, false}, {0, 100, 100, false, 28}, {0, 640, 640}};
  Owned ours(pieces), theirs(pieces);
  AdamW coded(ours.fragments, ours.size, kEightBit);
  AdamW exact(theirs.fragments, theirs.size, {.weight_decay = 0.1});
  take_steps(coded, ours, 5);
  take_steps(exact, theirs, 5);
  CHECK(at::equal(ours.values, theirs.values));
}

TEST_CASE("fragments updated together get the same values as each alone", "[adamw]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const std::vector<Piece> pieces{
      {64, 4800, 8192},  // ends within a block
      {0, 8192, 8192},   // shares no block with the previous one
      {0, 4096, 4096},   // begins at a block boundary
      {0, 100, 100},     // in fp32
      {0, 5000, 5000, true, 28},
      {256, 300, 5000, false},   // without weight decay
      {512, 1 << 20, 1 << 21}};  // more elements than are decoded at a time
  Owned together(pieces, type);
  AdamW optimizer(together.fragments, together.size, kEightBit);
  take_steps(optimizer, together, 3);
  Owned alone(pieces, type);
  std::vector<std::vector<OwnedFragment>> singles;
  for (const auto& o : alone.fragments) singles.push_back({o});
  std::deque<AdamW> optimizers;
  for (auto& single : singles) optimizers.emplace_back(single, alone.size, kEightBit);
  for (int step = 0; step < 3; ++step) {
    alone.draw_gradients(step);
    for (auto& each : optimizers) take_step(each, kRate, scalar(1), scalar(0));
  }
  CHECK(at::equal(together.values, alone.values));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& ours = optimizer.states()[i].at("second");
    const auto& theirs = optimizers[i].states().front().at("second");
    CHECK(at::equal(ours.values, theirs.values));
    if (ours.coded()) CHECK(at::equal(ours.scales, theirs.scales));
  }
}

TEST_CASE("an element whose gradients vanish beside larger ones does not jump", "[adamw]") {
  // Its second moment is 1e-9 of the block's largest one: the nearest level would be 0.
  Owned owned({{0, 4096, 4096}});
  AdamW optimizer(owned.fragments, owned.size, kEightBit);
  owned.grads.fill_(1);
  owned.grads[7] = 3e-5;
  take_step(optimizer, kRate, scalar(1), scalar(0));
  const auto before = owned.values[7].item<double>();
  owned.grads[7] = 0;
  take_step(optimizer, kRate, scalar(1), scalar(0));
  CHECK(std::abs(owned.values[7].item<double>() - before) < 3 * kRate);
}

TEST_CASE("bf16 weights follow fp32 master weights with 8-bit moments too", "[adamw]") {
  Owned owned({{0, 8192, 8192}}, at::kBFloat16);
  Owned exact({{0, 8192, 8192}}, at::kFloat);
  exact.values.copy_(owned.values);
  AdamW optimizer(owned.fragments, owned.size, kEightBit);
  const auto before = optimizer.states().front().at("master").values.clone();
  for (int step = 0; step < 10; ++step) {
    owned.draw_gradients(step);
    take_step(optimizer, 1e-5, scalar(1), scalar(0));
  }
  const auto& master = optimizer.states().front().at("master").values;
  CHECK(at::equal(owned.values, master.to(at::kBFloat16)));
  CHECK((master - before).abs().max().item<float>() > 2e-5F);
}

TEST_CASE("what memory planning knows of AdamW's state is what AdamW keeps", "[adamw]") {
  const auto moments = GENERATE(Moments::fp32, Moments::bf16, Moments::eight_bit);
  Owned owned({{0, 25600, 25600}}, GENERATE(at::kFloat, at::kBFloat16));
  const AdamW optimizer(owned.fragments, owned.size, {.moments = moments});
  std::vector<StateTensor> kept;
  const auto add = [&](std::string_view name, const Tensor& tensor) {
    const auto type = tensor.scalar_type() == at::kFloat      ? StateType::f32
                      : tensor.scalar_type() == at::kBFloat16 ? StateType::bf16
                                                              : StateType::u8;
    kept.push_back({name, type, owned.size / tensor.numel()});
  };
  for (const auto& vector : optimizer.states().front().vectors) {
    if (vector.name == "master") continue;
    add(vector.name, vector.stored.values);
    if (vector.stored.coded())
      add(vector.name == "first" ? "first_scales" : "second_scales", vector.stored.scales);
  }
  CHECK((kept == adamw_state(moments)));
  double bytes = 0;
  for (const auto& tensor : kept) bytes += bytes_per_weight(tensor);
  CHECK(static_cast<double>(optimizer.state_bytes()) == bytes * static_cast<double>(owned.size));
}

TEST_CASE("a state is found by its name, and an unknown name is an error", "[adamw]") {
  Owned owned({{0, 64, 64}});
  const auto optimizer = make_adamw({})(owned.fragments, owned.size);
  const auto& state = optimizer->states().front();
  CHECK(state.owned == &owned.fragments.front());
  CHECK(state.at("master").values.is_same(owned.fragments.front().value));
  CHECK_THROWS_WITH(state.at("third"), "the optimizer has no state named third");
}

TEST_CASE("a fragment with a factor of the learning rate takes larger steps", "[adamw]") {
  const auto moments = GENERATE(Moments::fp32, Moments::eight_bit);
  const auto after = [&](double factor, double rate) {
    Owned owned({{0, 512, 512}, {0, 512, 512}});
    owned.fragments[1].fragment.rate = factor;
    AdamW optimizer(owned.fragments, owned.size, {.weight_decay = 0.1, .moments = moments});
    owned.draw_gradients(0);
    take_step(optimizer, rate, scalar(1), scalar(0));
    return owned.values;
  };
  const auto both = after(4, kRate), plain = after(1, kRate), fast = after(1, 4 * kRate);
  CHECK(at::equal(both.narrow(0, 0, 512), plain.narrow(0, 0, 512)));
  CHECK(at::equal(both.narrow(0, 512, 512), fast.narrow(0, 512, 512)));
}
