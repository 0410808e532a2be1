#include "runtime/kernels/host_copies.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "tests/support/catch.hpp"

namespace mgpu::ops {
namespace {

Tensor numbers(std::int64_t first) {
  return at::arange(first, first + 6, at::TensorOptions(at::kFloat)).view({2, 3});
}

TEST_CASE("copies on the host keep their values when the source is overwritten") {
  HostCopies copies(at::kCPU);
  Tensor x = numbers(0);
  const Tensor host = copies.to_host(x);
  x.zero_();
  copies.begin_return(host);
  CHECK(at::equal(copies.take(), numbers(0)));
}

TEST_CASE("copies return in the order in which they are asked for, whatever was copied last") {
  HostCopies copies(at::kCPU);
  const Tensor first = copies.to_host(numbers(0)), second = copies.to_host(numbers(10));
  copies.begin_return(second);
  CHECK(at::equal(copies.take(), numbers(10)));
  copies.begin_return(first);
  CHECK(at::equal(copies.take(), numbers(0)));
}

TEST_CASE("a copy that nobody took does not stand in for the next one") {
  HostCopies copies(at::kCPU);
  const Tensor abandoned = copies.to_host(numbers(0)), wanted = copies.to_host(numbers(10));
  copies.begin_return(abandoned);
  copies.begin_return(wanted);
  CHECK(at::equal(copies.take(), numbers(10)));
}

}  // namespace
}  // namespace mgpu::ops
