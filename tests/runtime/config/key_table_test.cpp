// The table of all keys.

#include "runtime/config/keys/key_table.hpp"

#include <fmt/format.h>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;

TEST_CASE("every accepted key is read", "[recipe][table]") {
  for (const auto& key : config_keys()) {
    for (const char* value : {"1", "true", "x", "[x]", "{x: 1}"}) {
      CAPTURE(key.name, value);
      CHECK_NOTHROW([&] {
        try {
          parse_recipe(fmt::format("{}: {}\n", key.name, value), "f");
        } catch (const RecipeError&) {
        }
      }());
    }
  }
}

TEST_CASE("every key has a help text", "[table]") {
  for (const auto& key : config_keys()) {
    CAPTURE(key.name);
    CHECK(find_key(key.name) == &key);
    for (const auto& alias : key.aliases) CHECK(find_key(alias) == &key);
    if (!key.sets.empty()) CHECK(find_key(key.sets));
    CHECK((key.use == KeyUse::used ? key.help : key.instead) != "");
  }
}
