// Bytes as a JSONL file: lines become rows, rows examples of every format, examples go through a
// shard file. The first byte selects options.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "runtime/data/example.hpp"
#include "runtime/data/shard.hpp"
#include "tests/runtime/data/toy_encoder.hpp"

using namespace mgpu::data;

namespace {

const mgpu::tests::ToyEncoder kEncoder;

void require(bool what) {
  if (!what) std::abort();
}

void check_message(std::string_view message) {
  require(!message.empty() && message.size() < 1500);
  require(message.find('\n') == message.npos && message.find('\0') == message.npos);
  for (std::string_view rest = message; !rest.empty();) {
    const std::size_t length = character_length(rest);
    require(length > 0);
    rest.remove_prefix(length);
  }
}

// Our parser accepts and reads the same as that of the package, except where it is stricter.
Json checked_row(std::string_view line) {
  const Json theirs = Json::parse(line, nullptr, false);
  try {
    Json ours = parse_row(line);
    require(ours == theirs);
    return ours;
  } catch (const RowError& e) {
    const std::string_view what = e.what();
    check_message(what);
    bool stricter = false;
    for (const char* const word : {"twice", "deeper", "does not fit", "more than"})
      stricter = stricter || what.find(word) != what.npos;
    // The package treats a zero byte as the end, and skips a BOM.
    stricter = stricter || line.find('\0') != line.npos || line.starts_with("\xEF\xBB\xBF");
    require(stricter || theirs.is_discarded() || !theirs.is_object());
    throw;
  }
}

void check_example(const Example& example) {
  require(example.ids.size() == example.labels.size());
  for (const std::int32_t id : example.ids) require(id >= 0);
  for (const std::int32_t label : example.labels) require(label >= 0 || label == kNoLabel);
}

void check_shard(const ShardWriter& writer, std::size_t examples) {
  const std::string key(64, '0');
  const std::string path = fmt::format("/dev/shm/mgpu-jsonl-fuzz-{}", ::getpid());
  write_atomically(path, writer.finish(key, 0));
  const Shard shard(path, key, 0);
  ::unlink(path.c_str());
  require(shard.size() == examples);
  for (const ShardNote& note : shard.notes()) require(note.line < 100000);
}

RowOptions options_of(std::uint8_t choice) {
  RowOptions options;
  if (choice & 1) options.assistant_only_loss = true;
  if (choice & 2) options.completion_only_loss = (choice & 4) != 0;
  if (choice & 8) options.prompt_template = "{text} {{{a}}}";
  if (choice & 16) options.map_sharegpt_roles = false;
  if (choice & 32) options.vocabulary = 1000;
  return options;
}

void read_file(std::string_view rest, const RowOptions& options) {
  ShardWriter writer;
  std::size_t examples = 0;
  for (std::uint64_t line = 0; !rest.empty(); ++line) {
    const std::string_view row = take_line(rest);
    if (blank(row)) continue;
    try {
      const Json parsed = checked_row(row);
      const Format format = format_of(parsed, options);
      const RowReader reader(format, options, is_conversational(format, parsed, kEncoder),
                             kEncoder);
      const Example example = reader.read(parsed);
      check_example(example);
      writer.add(example, line);
      ++examples;
    } catch (const std::runtime_error& e) {
      check_message(e.what());
      writer.add_bad(line, e.what());
    }
  }
  if (examples > 0) check_shard(writer, examples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  read_file(std::string_view(reinterpret_cast<const char*>(bytes) + 1, size - 1),
            options_of(bytes[0]));
  return 0;
}
