#include "runtime/servers/adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace mgpu::servers {
namespace {

namespace fs = std::filesystem;

constexpr milliseconds kLoading{300'000}, kLooking{10'000};

}  // namespace

Adapters::Adapters(const Caller& server, std::string folder, std::string start, std::string mark)
    : server_(server),
      folder_(fs::absolute(folder).lexically_normal().string()),
      start_(std::move(start)),
      mark_(std::move(mark)) {}

void Adapters::clean(const Facts& facts) {
  for (const auto& adapter : facts.adapters)
    if (adapter.folder.starts_with(folder_ + "/")) remove(adapter);
  fs::remove_all(folder_);
}

LoadedAdapter Adapters::next(std::int64_t step) {
  auto name = fmt::format("mgpu-train-{}-{}-step-{}", mark_, ++number_, step);
  auto folder = fmt::format("{}/{}", folder_, name);
  return {std::move(name), std::move(folder)};
}

void Adapters::load(const LoadedAdapter& version) {
  constexpr const char* kPath = "/v1/load_lora_adapter";
  const auto answer = server_.post(
      kPath, {{"lora_name", version.name}, {"lora_path", version.folder}, {"load_inplace", false}},
      kLoading);
  if (answer.status != 200 && !is_there(version))
    throw std::runtime_error(
        fmt::format("the server does not take the adapter in {}, which it has to see under that "
                    "path: {}; it may have to be started with\n    {}",
                    version.folder, server_.complaint(kPath, answer), start_));
  remove(loaded_);
  loaded_ = version;
}

// A try whose answer was lost may have loaded it; the next one is refused then.
bool Adapters::is_there(const LoadedAdapter& version) const {
  const auto answer = server_.get("/v1/models", kLooking);
  const auto said = nlohmann::json::parse(answer.body, nullptr, false);
  const auto models = said.is_object() ? said.value("data", nlohmann::json()) : nlohmann::json();
  return std::any_of(models.begin(), models.end(), [&](const auto& model) {
    return model.is_object() && model.value("id", nlohmann::json()) == version.name;
  });
}

void Adapters::finish() {
  remove(loaded_);
  loaded_ = {};
  std::error_code still_used;
  fs::remove(folder_, still_used);
}

// A server that has been started anew does not know it, which is as well.
void Adapters::remove(const LoadedAdapter& version) {
  if (version.name.empty()) return;
  server_.post("/v1/unload_lora_adapter", {{"lora_name", version.name}}, kLoading);
  fs::remove_all(version.folder);
}

}  // namespace mgpu::servers
