#include "runtime/comm/text.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::comm;
using Texts = std::vector<std::string>;

namespace {

// Rank 1 of two, whose peer has the same text. The collective with the number `broken` receives
// nothing, or with `half` only its first half, as one that was interrupted on a GPU.
class Broken : public Comm {
 public:
  Broken(int broken, bool half, bool peer_lost)
      : broken_(broken), half_(half), peer_lost_(peer_lost) {}

  int rank() const override { return 1; }
  int world() const override { return 2; }
  const char* backend() const override { return "none"; }
  Pending all_gather(Tensor out, Tensor in, const char*) override {
    const auto parts = out.view({2, -1});
    parts[1].copy_(in);
    receive(parts[0], in);
    return {};
  }
  Pending broadcast(Tensor tensor, int, const char*) override {
    receive(tensor, sent_.at(static_cast<std::size_t>(number_)));
    return {};
  }
  Pending all_reduce(Tensor, const char*) override { return {}; }
  Pending reduce_scatter(Tensor, Tensor, const char*) override { return {}; }
  Pending all_to_all(Tensor, Tensor, const char*) override { return {}; }
  void barrier(const char*) override {
    if (peer_lost_) throw PeerLost("the peer is lost");
  }
  void close() override {}

  std::vector<Tensor> sent_;  // what broadcasts receive

 private:
  void receive(Tensor to, const Tensor& from) {
    const bool breaks = number_++ == broken_;
    if (!breaks) to.copy_(from);
    if (breaks && half_) to.narrow(0, 0, to.numel() / 2).copy_(from.narrow(0, 0, to.numel() / 2));
  }

  int broken_;
  bool half_, peer_lost_;
  int number_ = 0;
};

// Rank 0 of two, which keeps what it sends.
class Sender : public Broken {
 public:
  Sender() : Broken(-1, false, false) {}
  int rank() const override { return 0; }
  Pending broadcast(Tensor tensor, int, const char*) override {
    sent_.push_back(tensor.clone());
    return {};
  }
};

}  // namespace

TEST_CASE("a text that a collective left incomplete is not returned", "[comm]") {
  const int broken = GENERATE(0, 1);
  const bool half = GENERATE(false, true);
  const bool lost = GENERATE(false, true);
  CAPTURE(broken, half, lost);
  Broken comm(broken, half, lost);
  Sender sender;
  share_text(sender, "a text", at::kCPU, "test");
  comm.sent_ = sender.sent_;
  const auto gathers = [&] { gather_texts(comm, "a text", at::kCPU, "test"); };
  const auto shares = [&] { share_text(comm, "", at::kCPU, "test"); };
  SECTION("all-gather") {
    if (lost)
      CHECK_THROWS_AS(gathers(), PeerLost);
    else
      CHECK_THROWS_AS(gathers(), std::runtime_error);
  }
  SECTION("broadcast") {
    if (lost)
      CHECK_THROWS_AS(shares(), PeerLost);
    else
      CHECK_THROWS_AS(shares(), std::runtime_error);
  }
}

TEST_CASE("complete texts are returned", "[comm]") {
  const std::string text = GENERATE("a text", "");
  CAPTURE(text);
  Broken comm(-1, false, false);
  CHECK(gather_texts(comm, text, at::kCPU, "test") == Texts{text, text});
  Sender sender;
  CHECK(share_text(sender, text, at::kCPU, "test") == text);
  Broken receiver(-1, false, false);
  receiver.sent_ = sender.sent_;
  CHECK(share_text(receiver, "another", at::kCPU, "test") == text);
}
