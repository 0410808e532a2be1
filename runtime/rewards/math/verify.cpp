#include "runtime/rewards/math/verify.hpp"

#include "runtime/rewards/math/extract.hpp"
#include "runtime/rewards/math/normalize.hpp"
#include "runtime/rewards/math/parse.hpp"

namespace mgpu::rewards::math {
namespace {

constexpr std::size_t kMostStatement = 4000;

// The part after the last = of a = b = c; the whole text if it is not such a chain.
std::string last_of_chain(const std::string& latex) {
  if (latex.find_first_of(",;") != latex.npos) return latex;
  std::size_t count = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < latex.size(); ++i) {
    const char before = i > 0 ? latex[i - 1] : '\0';
    if (latex[i] != '=' || before == '\\' || before == '<' || before == '>' || before == '!')
      continue;
    ++count;
    last = i + 1;
  }
  return count > 1 ? latex.substr(last) : latex;
}

Expr parse_or_null(const std::string& latex, const Spelling& spelling, bool& undecided) {
  try {
    return parse(latex, spelling);
  } catch (const Unsupported&) {
    undecided = true;
  } catch (const Malformed&) {
    if (const auto rest = last_of_chain(latex); rest != latex)
      return parse_or_null(rest, spelling, undecided);
  }
  return nullptr;
}

Reading read(const Statement& statement, const Spelling& spelling) {
  Reading reading;
  std::vector<Expr> values;
  bool all = true;
  for (const auto& part : statement.parts) {
    if (part.size() > kMostStatement) {
      reading.raw = part;
      return reading;
    }
    const auto latex = statement.bare ? part : normalized(part);
    reading.raw += (reading.raw.empty() ? "" : " and ") + latex;
    auto value = parse_or_null(latex, spelling, reading.undecided);
    if (value && statement.percent) value = node(Kind::percent, {value});
    all = all && value;
    if (value && value->kind == Kind::set) {
      values.insert(values.end(), value->args.begin(), value->args.end());
    } else {
      values.push_back(std::move(value));
    }
  }
  if (!all) return reading;
  reading.value = statement.parts.size() > 1 || values.size() != 1
                      ? node(Kind::set, std::move(values))
                      : values[0];
  return reading;
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

std::string_view end_of(std::string_view text) {
  return text.size() > kMostText ? text.substr(text.size() - kMostText) : text;
}

std::string_view without_spaces_around(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

std::optional<Reading> read_gold(std::string_view text) {
  const auto statement = find_gold(end_of(text));
  if (!statement) return std::nullopt;
  auto reading = read(*statement, {.repair = true});
  if (!reading.value && blank(reading.raw)) return std::nullopt;
  return reading;
}

std::optional<Reading> read_answer(std::string_view text) {
  const auto statement = find_answer(end_of(text));
  if (!statement) return std::nullopt;
  auto reading = read(*statement, {});
  if (!reading.value && blank(reading.raw)) return std::nullopt;
  return reading;
}

Verdict verify(const Reading& gold, const Reading& answer) {
  if (!blank(gold.raw) && without_spaces_around(gold.raw) == without_spaces_around(answer.raw))
    return Verdict::yes;
  if (!gold.value) return Verdict::unknown;
  if (!answer.value) return answer.undecided ? Verdict::unknown : Verdict::no;
  Work work;
  return compare(gold.value, answer.value, work);
}

}  // namespace mgpu::rewards::math
