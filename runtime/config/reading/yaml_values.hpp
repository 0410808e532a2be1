#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// What a value means to a key of some type. Each throws std::runtime_error("need ..., not ...")
// without a place, which the caller knows.

bool is_null(const YamlNode& value);  // nothing, ~, null, None

// true, yes, on, 1 and their opposites, in any case, quoted or not.
bool to_flag(const YamlNode& value);

// Any way a number is written: 5e-6, 1.0e-5, .5, +3, 1_000. Never infinite or NaN.
double to_number(const YamlNode& value);

// The same without a fraction: 5e8 and 4.0 are whole.
std::int64_t to_whole(const YamlNode& value);

std::string to_text(const YamlNode& value);

// A list of words; a scalar is "a, b" or "a b" or one word.
std::vector<std::string> to_words(const YamlNode& value);

// Numbers of GPUs, at least one and each once: as to_words, or one number.
std::vector<std::int64_t> to_gpus(const YamlNode& value);

// The value on one line, as flow YAML: for notes, and for keys that others read.
std::string flow_text(const YamlNode& value);

}  // namespace mgpu::train
