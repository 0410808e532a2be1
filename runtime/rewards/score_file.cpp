#include "runtime/rewards/score_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/rewards/catalog.hpp"

namespace mgpu::rewards {
namespace {

using nlohmann::json;

struct Row {
  json columns;
  std::string completion;
  std::vector<int> ids;
  bool truncated = false;
  std::size_t group = 0;
};

std::string completion_text(const json& columns) {
  const auto found = columns.find("completion");
  if (found == columns.end()) throw rendezvous::InputError("the row has no column completion");
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array() && !found->empty() && found->back().is_object() &&
      found->back().contains("content") && found->back()["content"].is_string())
    return found->back()["content"].get<std::string>();
  throw rendezvous::InputError("completion is neither text nor messages");
}

Row read_row(const std::string& line) {
  Row row;
  row.columns = rendezvous::parse_untrusted_json(line);
  if (!row.columns.is_object()) throw rendezvous::InputError("the line is not a JSON object");
  row.completion = completion_text(row.columns);
  if (const auto ids = row.columns.find("completion_ids"); ids != row.columns.end()) {
    const bool fits = ids->is_array() && std::all_of(ids->begin(), ids->end(), [](const json& id) {
                        return id.is_number_integer();
                      });
    if (!fits) throw rendezvous::InputError("completion_ids is not a list of integers");
    row.ids = ids->get<std::vector<int>>();
  }
  row.truncated = row.columns.value("truncated", json(false)) == json(true);
  return row;
}

std::size_t group_of(const Row& row, const std::vector<Row>& before) {
  const auto group = row.columns.find("group");
  if (group != row.columns.end()) {
    if (!group->is_number_unsigned())
      throw rendezvous::InputError("group is not a non-negative integer");
    return group->get<std::size_t>();
  }
  if (before.empty()) return 0;
  const auto& last = before.back();
  const bool same = row.columns.contains("prompt") && last.columns.contains("prompt") &&
                    row.columns["prompt"] == last.columns["prompt"];
  return same ? last.group : last.group + 1;
}

}  // namespace

void score_rows(std::istream& in, const std::string& source, const std::vector<std::string>& names,
                const Settings& settings, std::ostream& out) {
  const auto rewards = make_rewards(names, settings);
  std::vector<Row> rows;
  std::string line;
  errno = 0;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      auto row = read_row(line);
      row.group = group_of(row, rows);
      rows.push_back(std::move(row));
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(e, fmt::format("{}:{}: {}", source, number, e.what()));
    }
  }
  if (in.bad()) rendezvous::throw_errno("cannot read " + source, errno ? errno : EIO);
  std::vector<CompletionView> scored;
  for (const auto& row : rows)
    scored.push_back({row.completion, &row.columns, row.ids, row.truncated, row.group});
  std::vector<std::vector<Score>> columns;
  for (const auto& reward : rewards) reward->begin(scored);
  for (const auto& reward : rewards) columns.push_back(reward->score(scored));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    nlohmann::ordered_json answer = nlohmann::ordered_json::object();
    for (std::size_t r = 0; r < rewards.size(); ++r) {
      const auto& score = columns[r][i];
      answer[rewards[r]->name()] = score ? nlohmann::ordered_json(*score) : nullptr;
    }
    out << answer.dump() << "\n";
  }
  out.flush();
}

}  // namespace mgpu::rewards
