#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <arrow/type_fwd.h>

namespace mgpu::columnar {

// Whether values of a type can be written: strings, numbers, booleans, nulls, and lists, structs
// and dictionaries of these.
bool is_supported(const arrow::DataType& type);

// Appends one value as JSON. Members of structs that are null are left out, because Arrow gives
// every struct the members of all others. Requires a supported type, and an array that
// arrow::Array::Validate() has accepted. Throws std::runtime_error if the value is damaged.
void write_json(const arrow::Array& values, std::int64_t row, std::string& out);

// Appends a string in quotes.
void write_text(std::string_view text, std::string& out);

}  // namespace mgpu::columnar
