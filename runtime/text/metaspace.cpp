#include "runtime/text/metaspace.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/json_fields.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {

Metaspace read_metaspace(const nlohmann::json& description) {
  Metaspace read{.mark = string_field(description, "replacement")};
  if (read.mark.empty() || code_point_at(read.mark, 0).size != read.mark.size()) {
    throw rendezvous::InputError("\"replacement\" must be one character");
  }
  if (!description.contains("prepend_scheme")) {  // files written before that field existed
    const bool prefixed = bool_field(description, "add_prefix_space", true);
    read.prefix = prefixed ? Metaspace::Prefix::always : Metaspace::Prefix::never;
    return read;
  }
  const std::string scheme = string_field(description, "prepend_scheme");
  if (scheme == "first") {
    read.prefix = Metaspace::Prefix::first;
  } else if (scheme == "never") {
    read.prefix = Metaspace::Prefix::never;
  } else if (scheme != "always") {
    throw rendezvous::InputError(fmt::format("prepend_scheme {} is not supported", scheme));
  }
  return read;
}

}  // namespace mgpu::text
