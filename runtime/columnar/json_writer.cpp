#include "runtime/columnar/json_writer.hpp"

#include <cmath>
#include <stdexcept>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <fmt/format.h>

namespace mgpu::columnar {

namespace {

using arrow::Type;

template <class Array>
const Array& as(const arrow::Array& values) {
  return static_cast<const Array&>(values);
}

// A number without a fraction stays one that has a fraction, as in Python.
void write_number(double number, std::string& out) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const auto text = fmt::format("{}", number);
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";
}

// Arrow reads offsets and indices of a file as they are.
void check_place(std::int64_t begin, std::int64_t size, std::int64_t all) {
  if (begin < 0 || size < 0 || size > all || begin > all - size)
    throw std::runtime_error("a value is outside of its data");
}

template <class Array>
void write_string(const arrow::Array& values, std::int64_t row, std::string& out) {
  const auto& texts = as<Array>(values);
  check_place(texts.value_offset(row), texts.value_length(row),
              texts.value_data() ? texts.value_data()->size() : 0);
  write_text(texts.GetView(row), out);
}

void write_string_view(const arrow::Array& values, std::int64_t row, std::string& out) {
  const auto& texts = as<arrow::StringViewArray>(values);
  const auto& view = texts.raw_values()[row];
  if (!view.is_inline()) {
    const auto& buffers = texts.data()->buffers;  // after those of the nulls and of the views
    check_place(view.ref.buffer_index, 1, static_cast<std::int64_t>(buffers.size()) - 2);
    const auto& buffer = buffers[static_cast<std::size_t>(view.ref.buffer_index) + 2];
    check_place(view.ref.offset, view.size(), buffer ? buffer->size() : 0);
  } else {
    check_place(0, view.size(), arrow::BinaryViewType::kInlineSize);
  }
  write_text(texts.GetView(row), out);
}

template <class Array>
void write_list(const arrow::Array& values, std::int64_t row, std::string& out) {
  const auto& list = as<Array>(values);
  check_place(list.value_offset(row), list.value_length(row), list.values()->length());
  const auto begin = list.value_offset(row), end = begin + list.value_length(row);
  out += '[';
  for (std::int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ',';
    write_json(*list.values(), i, out);
  }
  out += ']';
}

void write_struct(const arrow::Array& values, std::int64_t row, std::string& out) {
  const auto& all = as<arrow::StructArray>(values);
  out += '{';
  bool first = true;
  for (int i = 0; i < all.num_fields(); ++i) {
    const auto member = all.field(i);
    if (member->IsNull(row)) continue;
    if (!first) out += ',';
    first = false;
    write_text(all.struct_type()->field(i)->name(), out);
    out += ':';
    write_json(*member, row, out);
  }
  out += '}';
}

}  // namespace

bool is_supported(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::NA:
    case Type::BOOL:
    case Type::UINT8:
    case Type::INT8:
    case Type::UINT16:
    case Type::INT16:
    case Type::UINT32:
    case Type::INT32:
    case Type::UINT64:
    case Type::INT64:
    case Type::FLOAT:
    case Type::DOUBLE:
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
      return true;
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::STRUCT:
      for (const auto& field : type.fields())
        if (!is_supported(*field->type())) return false;
      return true;
    case Type::DICTIONARY:
      return is_supported(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return is_supported(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    default:
      return false;
  }
}

void write_json(const arrow::Array& values, std::int64_t row, std::string& out) {
  if (values.IsNull(row)) {
    out += "null";
    return;
  }
  switch (values.type_id()) {
    case Type::NA:
      out += "null";
      return;
    case Type::BOOL:
      out += as<arrow::BooleanArray>(values).Value(row) ? "true" : "false";
      return;
    case Type::UINT8:
      out += fmt::format("{}", static_cast<int>(as<arrow::UInt8Array>(values).Value(row)));
      return;
    case Type::INT8:
      out += fmt::format("{}", static_cast<int>(as<arrow::Int8Array>(values).Value(row)));
      return;
    case Type::UINT16:
      out += fmt::format("{}", as<arrow::UInt16Array>(values).Value(row));
      return;
    case Type::INT16:
      out += fmt::format("{}", as<arrow::Int16Array>(values).Value(row));
      return;
    case Type::UINT32:
      out += fmt::format("{}", as<arrow::UInt32Array>(values).Value(row));
      return;
    case Type::INT32:
      out += fmt::format("{}", as<arrow::Int32Array>(values).Value(row));
      return;
    case Type::UINT64:
      out += fmt::format("{}", as<arrow::UInt64Array>(values).Value(row));
      return;
    case Type::INT64:
      out += fmt::format("{}", as<arrow::Int64Array>(values).Value(row));
      return;
    case Type::FLOAT:
      write_number(static_cast<double>(as<arrow::FloatArray>(values).Value(row)), out);
      return;
    case Type::DOUBLE:
      write_number(as<arrow::DoubleArray>(values).Value(row), out);
      return;
    case Type::STRING:
      return write_string<arrow::StringArray>(values, row, out);
    case Type::LARGE_STRING:
      return write_string<arrow::LargeStringArray>(values, row, out);
    case Type::STRING_VIEW:
      return write_string_view(values, row, out);
    case Type::LIST:
      return write_list<arrow::ListArray>(values, row, out);
    case Type::LARGE_LIST:
      return write_list<arrow::LargeListArray>(values, row, out);
    case Type::FIXED_SIZE_LIST:
      return write_list<arrow::FixedSizeListArray>(values, row, out);
    case Type::STRUCT:
      return write_struct(values, row, out);
    case Type::DICTIONARY: {
      const auto& all = as<arrow::DictionaryArray>(values);
      check_place(all.GetValueIndex(row), 1, all.dictionary()->length());
      return write_json(*all.dictionary(), all.GetValueIndex(row), out);
    }
    case Type::EXTENSION:
      return write_json(*as<arrow::ExtensionArray>(values).storage(), row, out);
    default:
      throw std::logic_error("a column whose type is not supported is written");
  }
}

void write_text(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace mgpu::columnar
