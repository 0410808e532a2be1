#include "runtime/commands/hub_names.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/passing_error.hpp"
#include "rendezvous/store/client.hpp"
#include "runtime/commands/dataset_sources.hpp"
#include "runtime/commands/validation.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/hub/program.hpp"
#include "runtime/hub/provide.hpp"
#include "runtime/hub/upload.hpp"
#include "runtime/rewards/catalog.hpp"

namespace mgpu::recipes {
namespace {

using hub::Part;
using hub::Repository;
using hub::Site;

// How long a rank waits for the downloads of other nodes.
constexpr auto kOthersTimeout = std::chrono::hours(24);

bool is_set(const char* name) {
  const char* const value = ::getenv(name);
  return value != nullptr && (std::string_view(value) == "1" || std::string_view(value) == "true" ||
                              std::string_view(value) == "True");
}

Site site_of(const train::TrainConfig& config) {
  if (config.hub == train::Hub::modelscope) return Site::modelscope;
  if (config.hub == train::Hub::huggingface) return Site::huggingface;
  return is_set("USE_MODELSCOPE_HUB") ? Site::modelscope : Site::huggingface;
}

bool is_offline(const train::TrainConfig& config) {
  return config.offline || hub::offline_by_environment();
}

Repository dataset_of(const train::DataSource& source, Site site) {
  return {.site = site, .part = Part::rows, .name = source.path, .revision = source.revision};
}

Part settings_of(Part part) {
  if (part == Part::model) return Part::settings;
  return part == Part::adapter ? Part::adapter_settings : part;
}

// What counts as a name. Another node may have a path where this one has a name.
struct Judgement {
  bool (*model)(const std::string&);
  bool (*dataset)(const std::string&);
};
constexpr Judgement kNamesHere{hub::is_model_name, hub::is_dataset_name};
constexpr Judgement kNamesAnywhere{hub::looks_like_model, hub::looks_like_dataset};

// The rewards that are names of models.
std::vector<std::string> reward_models(const train::TrainConfig& config, const Judgement& is) {
  std::vector<std::string> names;
  if (config.task != train::Task::grpo) return names;
  const train::GrpoValues values(config);
  const auto node = values.node("reward_funcs"), rules = values.node("reward_rules");
  auto entries = train::is_null(node) ? std::vector<std::string>() : train::to_words(node);
  entries.push_back(values.text("reward_model"));
  const auto known = rewards::reward_names();
  for (auto& entry : entries) {
    const auto is_entry = [&](const train::YamlNode& item) { return item.text == entry; };
    if (is.model(entry) && std::ranges::none_of(rules.items, is_entry) &&
        std::ranges::find(known, entry) == known.end())
      names.push_back(std::move(entry));
  }
  return names;
}

std::vector<Repository> named(const train::TrainConfig& config, const Judgement& is) {
  const auto site = site_of(config);
  std::vector<Repository> all;
  const auto add = [&](const Repository& repository) {
    if (std::ranges::find(all, repository) == all.end()) all.push_back(repository);
  };
  if (is.model(config.model_name_or_path))
    add({site, Part::model, config.model_name_or_path, config.model_revision,
         config.tokenizer_path.empty()});
  if (is.model(config.tokenizer_path)) add({site, Part::tokenizer, config.tokenizer_path});
  if (is.model(config.adapter_path)) add({site, Part::adapter, config.adapter_path});
  // The trainer looks for these in the cache of the Hub only.
  for (const auto& name : reward_models(config, is)) add({Site::huggingface, Part::model, name});
  for (const auto* sources : {&config.dataset_name, &config.eval_dataset})
    for (const auto& source : *sources)
      if (!source.is_path && is.dataset(source.path)) add(dataset_of(source, site));
  return all;
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// The value of the recipe that names the model, or the folder of a hub whose cache only we look in.
void use_folder(std::string& value, const Repository& repository, const std::string& folder) {
  if (repository.site == Site::modelscope) value = folder;
}

// Replaces datasets by their files.
void use_files(std::vector<train::DataSource>& sources, Site site) {
  sources = files_of(sources, [site](const train::DataSource& source) {
    const auto repository = dataset_of(source, site);
    return hub::is_provided(repository) ? hub::cached_folder(repository) : std::string();
  });
}

// Replaces the names of repositories that are complete.
void use_cached(train::TrainConfig& config, bool whole) {
  const auto site = site_of(config);
  const auto use = [&](std::string& value, Part part, const std::string& revision) {
    // A tokenizer that is needed and missing is reported when it is opened.
    const Repository repository{site, whole ? part : settings_of(part), value, revision, false};
    if (!hub::is_model_name(value)) return;
    if (const auto folder = hub::complete_folder(repository); !folder.empty())
      part == Part::tokenizer ? void(value = folder) : use_folder(value, repository, folder);
  };
  use(config.model_name_or_path, Part::model, config.model_revision);
  use(config.adapter_path, Part::adapter, "main");
  use(config.tokenizer_path, Part::tokenizer, "main");
  use_files(config.dataset_name, site);
  use_files(config.eval_dataset, site);
}

// Of the recipe's model first the configuration and the tokenizer: if they are not supported,
// nobody needs the weights.
void download(const train::TrainConfig& config, const Repository& repository) {
  const hub::ProvideOptions options{.offline = is_offline(config), .say = say};
  if (repository.part == Part::model && repository.name == config.model_name_or_path &&
      !hub::is_provided(repository)) {
    auto settings = repository;
    settings.part = Part::settings;
    check_model(config, hub::provide(settings, options));
  }
  hub::provide(repository, options);
}

}  // namespace

bool is_named_dataset(const train::DataSource& source) {
  return !source.is_path && hub::is_dataset_name(source.path);
}

std::vector<Repository> named_repositories(const train::TrainConfig& config) {
  return named(config, kNamesHere);
}

bool names_model(const train::TrainConfig& config) {
  return hub::is_model_name(config.model_name_or_path);
}

std::string settings_folder(const train::TrainConfig& config) {
  if (!names_model(config)) return {};
  return hub::complete_folder({site_of(config), Part::settings, config.model_name_or_path,
                               config.model_revision, config.tokenizer_path.empty()});
}

void download_named(train::TrainConfig& config, const rendezvous::Contract& contract) {
  // Without the store of a launcher every rank downloads; all but one find everything in the cache.
  const bool waits = contract.world_size > 1 && contract.agent_store;
  try {
    apply_dataset_infos(config);
    if (!waits || contract.local_rank == 0)
      for (const auto& repository : named_repositories(config)) download(config, repository);
  } catch (const hub::HubError& error) {
    if (error.passing()) throw;
    train::throw_recipe_error(error.what());
  }
  if (waits && !named(config, kNamesAnywhere).empty()) {
    rendezvous::store::StoreClient store(contract.master_addr, contract.master_port,
                                         kOthersTimeout);
    store.barrier(
        fmt::format("mgpu-train/{}/{}/downloaded", contract.run_id, contract.restart_count),
        contract.world_size);
  }
  try {
    use_cached(config, true);
  } catch (const std::runtime_error& error) {
    if (rendezvous::is_passing(error)) throw;
    train::throw_recipe_error(error.what());
  }
}

void download_data(train::TrainConfig& config) {
  const hub::ProvideOptions options{.offline = is_offline(config), .say = [](const auto& line) {
                                      fmt::print(stderr, "{}\n", line);
                                    }};
  try {
    apply_dataset_infos(config);
    for (auto repository : named_repositories(config)) {
      repository.part = settings_of(repository.part);
      if (repository.is_dataset() || repository.name == config.model_name_or_path ||
          repository.name == config.tokenizer_path)
        hub::provide(repository, options);
    }
    use_cached(config, false);
  } catch (const std::runtime_error& error) {
    if (rendezvous::is_passing(error)) throw;
    train::throw_recipe_error(error.what());
  }
}

std::string downloaded_model(const std::string& name, Part part) {
  train::TrainConfig config;
  if (!hub::is_model_name(name)) return name;
  const Repository repository{site_of(config), part, name, "main"};
  auto folder =
      hub::provide(repository, {.offline = is_offline(config),
                                .say = [](const auto& line) { fmt::print(stderr, "{}\n", line); }});
  return repository.site == Site::modelscope ? folder : name;
}

std::vector<std::string> download_settings(train::TrainConfig& config,
                                           std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<std::string> lines;
  apply_dataset_infos(config);
  for (auto repository : named_repositories(config)) {
    repository.part = settings_of(repository.part);
    try {
      if (repository.is_dataset()) {
        if (!hub::is_provided(repository))
          lines.push_back(
              fmt::format("dataset {} is not in the cache: the run downloads it", repository.name));
        continue;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      hub::ProvideOptions options{.offline = is_offline(config)};
      options.limit = std::max(left, std::chrono::milliseconds(1));
      hub::provide(repository, options);
    } catch (const hub::HubError& error) {
      lines.emplace_back(error.what());
    }
  }
  use_cached(config, false);
  return lines;
}

void push_to_hub(const train::TrainConfig& config) {
  auto name = config.hub_model_id;
  const auto folder = std::filesystem::absolute(config.output_dir).lexically_normal();
  if (name.empty()) name = (folder.has_filename() ? folder : folder.parent_path()).filename();
  const hub::Upload upload{.folder = config.output_dir,
                           .name = name,
                           .revision = config.hub_revision,
                           .token = config.hub_token,
                           .is_private = config.hub_private_repo};
  say(fmt::format("uploading {} to {}/{}", upload.folder, hub::endpoint(Site::huggingface), name));
  try {
    hub::run_upload(upload);
    say(fmt::format("uploaded {}", name));
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "mgpu-train: cannot upload {}: {}; the model is in {}; to try again: {}\n",
               name, error.what(), upload.folder, hub::upload_command(upload));
  }
}

}  // namespace mgpu::recipes
