#include "launcher/hang_evidence/python_layout.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr std::size_t kWord = sizeof(Address);
constexpr std::size_t kInterpreterOfThread = 16;

bool is_thread_of(pid_t pid, std::int64_t thread) {
  return thread > 0 && ::access(fmt::format("/proc/{}/task/{}", pid, thread).c_str(), F_OK) == 0;
}

// Python before 3.13 does not publish where the lists of interpreters and threads begin, and the
// places differ between its builds. A thread is recognized by its thread id and by its pointer to
// the interpreter.
std::optional<Address> find_thread(pid_t pid, const ProcessMemory& memory, Address interpreter,
                                   std::size_t native_thread_id) {
  constexpr std::size_t kSearched = 32 * kWord;
  for (std::size_t at = 0; at < kSearched; at += kWord) try {
      const auto thread = memory.pointer(interpreter + at);
      if (thread % kWord == 0 && memory.pointer(thread + kInterpreterOfThread) == interpreter &&
          is_thread_of(pid, memory.value<std::int64_t>(thread + native_thread_id)))
        return thread;
    } catch (const std::runtime_error&) {
      continue;  // not a pointer
    }
  return std::nullopt;
}

Address first_thread(pid_t pid, const ProcessMemory& memory, Address runtime,
                     std::size_t native_thread_id) {
  constexpr std::size_t kSearched = 16 * kWord;
  for (std::size_t at = 0; at < kSearched; at += kWord) {
    const auto interpreter = memory.pointer(runtime + at);
    if (interpreter == 0 || interpreter % kWord != 0) continue;
    if (const auto thread = find_thread(pid, memory, interpreter, native_thread_id)) return *thread;
  }
  throw std::runtime_error("found no Python thread");
}

// From Python 3.13 on _PyRuntime begins with a table of sizes and offsets, in groups for each
// structure. Later versions added members to groups, so a group is found by its first members.
class PublishedOffsets {
 public:
  PublishedOffsets(const ProcessMemory& memory, Address runtime) {
    memory.read(runtime, words_.data(), sizeof words_);
    if (words_[kFreeThreaded] != 0)
      throw std::runtime_error("Python without a global interpreter lock is not supported");
  }

  PythonLayout layout(const ProcessMemory& memory, Address runtime) const {
    const auto thread = group(kInterpreter, {0, 8, 16});  // previous, next, interpreter
    const auto frame = group(thread + 4, {8, 0});         // caller, code
    const auto code = code_group(frame + 3);
    const auto interpreter = memory.pointer(runtime + words_[kFirstInterpreter]);
    return {.first_thread = memory.pointer(interpreter + words_[kFirstThread]),
            .native_thread_id = words_[thread + 6],
            .frame_of_thread = words_[thread + 4],
            .caller = 8,
            .code = 0,
            .instruction = words_[frame + 3],
            .file = words_[code + 1],
            .name = words_[code + 3],
            .first_line = words_[code + 5],
            .line_table = words_[code + 4],
            .bytecode = words_[code + 9]};
  }

 private:
  enum Index { kFreeThreaded = 2, kFirstInterpreter = 5, kInterpreter = 6, kFirstThread = 9 };

  std::size_t group(std::size_t from, std::initializer_list<Address> begins) const {
    for (auto at = from; at + 16 < words_.size(); ++at)
      if (words_[at] > 16 && words_[at] < 8192 &&
          std::equal(begins.begin(), begins.end(), words_.begin() + static_cast<long>(at) + 1))
        return at;
    throw std::runtime_error("this version of Python is not supported");
  }

  // file, name, qualified name and line table follow one another.
  std::size_t code_group(std::size_t from) const {
    for (auto at = from; at + 16 < words_.size(); ++at)
      if (words_[at + 1] > 0 && words_[at + 1] < words_[at] && words_[at] < 8192 &&
          words_[at + 2] == words_[at + 1] + 8 && words_[at + 3] == words_[at + 2] + 8 &&
          words_[at + 4] == words_[at + 3] + 8)
        return at;
    throw std::runtime_error("this version of Python is not supported");
  }

  std::array<Address, 80> words_{};
};

}  // namespace

PythonLayout python_layout(pid_t pid, const ProcessMemory& memory, Address runtime,
                           Address version) {
  const auto number = memory.value<std::uint64_t>(version);
  const auto major = number >> 24, minor = (number >> 16) & 0xff;
  if (major != 3) throw std::runtime_error("this version of Python is not supported");
  if (minor >= 13) return PublishedOffsets(memory, runtime).layout(memory, runtime);
  PythonLayout layout{.native_thread_id = 160,
                      .frame_of_thread = 56,
                      .through_cframe = true,
                      .frame_of_cframe = 8,
                      .caller = 48,
                      .code = 32,
                      .instruction = 56,
                      .file = 112,
                      .name = 128,
                      .first_line = 72,
                      .line_table = 136,
                      .bytecode = 184,
                      .text = 48};
  if (minor == 12) {
    layout.native_thread_id = 144;
    layout.frame_of_cframe = 0;
    layout.caller = 8;
    layout.code = 0;
    layout.first_line = 68;
    layout.bytecode = 192;
    layout.text = 40;
  }
  layout.first_thread = first_thread(pid, memory, runtime, layout.native_thread_id);
  return layout;
}

}  // namespace mgpu::launcher
