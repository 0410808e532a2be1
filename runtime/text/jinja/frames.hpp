#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/jinja/eval.hpp"

// Guards that change the interpreter's state inside a construct and restore it afterwards.
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

// Redirects output to its own text.
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

// A nested scope. If a macro was defined in it, the interpreter keeps it until the end of
// rendering.
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
