#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/jinja/eval.hpp"

// What the interpreter puts on while it is inside something, and takes off again behind it.
namespace mgpu::text::jinja {

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter.depth_ > interpreter.limits_.depth)
      throw Failure(fmt::format("calls and expressions are nested more than {} deep",
                                interpreter.limits_.depth));
  }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

// What is written goes to a text of its own.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { interpreter_.out_ = outer_; }

  std::string text;

 private:
  Interpreter& interpreter_;
  std::string* outer_;
};

// A scope inside another, which the interpreter keeps to the end where a macro was defined in it.
class Interpreter::NewScope {
 public:
  NewScope(Interpreter& interpreter, Scope* outer)
      : interpreter_(interpreter),
        scope_(std::make_unique<Scope>(Scope{.outer = outer})),
        before_(std::exchange(interpreter.scope_, scope_.get())) {}
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;
  ~NewScope() {
    interpreter_.scope_ = before_;
    if (scope_->kept) interpreter_.kept_scopes_.push_back(std::move(scope_));
  }

 private:
  Interpreter& interpreter_;
  std::unique_ptr<Scope> scope_;
  Scope* before_;
};

}  // namespace mgpu::text::jinja
