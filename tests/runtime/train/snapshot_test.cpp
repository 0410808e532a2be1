#include "runtime/train/snapshot.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::train;
using Catch::Matchers::Contains;
using checkpoint::DType;
using mgpu::tests::TempDir;

namespace {

const std::vector<Snapshot::File> kFiles{
    {"model.safetensors", {{"a", DType::bf16, {2, 3}}, {"b", DType::f32, {5}}}},
    {"state/part", {{"codes", DType::u8, {7}}, {"empty", DType::f32, {0}}}}};

void add_all(Snapshot& snapshot, double first) {
  const auto values = [&](std::int64_t count) {
    return at::arange(count, at::TensorOptions(at::kFloat)).add_(first);
  };
  snapshot.add("a", values(6).view({3, 2}).t(), true);  // of another type, and not contiguous
  snapshot.add("b", values(5), true);
  snapshot.add("codes", values(7).to(at::kByte), false);
  snapshot.add("empty", at::zeros({0}), true);
  snapshot.start();
}

}  // namespace

TEST_CASE("a snapshot has the bytes of the files", "[snapshot]") {
  Snapshot snapshot(at::kCPU);
  REQUIRE(snapshot.reserve(Snapshot::size_of(kFiles)));
  const auto* const memory = [&] {
    snapshot.lay_out(kFiles);
    return snapshot.images()[0].bytes.data();
  }();
  for (const double first : {1.0, 50.0}) {
    const TempDir dir(TempDir::in_memory());
    snapshot.lay_out(kFiles);
    add_all(snapshot, first);
    snapshot.hold_updates();
    snapshot.wait();
    const auto images = snapshot.images();
    CHECK(images[0].bytes.data() == memory);  // it is kept
    CHECK(snapshot.held_seconds() == 0);
    REQUIRE(checkpoint::write_images(dir.root(), images, 1));

    const checkpoint::SafetensorsFile model(dir.path("model.safetensors"));
    const auto a = model.bytes(*model.find("a"));
    CHECK(static_cast<float>(reinterpret_cast<const at::BFloat16*>(a.data())[1]) ==
          static_cast<float>(first + 2));
    const auto b = model.bytes(*model.find("b"));
    CHECK(reinterpret_cast<const float*>(b.data())[4] == static_cast<float>(first + 4));
    const checkpoint::SafetensorsFile state(dir.path("state/part"));
    CHECK(state.bytes(*state.find("codes"))[6] == static_cast<std::byte>(first + 6));
  }
}

TEST_CASE("a tensor that is missing, unknown or another one is an error", "[snapshot]") {
  Snapshot snapshot(at::kCPU);
  REQUIRE(snapshot.reserve(Snapshot::size_of(kFiles)));
  snapshot.lay_out(kFiles);
  CHECK_THROWS_WITH(snapshot.add("c", at::zeros({1}), true), Contains("no tensor c"));
  CHECK_THROWS_WITH(snapshot.add("b", at::zeros({4}), true), Contains("another tensor b"));
  CHECK_THROWS_WITH(snapshot.start(), Contains("lacks the tensor a"));
  snapshot.release();
  CHECK(snapshot.reserved() == 0);
  CHECK_THROWS_WITH(snapshot.lay_out(kFiles), Contains("exceeds its memory"));
}

TEST_CASE("memory that no system has is refused", "[snapshot]") {
  Snapshot snapshot(at::kCPU);
  CHECK_FALSE(snapshot.reserve(std::uint64_t{1} << 60));
  CHECK(snapshot.reserved() == 0);
}

TEST_CASE("a forked process does not have the memory of a snapshot", "[snapshot]") {
  Snapshot snapshot(at::kCPU);
  REQUIRE(snapshot.reserve(Snapshot::size_of(kFiles)));
  snapshot.lay_out(kFiles);
  auto* const memory = const_cast<std::byte*>(snapshot.images()[0].bytes.data());
  const auto has_memory = [&] { return ::msync(memory, 1, MS_ASYNC) == 0; };
  REQUIRE(has_memory());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(has_memory() ? 1 : 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
