#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer.hpp"
#include "runtime/text/unicode.hpp"

using mgpu::text::Tokenizer;

namespace {

// A pair of texts is never longer than allowed, unless its special tokens alone are.
void use_pair(const Tokenizer& tokenizer, std::string_view text) {
  try {
    const auto pair = tokenizer.encode_pair(text, "a", 2000).both;
    if (pair.ids.size() != pair.types.size() || pair.ids.size() > 2000) std::abort();
  } catch (const std::runtime_error&) {  // the file has no template for pairs
  }
}

// Runs a tokenizer on text: ids are valid, decoded text is UTF-8, a saved tokenizer is readable.
void use(Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, true);
  if (ids != tokenizer.encode(text, true)) std::abort();
  const std::string decoded = tokenizer.decode(ids, false);
  if (mgpu::text::first_invalid_utf8(decoded)) std::abort();
  tokenizer.decode(ids, true);
  use_pair(tokenizer, text);
  tokenizer.add_tokens({"<new>", "a"}, true);
  const auto& files = tokenizer.files();
  const auto again = Tokenizer::parse(files.at("tokenizer.json"));
  if (again.id_of("<new>") != tokenizer.id_of("<new>")) std::abort();
  if (again.size() != tokenizer.size()) std::abort();
}

}  // namespace

// tokenizer.json up to the first NUL byte, then text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::string_view file = input.substr(0, input.find('\0'));
  const std::string_view text = input.substr(std::min(size, file.size() + 1));
  try {
    Tokenizer tokenizer = Tokenizer::parse(file);
    use(tokenizer, text);
  } catch (const std::runtime_error&) {
  }
  return 0;
}
