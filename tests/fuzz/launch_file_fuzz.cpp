#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "launcher/options/launch_file.hpp"

using namespace mgpu::launcher;

namespace {

// Any file gives settings, or is rejected with one short line that names it.
void check_message(const std::string& message, bool of_file) {
  const bool one_line = message.find('\n') == message.npos && message.find('\0') == message.npos;
  if (!one_line || message.size() > 600 || (of_file && !message.starts_with("f:"))) std::abort();
}

void apply(const LaunchFile& file) {
  Options options;
  for (const auto& setting : file.settings) {
    try {
      setting.spec->set(options, setting.value);
    } catch (const UsageError& e) {
      check_message(e.what(), false);
      check_message(setting.origin().text(), true);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  for (const int kind : {0, 1, 2}) {
    try {
      apply(kind == 0 ? parse_recipe(text, "f") : parse_config(text, "f", kind == 2));
    } catch (const UsageError& e) {
      check_message(e.what(), true);
    }
  }
  return 0;
}
