#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// Fields of one object of tokenizer.json. A field that is absent or null gives the default; one of
// another type is refused with its name and its owner's.
bool bool_field(const nlohmann::json& object, const char* name, bool otherwise);
std::string string_field(const nlohmann::json& object, const char* name);

// The list under a name; one that is absent or no list is refused.
const nlohmann::json& list_field(const nlohmann::json& object, const char* name);

// The object's "type".
std::string type_of(const nlohmann::json& object, std::string_view what);

// Throws "WHAT type NAME is not supported".
[[noreturn]] void refuse_type(std::string_view what, std::string_view name);

}  // namespace mgpu::text
