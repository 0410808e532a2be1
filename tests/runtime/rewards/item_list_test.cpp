#include "runtime/rewards/item_list.hpp"

#include <fstream>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::rewards;
using Catch::Matchers::EndsWith;

namespace {

ItemList read_text(const std::string& name, const std::string& text) {
  const tests::TempDir dir;
  const auto path = dir.path(name);
  std::ofstream(path) << text;
  return ItemList::read(path);
}

std::string complaint(const std::string& name, const std::string& text) {
  return tests::message_of([&] { read_text(name, text); });
}

}  // namespace

TEST_CASE("MiniOneRec's info file has the name, the title and the id of each item", "[items]") {
  const auto items =
      read_text("items.txt",
                "<a_1><b_2>\tA \"drill\", 5 mm\t0\r\n<a_1><b_3>\tA saw\t1\n<a_1><b_2>\tOther\t7");
  REQUIRE(items.all().size() == 3);
  CHECK(items.all()[1].name == "<a_1><b_3>");
  CHECK(items.all()[2].id == "7");
  CHECK_THAT(items.all()[1].where, EndsWith("items.txt:2"));
  CHECK(items.find("<a_1><b_3>\n") == 1);
  CHECK(!items.find("<a_1>"));

  SECTION("items with the same name count as one, the last of them") {
    CHECK(items.names() == 2);
    CHECK(items.find(" \"<a_1><b_2>\"\n") == 2);
  }
}

TEST_CASE("MiniOneRec's index file has the parts of each item's name", "[items]") {
  const auto items =
      read_text("items.index.json", R"({"0": ["<a_1>", "<b_2>"], "5": ["<a_1>", "<b_3>"]})");
  REQUIRE(items.all().size() == 2);
  CHECK(items.all()[1].id == "5");
  CHECK(items.find("<a_1><b_3>") == 1);
}

TEST_CASE("an item's name may be the beginning of another one", "[items]") {
  const auto items = read_text("items.txt", "<a_1>\tt\t0\n<a_1><b_1>\tt\t1\n");
  CHECK(items.find("<a_1>") == 0);
  CHECK(items.find("<a_1><b_1>") == 1);
}

TEST_CASE("a bad list of items is refused with its line", "[items]") {
  struct Case {
    const char* name;
    const char* text;
    const char* message;
  };
  const auto [name, text, message] = GENERATE(values<Case>({
      {"items.txt", "",
       "items.txt contains no items; it needs a line for each: name, title and "
       "id, with tabs between"},
      {"items.txt", "<a_1>\tt\t0\n<a_2>\t1\n",
       "items.txt:2: need 3 columns with tabs between them: name, title and item id; found 2"},
      {"items.txt", "<a_1>\tt\t0\n\n<a_2>\tt\t1\n",
       "items.txt:2: need 3 columns with tabs between them: name, title and item id; found 0"},
      {"items.txt", "\tt\t0\n", "items.txt:1: the item has no name"},
      {"items.txt", "<a_1>\tt\t\n", "items.txt:1: the item has no id"},
      {"items.json", R"({"0": ["<a_1>"], "1": ["<a_2>"], "0": ["<a_3>"]})",
       "items.json: item 0 is there twice; remove one"},
      {"items.json", R"({"0": ["<a_1>", 2]})",
       "items.json: item 0: need a list of texts, such as [\"<a_1>\", \"<b_2>\"]"},
      {"items.json", R"({"0": "<a_1>"})",
       "items.json: item 0: need a list of texts, such as [\"<a_1>\", \"<b_2>\"]"},
      {"items.json", "[1]",
       "items.json: need a JSON object with a list of texts for every item id"},
      {"items.json", "{}",
       "items.json contains no items; it needs a line for each: name, title "
       "and id, with tabs between"},
  }));
  CAPTURE(text);
  CHECK_THAT(complaint(name, text), EndsWith(message));
}

TEST_CASE("an item id that is there twice is refused with both lines", "[items]") {
  const auto message = complaint("items.txt", "<a_1>\tt\t4\n<a_2>\tt\t5\n<a_3>\tt\t4\n");
  CHECK(message.find("items.txt:3: item 4 is also at ") != message.npos);
  CHECK_THAT(message, EndsWith("items.txt:1; remove one"));
}

TEST_CASE("a missing list of items is named", "[items]") {
  CHECK(tests::message_of([] { ItemList::read("/nowhere/items.txt"); }) ==
        "cannot read /nowhere/items.txt: No such file or directory");
}
