#include "runtime/model/families.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::model;

TEST_CASE("each family is found by its model_type and by its value", "[model]") {
  for (const auto& row : families()) {
    CAPTURE(row.model_type);
    CHECK(find_family(row.model_type) == &row);
    CHECK(&row_of(row.family) == &row);
    CHECK((row.read != nullptr && row.write != nullptr));
    CHECK(std::string(row.architecture).ends_with("ForCausalLM"));
  }
  CHECK(find_family("gpt2") == nullptr);
  CHECK(find_family("") == nullptr);
}

TEST_CASE("messages list the families in one sentence", "[model]") {
  CHECK(family_names() == "llama, mistral, qwen2 and qwen3");
}
