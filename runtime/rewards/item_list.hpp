#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rewards {

// An item that completions can name.
struct Item {
  std::string name;  // as a completion names it, such as <a_1><b_2><c_3>
  std::string id;
  std::string where;  // "items.txt:3"
};

// The columns of a row that can contain the item to find: the first one whose text names one.
inline constexpr std::array kTargetColumns = {"solution", "target", "answer", "label",
                                              "completion"};

// A text without white space and quotation marks around it. Items are compared in this form.
std::string_view bare_name(std::string_view text);

// The item to find of a row, in that form; empty if the row has none.
template <class Row>
std::string_view target_in(const Row& row) {
  for (const auto* column : kTargetColumns) {
    const auto found = row.find(column);
    if (found == row.end() || !found->is_string()) continue;
    if (const auto name = bare_name(found->template get_ref<const std::string&>()); !name.empty())
      return name;
  }
  return {};
}

// The items of a recommender, in the order of their file. Items with the same name cannot be told
// apart: they count as one.
class ItemList {
 public:
  // Reads MiniOneRec's files: lines "name <tab> title <tab> item id", or, if the name ends with
  // .json, an object that has for every item id the list of texts that make up its name. Throws
  // std::runtime_error with the file, the line and the reason.
  static ItemList read(const std::string& path);
  static ItemList parse(const std::string& text, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Item>& all() const { return all_; }
  std::size_t names() const { return by_name_.size(); }  // different ones
  // The place in all() of the item that a text names; of several the last one, as in MiniOneRec.
  std::optional<std::size_t> find(std::string_view text) const;

 private:
  explicit ItemList(std::string path) : path_(std::move(path)) {}
  void read_lines(std::string_view text);
  void read_json(const std::string& text);
  void add(Item item);

  std::string path_;
  std::vector<Item> all_;
  std::map<std::string, std::size_t, std::less<>> by_name_, by_id_;
};

}  // namespace mgpu::rewards
