#include "runtime/text/json_fields.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::text {
namespace {

const nlohmann::json* field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

bool bool_field(const nlohmann::json& object, const char* name, bool otherwise) {
  const auto* const value = field(object, name);
  if (!value) return otherwise;
  if (!value->is_boolean())
    throw rendezvous::InputError(fmt::format("\"{}\" must be true or false", name));
  return value->get<bool>();
}

std::string string_field(const nlohmann::json& object, const char* name) {
  const auto* const value = field(object, name);
  if (!value || !value->is_string()) {
    throw rendezvous::InputError(fmt::format("\"{}\" must be a string", name));
  }
  return value->get<std::string>();
}

const nlohmann::json& list_field(const nlohmann::json& object, const char* name) {
  const auto* const value = field(object, name);
  if (!value || !value->is_array()) {
    throw rendezvous::InputError(fmt::format("\"{}\" must be a list", name));
  }
  return *value;
}

std::string type_of(const nlohmann::json& object, std::string_view what) {
  if (!object.is_object()) throw rendezvous::InputError(fmt::format("{} must be an object", what));
  try {
    return string_field(object, "type");
  } catch (const std::runtime_error& error) {
    rendezvous::throw_like(error, fmt::format("{}: {}", what, error.what()));
  }
}

void check_step_count(std::size_t steps, std::string_view what) {
  if (steps >= kMostSteps)
    throw rendezvous::InputError(fmt::format("{} has more than {} steps", what, kMostSteps));
}

void refuse_growth() {
  throw rendezvous::InputError(
      fmt::format("the tokenizer makes a text more than {} times as long", kMostGrowth));
}

void refuse_type(std::string_view what, std::string_view name) {
  throw rendezvous::InputError(fmt::format("{} type {} is not supported", what, name));
}

}  // namespace mgpu::text
