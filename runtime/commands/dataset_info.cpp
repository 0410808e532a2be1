#include "runtime/commands/dataset_info.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestFile = 16 << 20;
constexpr std::size_t kShownNames = 300;  // bytes

using Words = std::pair<std::string_view, std::string_view>;

// The file's name of a column, and ours.
constexpr std::array kAlpacaColumns = {
    Words{"prompt", "instruction"}, Words{"query", "input"},     Words{"response", "output"},
    Words{"system", "system"},      Words{"history", "history"}, Words{"tools", "tools"},
};
constexpr std::array kChatColumns = {
    Words{"messages", "conversations"},
    Words{"system", "system"},
    Words{"tools", "tools"},
};
// A tag, our role, and the role in a file without the tag.
struct RoleTag {
  std::string_view tag, ours, role;
};
constexpr std::array kRoleTags = {
    RoleTag{"user_tag", "user", "human"},
    RoleTag{"assistant_tag", "assistant", "gpt"},
    RoleTag{"observation_tag", "tool", "observation"},
    RoleTag{"function_tag", "function_call", "function_call"},
    RoleTag{"system_tag", "system", "system"},
};

// Reads one entry.
class Entry {
 public:
  Entry(std::string name, const Json& entry) : name_(std::move(name)), entry_(entry) {
    if (!entry.is_object()) fail("is not an object");
  }

  void apply(train::DataSource& source) const {
    for (const char* unsupported : {"script_url", "cloud_file_name"})
      if (entry_.contains(unsupported))
        fail(fmt::format("has {}, which is not supported; use file_name or hf_hub_url",
                         unsupported));
    if (entry_.value("ranking", Json(false)) == true)
      fail("has ranking: true: pairs of preferences are not supported");
    if (const auto file = text("file_name"); !file.empty()) {
      source.path = (fs::path(source.info_folder) / file).string();
      source.is_path = true;
    } else if (const auto hub = text("hf_hub_url"); !hub.empty()) {
      source.path = hub;
      source.is_path = false;
    } else {
      fail("has neither file_name nor hf_hub_url");
    }
    if (const auto subset = text("subset"); !subset.empty()) source.subset = subset;
    if (const auto split = text("split"); !split.empty()) source.split = split;
    source.data_dir = text("folder");
    if (const auto count = entry_.value("num_samples", Json(nullptr)); count.is_number_integer())
      source.max_samples = count.get<std::int64_t>();
    apply_columns(source);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{} {}", name_, what));
  }

  std::string text(const char* key) const { return text_in(entry_, key); }

  std::string text_in(const Json& map, std::string_view key) const {
    const auto found = map.find(std::string(key));
    if (found == map.end() || found->is_null()) return {};
    if (!found->is_string()) fail(fmt::format("has a {} that is no string", key));
    return found->get<std::string>();
  }

  void apply_columns(train::DataSource& source) const {
    const auto formatting = text("formatting");
    const bool is_chat = formatting == "sharegpt" || formatting == "openai";
    if (!is_chat && !formatting.empty() && formatting != "alpaca")
      fail(fmt::format("has the formatting {}; need alpaca, sharegpt or openai", formatting));
    const Json columns = entry_.value("columns", Json::object());
    const auto use = [&](const auto& words) {
      for (const auto& [theirs, ours] : words)
        if (const auto column = text_in(columns, theirs); !column.empty())
          source.names.columns[std::string(ours)] = column;
    };
    for (const char* media : {"images", "videos", "audios"})
      if (columns.contains(media)) fail(fmt::format("has {}: only text is supported", media));
    source.format = is_chat ? "sharegpt" : "alpaca";
    if (!is_chat) return use(kAlpacaColumns);
    use(kChatColumns);
    source.assistant_only_loss = true;
    apply_tags(source, formatting == "openai");
  }

  void apply_tags(train::DataSource& source, bool openai) const {
    const Json tags = entry_.value("tags", Json::object());
    auto& names = source.names;
    const auto role = text_in(tags, "role_tag"), content = text_in(tags, "content_tag");
    names.message_fields["role"] = !role.empty() ? role : openai ? "role" : "from";
    names.message_fields["content"] = !content.empty() ? content : openai ? "content" : "value";
    for (const auto& [tag, ours, usual] : kRoleTags) {
      const auto given = text_in(tags, tag);
      if (!openai || !given.empty()) names.roles[given.empty() ? std::string(usual) : given] = ours;
    }
  }

  std::string name_;
  const Json& entry_;
};

}  // namespace

void apply_dataset_info(train::DataSource& source) {
  if (source.info_folder.empty()) return;
  const auto path = (fs::path(source.info_folder) / "dataset_info.json").string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const auto name = fs::path(source.path).lexically_relative(source.info_folder).string();
  const auto& key = source.is_path ? name : source.path;
  const Json info =
      Json::parse(checkpoint::parse_json(checkpoint::read_file(path, kLongestFile), path).dump());
  const auto found = info.find(key);
  if (found == info.end()) {
    if (fs::exists(source.path, ignored)) return;
    std::string names;
    for (const auto& [other, entry] : info.items())
      if (names.size() < kShownNames) names += (names.empty() ? "" : ", ") + other;
    throw std::runtime_error(fmt::format("{} has no dataset {}; it has {}", path, key, names));
  }
  Entry(fmt::format("{}: {}", path, key), *found).apply(source);
}

}  // namespace mgpu::recipes
