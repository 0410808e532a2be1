#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"
#include "runtime/rewards/outside.hpp"

namespace mgpu::rewards {

struct ChildProgram {
  std::vector<std::string> argv{};  // argv[0] is looked for in PATH
  std::string folder{};             // it runs there; empty: ours
  bool announces = false;           // its first line says that it is ready, or its error
};

// A program that answers lines on its stdin with lines on its stdout. It is started when it is
// first asked, in a process group of its own, and again after a failure, which ends it. It dies
// with us: by a signal when the thread that first asked ends, else by the end of its stdin.
// Destroying the Child kills the group and reaps the program.
class Child : public Correspondent {
 public:
  explicit Child(ChildProgram program);
  ~Child() override;

  std::string ask(const std::string& line, Deadline deadline) override;

 private:
  void start();
  void end();
  std::string exchange(std::string out, Deadline deadline);
  void write_some(const std::string& out, std::size_t& sent);
  bool read_some();  // false at the end of its stdout
  [[noreturn]] void report_end();

  ChildProgram program_;
  pid_t pid_ = -1;
  rendezvous::UniqueFd to_;
  rendezvous::UniqueFd from_;
  std::string received_;
};

}  // namespace mgpu::rewards
