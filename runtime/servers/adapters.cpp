#include "runtime/servers/adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/servers/version_folder.hpp"

namespace mgpu::servers {
namespace {

namespace fs = std::filesystem;

constexpr milliseconds kLoadLimit{300'000}, kListLimit{10'000};

}  // namespace

Adapters::Adapters(const ServerClient& server, std::string folder, std::string command,
                   std::string mark)
    : server_(server),
      folder_(fs::absolute(folder).lexically_normal().string()),
      command_(std::move(command)),
      mark_(std::move(mark)) {}

void Adapters::clean(const ServedModel& served) {
  for (const auto& adapter : served.adapters)
    if (is_version_name(adapter.name) && adapter.folder == folder_of(adapter.name)) remove(adapter);
  remove_all_versions(folder_);
}

std::string Adapters::folder_of(const std::string& name) const {
  return fmt::format("{}/{}", folder_, name);
}

LoadedAdapter Adapters::next(std::int64_t step) {
  auto name = version_name(mark_, ++number_, step);
  auto folder = folder_of(name);
  return {std::move(name), std::move(folder)};
}

void Adapters::load(const LoadedAdapter& version) {
  constexpr const char* kPath = "/v1/load_lora_adapter";
  const auto answer = server_.post(
      kPath, {{"lora_name", version.name}, {"lora_path", version.folder}, {"load_inplace", false}},
      kLoadLimit);
  if (answer.status != 200 && !is_there(version))
    throw std::runtime_error(fmt::format(
        "the server cannot load the adapter in {}: {}; check that the server can read that path, "
        "or start it with\n    {}",
        version.folder, server_.error_text(kPath, answer), command_));
  remove(loaded_);
  loaded_ = version;
}

// A request whose answer was lost may have loaded it; the server then rejects the retry.
bool Adapters::is_there(const LoadedAdapter& version) const {
  const auto answer = server_.get("/v1/models", kListLimit);
  const auto parsed = rendezvous::parse_untrusted_json(answer.body);
  const auto models =
      parsed.is_object() ? parsed.value("data", nlohmann::json()) : nlohmann::json();
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

// The answer is ignored: a restarted server does not have the adapter, which is fine.
void Adapters::remove(const LoadedAdapter& version) {
  if (version.name.empty()) return;
  server_.post("/v1/unload_lora_adapter", {{"lora_name", version.name}}, kLoadLimit);
  remove_version(folder_, version.name);
}

}  // namespace mgpu::servers
