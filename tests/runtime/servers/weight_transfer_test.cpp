#include "runtime/servers/weight_transfer.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <condition_variable>
#include <mutex>

#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
using servers::SentTensor;

namespace {

// State shared by both sides of a transfer in the test.
struct Workers {
  std::mutex mutex;
  std::condition_variable changed;
  bool joined = false;
  std::vector<at::Tensor> packs;

  void update(const std::function<void()>& change) {
    const std::scoped_lock lock(mutex);
    change();
    changed.notify_all();
  }
  void wait(const std::function<bool()>& until) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), until);
  }
};

class FakeTransport : public servers::Transport {
 public:
  explicit FakeTransport(Workers& workers, bool hangs = false) : workers_(workers), hangs_(hangs) {}
  void join(const CheckServer& check_server) override {
    while (hangs_) check_server();
    workers_.update([&] { workers_.joined = true; });
  }
  void broadcast(const at::Tensor& bytes, const CheckServer& check_server) override {
    while (hangs_) check_server();
    workers_.update([&] { workers_.packs.push_back(bytes.clone()); });
  }

 private:
  Workers& workers_;
  bool hangs_;
};

std::vector<std::string> paths(const HttpServer& server) {
  std::vector<std::string> paths;
  for (const auto& request : server.requests()) paths.push_back(request.path);
  return paths;
}

const std::vector<SentTensor> kTensors{
    {"embed", {4, 2}}, {"q", {2, 2}}, {"norm", {3}}, {"head", {4, 2}}};

at::Tensor value_of(std::size_t i) {
  const auto& shape = kTensors[i].shape;
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return at::arange(count, at::TensorOptions(at::kFloat))
      .add_(static_cast<double>(100 * i))
      .view(shape);
}

}  // namespace

TEST_CASE("a pack takes tensors until it has more than its bytes", "[servers]") {
  using servers::pack_sizes;
  using Sizes = std::vector<std::int64_t>;
  // 16, 8, 6 and 16 bytes.
  CHECK(pack_sizes(kTensors, 1000) == Sizes{46});
  CHECK(pack_sizes(kTensors, 16) == Sizes{24, 22});
  CHECK(pack_sizes(kTensors, 15) == Sizes{16, 30});
  CHECK(pack_sizes(kTensors, 0) == Sizes{16, 8, 6, 16});
  CHECK(pack_sizes({}, 16).empty());
}

TEST_CASE("weights are announced, sent in packs and put in their places", "[servers]") {
  Workers workers;
  std::size_t expected = 2;
  const HttpServer server([&](const HttpRequest& request) {
    // As a server does, it answers when its workers have what was announced.
    if (request.path == "/init_weight_transfer_engine")
      workers.wait([&] { return workers.joined; });
    if (request.path == "/update_weights")
      workers.wait([&] { return workers.packs.size() == expected; });
    return HttpResponse{};
  });
  const bool at_init = GENERATE(true, false);
  const servers::TransferGroup group{"10.0.0.1", 51216, 4, at_init};
  servers::WeightTransfer transfer(client_of(server), group, kTensors,
                                   std::make_unique<FakeTransport>(workers), 16);
  const auto send = [&] {
    transfer.begin();
    for (std::size_t i = 0; i < kTensors.size(); ++i) transfer.add(kTensors[i].name, value_of(i));
    transfer.finish();
  };
  send();
  CHECK(paths(server) == std::vector<std::string>{"/init_weight_transfer_engine",
                                                  "/start_weight_update", "/update_weights",
                                                  "/finish_weight_update", "/reset_prefix_cache"});
  const auto asked = server.requests();
  json init{{"master_address", "10.0.0.1"},
            {"master_port", 51216},
            {"rank_offset", 1},
            {"world_size", 5}};
  json update{{"names", {"embed", "q", "norm", "head"}},
              {"dtype_names", {"bfloat16", "bfloat16", "bfloat16", "bfloat16"}},
              {"shapes", {{4, 2}, {2, 2}, {3}, {4, 2}}}};
  (at_init ? init : update)["packed"] = true;
  CHECK(json::parse(asked[0].body) == json{{"init_info", init}});
  CHECK(json::parse(asked[1].body) == json::object());
  CHECK(json::parse(asked[2].body) == json{{"update_info", update}});

  REQUIRE(workers.packs.size() == 2);
  CHECK(workers.packs[0].numel() == 24);
  const auto numbers = at::cat(workers.packs).view(at::kBFloat16);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    const auto wanted = value_of(i).to(at::kBFloat16).view({-1});
    CHECK(numbers.narrow(0, begin, wanted.numel()).equal(wanted));
    begin += wanted.numel();
  }
  CHECK(begin == numbers.numel());

  expected = 4;
  send();
  CHECK(workers.packs.size() == 4);
  CHECK(paths(server).size() == 9);  // the group is formed once
}

TEST_CASE("the transfer ends with an error if the server gives up", "[servers]") {
  const std::string path = GENERATE("/init_weight_transfer_engine", "/start_weight_update",
                                    "/update_weights", "/finish_weight_update");
  CAPTURE(path);
  Workers workers;
  const HttpServer server([&](const HttpRequest& request) {
    return request.path == path ? HttpResponse{500, R"({"error":{"message":"no such tensor"}})"}
                                : HttpResponse{};
  });
  const bool hangs = path == "/init_weight_transfer_engine";
  servers::WeightTransfer transfer(client_of(server), {"127.0.0.1"}, {{"a", {2}}},
                                   std::make_unique<FakeTransport>(workers, hangs), 16);
  const auto send = [&] {
    transfer.begin();
    transfer.add("a", at::arange(2));
    transfer.finish();
  };
  CHECK_THAT(message_of(send),
             Contains(server.url() + path + " answered with status 500: no such tensor"));
  CHECK(std::ranges::count(paths(server), path) == 1);  // a partial transfer is not retried
}

TEST_CASE("tensors must be added in the announced order", "[servers]") {
  Workers workers;
  const HttpServer server([](const HttpRequest&) { return HttpResponse{}; });
  servers::WeightTransfer transfer(client_of(server), {"127.0.0.1"}, kTensors,
                                   std::make_unique<FakeTransport>(workers));
  transfer.begin();
  CHECK_THROWS_AS(transfer.add("q", value_of(1)), std::logic_error);
  CHECK_THROWS_AS(transfer.add("embed", value_of(1)), std::logic_error);
  transfer.add("embed", value_of(0));
  CHECK_THROWS_AS(transfer.finish(), std::logic_error);
}
