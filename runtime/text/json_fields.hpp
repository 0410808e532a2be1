#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// Fields of one object of tokenizer.json. An absent or null field gives the default. A field of
// another type throws an error with its name.
bool bool_field(const nlohmann::json& object, const char* name, bool otherwise);
std::string string_field(const nlohmann::json& object, const char* name);

// The list under a name. Throws if it is absent or not a list.
const nlohmann::json& list_field(const nlohmann::json& object, const char* name);

// The object's "type".
std::string type_of(const nlohmann::json& object, std::string_view what);

// Throws "WHAT type NAME is not supported".
[[noreturn]] void refuse_type(std::string_view what, std::string_view name);

}  // namespace mgpu::text
