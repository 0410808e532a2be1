#pragma once

#include <string>

namespace mgpu::recipes {

// What a model seems to be by its name, if that is not supported: "a gemma model", for instance.
// Empty: the name says nothing. Only for models whose config.json cannot be had, because a name
// proves nothing.
std::string unsupported_by_name(const std::string& model);

}  // namespace mgpu::recipes
