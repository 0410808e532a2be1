#include "runtime/text/tokenizer_config.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/text/json_fields.hpp"
#include "runtime/text/tokenizer_file.hpp"

namespace mgpu::text {
namespace {

using nlohmann::json;

constexpr const char* kMap = "special_tokens_map.json";

json parsed(const std::map<std::string, std::string>& files, const std::string& name) {
  const auto file = files.find(name);
  if (file == files.end() || file->second.empty()) return json::object();
  if (rendezvous::nests_too_deeply(file->second))
    throw rendezvous::InputError(fmt::format("{}: nested too deeply", name));
  json content;
  try {
    content = json::parse(file->second);
  } catch (const json::exception& error) {
    throw rendezvous::InputError(fmt::format("{}: {}", name, error.what()));
  }
  if (!content.is_object())
    throw rendezvous::InputError(fmt::format("{}: must be an object", name));
  return content;
}

// A token is written as its text or as an object that contains it.
std::string token_in(const json& object, const std::string& key, const char* file) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  const json& token =
      found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  if (!token.is_string()) {
    throw rendezvous::InputError(fmt::format("{}: \"{}\" must be a token", file, key));
  }
  return token.get<std::string>();
}

std::string chat_template_of(const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const json& each : *found) {
      if (each.is_object() && each.value("name", json()) == "default") {
        return string_field(each, "template");
      }
    }
    return {};
  }
  throw rendezvous::InputError("\"chat_template\" must be a string or a list");
}

std::vector<AddedToken> added_tokens_of(const json& config) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return {};
  if (!decoder->is_object())
    throw rendezvous::InputError("\"added_tokens_decoder\" must be an object");
  json list = json::array();
  for (const auto& [key, token] : decoder->items()) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || !token.is_object()) {
      throw rendezvous::InputError(
          fmt::format("\"added_tokens_decoder\": \"{}\" must be an id with its token", key));
    }
    list.push_back(token);
    list.back()["id"] = id;
  }
  auto tokens = read_added_tokens(list);
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return tokens;
}

}  // namespace

std::string& token_of_role(TokenizerConfig& config, const std::string& role) {
  if (role == "bos_token") return config.bos_token;
  if (role == "eos_token") return config.eos_token;
  if (role == "pad_token") return config.pad_token;
  if (role == "unk_token") return config.unk_token;
  throw std::out_of_range(role);
}

void write_token_of_role(std::map<std::string, std::string>& files, const std::string& role,
                         const std::string& token) {
  const auto write = [&](const char* name) {
    auto content = nlohmann::ordered_json::parse(files[name].empty() ? "{}" : files[name]);
    content[role] = token;
    files[name] = content.dump(2) + "\n";
  };
  write(kTokenizerConfigFile);
  if (files.contains(kMap)) write(kMap);
}

TokenizerConfig read_tokenizer_config(const std::map<std::string, std::string>& files) {
  const json config = parsed(files, kTokenizerConfigFile);
  const json map = parsed(files, kMap);
  const auto token = [&](const std::string& key) {
    const std::string text = token_in(config, key, kTokenizerConfigFile);
    return text.empty() ? token_in(map, key, kMap) : text;
  };
  TokenizerConfig read{.bos_token = token("bos_token"),
                       .eos_token = token("eos_token"),
                       .pad_token = token("pad_token"),
                       .unk_token = token("unk_token")};
  try {
    const auto file = files.find(kChatTemplateFile);
    read.chat_template = file == files.end() ? chat_template_of(config) : file->second;
    read.added_tokens = added_tokens_of(config);
  } catch (const std::runtime_error& error) {
    rendezvous::throw_like(error, fmt::format("{}: {}", kTokenizerConfigFile, error.what()));
  }
  return read;
}

}  // namespace mgpu::text
