#include "runtime/rewards/item_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::rewards {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kShownName = 100;  // bytes of a name in a message

std::string shown_name(std::string_view name) {
  return rendezvous::shown(name, kShownName);
}

std::string file_text(const std::string& path) {
  using State = rendezvous::SmallFile::State;
  auto file = rendezvous::read_small_file(path, kMostBytes);
  switch (file.state) {
    case State::complete:
      return std::move(file.text);
    case State::too_large:
      throw rendezvous::InputError(fmt::format("{}: the file is larger than 1 GiB", path));
    case State::absent:
    case State::unreadable:
      throw std::runtime_error(fmt::format("cannot read {}: {}", path, std::strerror(file.error)));
    case State::not_regular:
      break;
  }
  throw std::runtime_error(fmt::format("cannot read {}: it is not a file", path));
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (auto tab = line.find('\t'); tab != line.npos; tab = line.find('\t')) {
    columns.push_back(line.substr(0, tab));
    line.remove_prefix(tab + 1);
  }
  columns.push_back(line);
  return columns;
}

// The texts of a JSON list, one after the other.
std::string joined(const nlohmann::json& parts, const std::string& where) {
  std::string name;
  for (const auto& part : parts.is_array() ? parts : nlohmann::json::array({nullptr})) {
    if (!part.is_string())
      throw rendezvous::InputError(where +
                                   ": need a list of texts, such as [\"<a_1>\", \"<b_2>\"]");
    name += part.get_ref<const std::string&>();
  }
  return name;
}

}  // namespace

std::string_view bare_name(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\n\"";
  const auto begin = text.find_first_not_of(kAround);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kAround) - begin + 1);
}

ItemList ItemList::read(const std::string& path) {
  return parse(file_text(path), path);
}

ItemList ItemList::parse(const std::string& text, const std::string& path) {
  ItemList items(path);
  path.ends_with(".json") ? items.read_json(text) : items.read_lines(text);
  if (items.all_.empty())
    throw rendezvous::InputError(
        path +
        " contains no items; it needs a line for each: name, title and id, with tabs between");
  return items;
}

std::optional<std::size_t> ItemList::find(std::string_view text) const {
  const auto found = by_name_.find(bare_name(text));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

void ItemList::read_lines(std::string_view text) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto where = fmt::format("{}:{}", path_, number);
    const auto columns = columns_of(line);
    if (columns.size() < 3)
      throw rendezvous::InputError(fmt::format(
          "{}: need 3 columns with tabs between them: name, title and item id; found {}", where,
          bare_name(line).empty() ? 0 : columns.size()));
    add({std::string(bare_name(columns.front())), std::string(bare_name(columns.back())), where});
  }
}

void ItemList::read_json(const std::string& text) {
  using Json = nlohmann::json;
  std::vector<std::string> ids;  // in the order of the file; an ordered_json finds keys slowly
  std::set<std::string> seen;
  const auto once = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth != 1 || event != Json::parse_event_t::key) return true;
    ids.push_back(parsed.get<std::string>());
    if (!seen.insert(ids.back()).second)
      throw rendezvous::InputError(
          fmt::format("{}: item {} is there twice; remove one", path_, shown_name(ids.back())));
    return true;
  };
  const auto json = rendezvous::nests_too_deeply(text) ? Json(Json::value_t::discarded)
                                                       : Json::parse(text, once, false);
  if (!json.is_object())
    throw rendezvous::InputError(path_ +
                                 ": need a JSON object with a list of texts for every item id");
  for (const auto& id : ids) {
    const auto& parts = json.at(id);
    const auto where = fmt::format("{}: item {}", path_, shown_name(id));
    add({std::string(bare_name(joined(parts, where))), id, where});
  }
}

void ItemList::add(Item item) {
  if (item.name.empty()) throw rendezvous::InputError(item.where + ": the item has no name");
  if (item.id.empty()) throw rendezvous::InputError(item.where + ": the item has no id");
  if (const auto [other, is_new] = by_id_.emplace(item.id, all_.size()); !is_new)
    throw rendezvous::InputError(fmt::format("{}: item {} is also at {}; remove one", item.where,
                                             shown_name(item.id), all_[other->second].where));
  by_name_.insert_or_assign(item.name, all_.size());
  all_.push_back(std::move(item));
}

}  // namespace mgpu::rewards
