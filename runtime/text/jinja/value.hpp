#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text::jinja {

// An error without the template's line, which the parser or the interpreter adds.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The work a template may do. A step is roughly one evaluated node, one element or 16 bytes of
// output.
class Budget {
 public:
  explicit Budget(std::size_t steps) : left_(steps), all_(steps) {}

  void spend(std::size_t steps) {
    if (steps > left_) exhausted();
    left_ -= steps;
  }
  void spend_bytes(std::size_t bytes) { spend(1 + bytes / 16); }
  void spend_elements(std::size_t count) { spend(count * 2); }

 private:
  [[noreturn]] void exhausted() const;

  std::size_t left_, all_;
};

using Integer = __int128;  // unlimited in Python; JSON has signed and unsigned 64 bits

class Value;
class Interpreter;
class Loop;
struct Macro;
struct Namespace;

struct None {};
struct Undefined {
  std::string why;
};
struct Text {
  std::string text;
  bool safe = false;  // Markup: text that is joined to it by + or % is HTML-escaped
};

struct Range {
  Integer start = 0, stop = 0, step = 1;
};

// A value that is iterated by position. Shared and immutable, except for a generator's `next`.
struct Sequence {
  enum class Kind { list, tuple, range, generator, keys, values, items };

  Kind kind = Kind::list;
  std::vector<Value> items;
  std::size_t next = 0;  // for a generator: the number of items already taken
  Range range{};
  int depth = 0;
};

// A dictionary in order of insertion.
class Dict {
 public:
  void set(Value key, Value value, Budget& budget);
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::size_t position(std::string_view key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // for text keys, once there are many
  int depth_ = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
using Function = Value (*)(Interpreter&, const Value& self, const Arguments&);
struct Callable;

// A value of the template language. Copies share their contents. As in Jinja's immutable sandbox,
// only namespaces and generators can change.
class Value {
 public:
  using Shared = std::shared_ptr<Sequence>;
  using Storage = std::variant<std::shared_ptr<const Undefined>, None, bool, Integer, double,
                               std::shared_ptr<const Text>, Shared, std::shared_ptr<const Dict>,
                               Namespace*, std::shared_ptr<Loop>, std::shared_ptr<const Callable>>;

  Value() : storage_(None{}) {}
  Value(bool value) : storage_(value) {}
  Value(Integer value) : storage_(value) {}
  Value(double value) : storage_(value) {}
  Value(std::string text, bool safe = false);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Dict dict);
  Value(Namespace* space) : storage_(space) {}
  Value(std::shared_ptr<Loop> loop) : storage_(std::move(loop)) {}
  Value(Callable callable);
  static Value undefined(std::string why);
  static Value integer(std::size_t value) { return {static_cast<Integer>(value)}; }
  static Value sequence(std::vector<Value> items, Sequence::Kind kind, Budget& budget,
                        Range range = {});
  static Value list(std::vector<Value> items, Budget& budget) {
    return sequence(std::move(items), Sequence::Kind::list, budget);
  }

  template <class Type>
  const Type* get() const {
    return std::get_if<Type>(&storage_);
  }
  // The contents, or null if the value is of another kind.
  const Undefined* undefined() const { return pointer<std::shared_ptr<const Undefined>>(); }
  const Text* text() const { return pointer<std::shared_ptr<const Text>>(); }
  Sequence* sequence() const { return pointer<Shared>(); }
  const Dict* dict() const { return pointer<std::shared_ptr<const Dict>>(); }
  const Callable* callable() const { return pointer<std::shared_ptr<const Callable>>(); }
  Namespace* space() const { return get<Namespace*>() ? *get<Namespace*>() : nullptr; }
  Loop* loop() const { return pointer<std::shared_ptr<Loop>>(); }
  bool is_none() const { return get<None>() != nullptr; }
  bool is(Sequence::Kind kind) const { return sequence() && sequence()->kind == kind; }

  int depth() const;  // nesting depth of the values
  bool truth() const;
  const char* type_name() const;  // the name of its Python type

 private:
  template <class Pointer>
  typename Pointer::element_type* pointer() const {
    const auto* held = std::get_if<Pointer>(&storage_);
    return held ? held->get() : nullptr;
  }

  Storage storage_;
};

struct Callable {
  std::string name;
  Function function = nullptr;
  Value self{};
  const Macro* macro = nullptr;  // used instead of the function
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// Returns the nesting depth of a value. Throws if it is too deep for the stack.
int check_depth(int depth);

// Throws if Python could not use the value as a key.
void require_hashable(const Value& value);

// Throws like Python if an undefined value is used.
void require_defined(const Value& value);

Value from_json(const nlohmann::ordered_json& json, Budget& budget);

}  // namespace mgpu::text::jinja
