#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/rewards/accuracy.hpp"
#include "runtime/rewards/math/normalize.hpp"
#include "runtime/rewards/math/parse.hpp"
#include "runtime/rewards/math/verify.hpp"

using namespace mgpu::rewards;

namespace {

// Any text becomes an expression that equals itself, or is rejected.
void check_parse(const std::string& text, bool repair) {
  try {
    const auto value = math::parse(math::normalized(text), {.repair = repair});
    math::Work work;
    if (math::compare(value, value, work) != math::Verdict::yes) std::abort();
  } catch (const math::Malformed&) {
  } catch (const math::Unsupported&) {
  }
}

}  // namespace

// The first line is the reference answer, the rest the completion.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto line = text.find('\n');
  const auto gold = text.substr(0, line);
  const auto completion = line == text.npos ? "" : text.substr(line + 1);
  check_parse(completion, false);
  check_parse(gold, true);
  const auto first = answered(completion, gold);
  if (answered(completion, gold) != first) std::abort();
  const auto boxed = answered("\\boxed{" + completion + "}", "$" + gold + "$");
  if (completion == gold && gold.find_first_of("{}$\\\n") == gold.npos &&
      boxed == Answered::wrong && math::read_answer("\\boxed{" + gold + "}") &&
      math::read_gold("$" + gold + "$")->raw == math::read_answer("\\boxed{" + gold + "}")->raw)
    std::abort();
  return 0;
}
