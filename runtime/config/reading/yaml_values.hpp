#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// Conversions of a value to the type of its key. Each throws std::runtime_error("need ..., not
// ..."); the caller adds file and line.

bool is_null(const YamlNode& value);  // no value, ~, null or None

// Accepts true, yes, on, 1 and their opposites, in any case, quoted or not.
bool to_flag(const YamlNode& value);

// Accepts numbers such as 5e-6, 1.0e-5, .5, +3 and 1_000. The result is finite.
double to_number(const YamlNode& value);

// Accepts the same numbers without a fraction: 5e8 and 4.0 are whole.
std::int64_t to_whole(const YamlNode& value);

std::string to_text(const YamlNode& value);

// A list of words. A scalar may be "a, b", "a b" or one word.
std::vector<std::string> to_words(const YamlNode& value);

// GPU numbers, at least one and without repetition, written as for to_words.
std::vector<std::int64_t> to_gpus(const YamlNode& value);

// Numbers of steps, counted from 1, in ascending order without repetition; at most 100. Written as
// for to_words, with ranges such as 10-12.
std::vector<std::int64_t> to_steps(const YamlNode& value);

// The value on one line, as flow YAML, for notes and for keys that other code parses.
std::string flow_text(const YamlNode& value);

}  // namespace mgpu::train
