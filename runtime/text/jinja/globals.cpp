#include <ctime>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/library.hpp"
#include "runtime/text/jinja/operators.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr Integer kLongestRange = 100'000;  // the sandbox's own limit

Value range(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters given("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = !given.has(1);
  const Integer start = one ? 0 : whole_number(given[0], "range's start");
  const Integer stop = whole_number(given[one ? 0 : 1], "range's end");
  const Integer step = given.has(2) ? whole_number(given[2], "range's step") : 1;
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  const Integer span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
  const Integer count = span <= 0 ? 0 : (span + by - 1) / by;
  if (count > kLongestRange)
    throw Failure(
        fmt::format("a range of {} elements is too long; the most is {}", count, kLongestRange));
  std::vector<Value> items;
  for (Integer i = 0; i < count; ++i) items.emplace_back(start + i * step);
  return Value::sequence(std::move(items), Sequence::Kind::range, interpreter.budget(),
                         {start, stop, step});
}

// The key-value pairs passed to dict() or namespace().
Dict pairs(Interpreter& interpreter, const Arguments& arguments, const char* name) {
  auto& budget = interpreter.budget();
  if (arguments.positional.size() > 1)
    throw Failure(fmt::format("{}() takes at most one positional argument", name));
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& given = arguments.positional[0];
    require_defined(given);
    if (given.dict()) {
      dict = *given.dict();
      budget.spend_elements(dict.entries().size() * 2);
    } else {
      const auto all = elements(given, budget);
      for (const auto& item : *all) {
        const auto both = elements(item, budget);
        if (both->size() != 2) throw Failure(fmt::format("{}() takes pairs", name));
        dict.set(both->at(0), both->at(1), budget);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) dict.set(Value(key), value, budget);
  return dict;
}

Value make_dict(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  return {pairs(interpreter, arguments, "dict")};
}

Value make_namespace(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  Namespace& space = interpreter.add_namespace();
  const Dict given = pairs(interpreter, arguments, "namespace");
  for (const auto& [key, value] : given.entries()) {
    if (!key.text()) throw Failure("a namespace's names are texts");
    space.attributes.emplace_back(key.text()->text, value);
  }
  return {&space};
}

Value raise_exception(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"}, 1);
  throw Failure(to_text(given[0], interpreter.budget()));
}

Value strftime_now(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"}, 1);
  const std::string format = to_text(given[0], interpreter.budget());
  if (format.size() > 1000) throw Failure("strftime_now's format is too long");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  // A character at the end distinguishes an empty result from a buffer that is too small.
  std::string out(format.size() * 64 + 64, '\0');
  const std::size_t size = std::strftime(out.data(), out.size(), (format + "|").c_str(), &local);
  if (size == 0) throw Failure("strftime_now's result is too long");
  out.resize(size - 1);
  return {std::move(out)};
}

constexpr Entry kGlobals[] = {
    {"dict", make_dict}, {"namespace", make_namespace},  {"raise_exception", raise_exception},
    {"range", range},    {"strftime_now", strftime_now},
};

}  // namespace

const Entry* find_global(std::string_view name) {
  return find_entry(kGlobals, name);
}

}  // namespace mgpu::text::jinja
