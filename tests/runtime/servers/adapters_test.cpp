#include "runtime/servers/adapters.hpp"
#include "runtime/servers/version_folder.hpp"

#include <filesystem>
#include <fstream>

#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

void write(const servers::LoadedAdapter& version) {
  fs::create_directories(version.folder);
  std::ofstream(version.folder + "/adapter_config.json") << "{}";
}

}  // namespace

TEST_CASE("each version has its own name and folder, and the previous one is removed",
          "[servers]") {
  const TempDir folder;
  const auto below = folder.path("adapters");
  const HttpServer server([](const HttpRequest&) { return HttpResponse{}; });
  const auto client = client_of(server);
  servers::Adapters adapters(client, below, "vllm serve M", "run");
  const auto first = adapters.next(0);
  write(first);
  adapters.load(first);
  REQUIRE(server.requests().size() == 1);
  CHECK(server.requests()[0].path == "/v1/load_lora_adapter");
  CHECK(json::parse(server.requests()[0].body) ==
        json{{"lora_name", first.name}, {"lora_path", first.folder}, {"load_inplace", false}});
  const auto again = adapters.next(0);
  CHECK(again.name != first.name);
  CHECK(again.folder != first.folder);
  write(again);
  adapters.load(again);
  REQUIRE(server.requests().size() == 3);
  CHECK(server.requests()[2].path == "/v1/unload_lora_adapter");
  CHECK(json::parse(server.requests()[2].body) == json{{"lora_name", first.name}});
  CHECK_FALSE(fs::exists(first.folder));
  CHECK(fs::exists(again.folder));
  adapters.finish();
  CHECK(json::parse(server.requests()[3].body) == json{{"lora_name", again.name}});
  CHECK_FALSE(fs::exists(below));
}

TEST_CASE("adapters of an earlier run are removed, those of others stay", "[servers]") {
  const TempDir folder;
  const auto below = folder.path("adapters");
  const std::string old = "mgpu-train-run-1-step-20", not_loaded = "mgpu-train-run-2-step-30";
  write({old, below + "/" + old});
  write({not_loaded, below + "/" + not_loaded});
  write({"mine", below + "/mine"});
  const HttpServer server([](const HttpRequest&) { return HttpResponse{}; });
  const auto client = client_of(server);
  servers::Adapters adapters(client, below, "vllm serve M", "run");
  adapters.clean({"M",
                  "",
                  0,
                  {{old, below + "/" + old},
                   {"mine", below + "/mine"},
                   {"theirs", folder.path("adapters-2/x")}}});
  REQUIRE(server.requests().size() == 1);
  CHECK(json::parse(server.requests()[0].body) == json{{"lora_name", old}});
  CHECK_FALSE(fs::exists(below + "/" + old));
  CHECK_FALSE(fs::exists(below + "/" + not_loaded));
  CHECK(fs::exists(below + "/mine"));
}

TEST_CASE("a server cannot make the trainer delete a folder", "[servers]") {
  const TempDir folder;
  const auto below = folder.path("adapters"), precious = folder.path("precious");
  write({"", precious});
  write({"", below + "/inside"});
  const std::string version = "mgpu-train-run-1-step-20", link = "mgpu-train-run-2-step-20";
  write({"", below + "/" + version + "/files"});
  fs::create_directory_symlink(precious, below + "/" + version + "/link");
  fs::create_directory_symlink(precious, below + "/" + link);
  const HttpServer server([](const HttpRequest&) { return HttpResponse{}; });
  const auto client = client_of(server);
  servers::Adapters adapters(client, below, "vllm serve M", "run");
  adapters.clean({"M",
                  "",
                  0,
                  {{version, below + "/../precious"},
                   {"../precious", below + "/../precious"},
                   {"mgpu-train-/../../precious-1-step-1", below + "/x"},
                   {"inside", below + "/inside"},
                   {link, below + "/" + link},
                   {"", below + "/"}}});
  CHECK(fs::exists(precious + "/adapter_config.json"));
  CHECK(fs::exists(below + "/inside/adapter_config.json"));
  CHECK_FALSE(fs::exists(below + "/" + version));
  CHECK_FALSE(fs::is_symlink(below + "/" + link));

  SECTION("nor by a link in place of the folder of versions") {
    fs::rename(below, folder.path("moved"));
    write({"", precious + "/" + version});
    fs::create_directory_symlink(precious, below);
    adapters.clean({"M", "", 0, {{version, below + "/" + version}}});
    CHECK(fs::exists(precious + "/" + version));
  }
}

TEST_CASE("only names that the trainer makes are versions", "[servers]") {
  using servers::is_version_name;
  CHECK(is_version_name(servers::version_name("run_a-7", 3, 120)));
  for (const char* other :
       {"", "old", "mgpu-train-", "mgpu-train-run-1", "mgpu-train-run-1-step-",
        "mgpu-train--1-step-2", "mgpu-train-run-x-step-2", "mgpu-train-../x-1-step-2",
        "mgpu-train-a.b-1-step-2", "x/mgpu-train-run-1-step-2", "mgpu-train-run-1-step-2/.."})
    CHECK_FALSE(is_version_name(other));
}

TEST_CASE("an adapter is loaded if the server has it although the answer was lost", "[servers]") {
  const TempDir folder;
  std::string listed = "other";
  const HttpServer server([&](const HttpRequest& request) {
    if (request.path == "/v1/models")
      return HttpResponse{200, json{{"data", {{{"id", "M"}}, {{"id", listed}}}}}.dump()};
    return HttpResponse{400, R"({"message":"has already been loaded"})"};
  });
  const auto client = client_of(server);
  servers::Adapters adapters(client, folder.path("adapters"), "vllm serve M", "run");
  const auto version = adapters.next(3);
  CHECK_THAT(message_of([&] { adapters.load(version); }), Contains("has already been loaded"));
  listed = version.name;
  CHECK(message_of([&] { adapters.load(version); }) == "no error");
}

TEST_CASE("the error of a server without adapter support has the start command", "[servers]") {
  const TempDir folder;
  const HttpServer server(by_path({}));
  const auto client = client_of(server);
  servers::Adapters adapters(client, folder.path("adapters"), "vllm serve M", "run");
  const auto version = adapters.next(3);
  CHECK_THAT(message_of([&] { adapters.load(version); }),
             Contains("cannot load the adapter in " + version.folder) &&
                 Contains("status 404: Not Found") && Contains("vllm serve M"));
}
