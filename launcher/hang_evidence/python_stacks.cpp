#include "launcher/hang_evidence/python_stacks.hpp"

#include <cstdint>
#include <stdexcept>

#include "launcher/hang_evidence/line_table.hpp"
#include "launcher/hang_evidence/process_memory.hpp"
#include "launcher/hang_evidence/python_layout.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostPythonThreads = 256;
constexpr std::size_t kMostFrames = 256;
constexpr std::int64_t kLongestText = 4096;
constexpr std::int64_t kLongestTable = 1 << 20;
constexpr Address kTag = 7;  // bits of a reference that are not part of its address

// Offsets that no supported version has changed.
constexpr std::size_t kTextLength = 16, kTextState = 32;
constexpr std::size_t kBytesLength = 16, kBytes = 32;

class Interpreter {
 public:
  Interpreter(const ProcessMemory& memory, const PythonLayout& layout)
      : memory_(memory), layout_(layout) {}

  std::vector<PythonThread> threads() const {
    std::vector<PythonThread> all;
    for (Address at = layout_.first_thread; at != 0 && all.size() < kMostPythonThreads;
         at = memory_.pointer(at + layout_.next_thread)) {
      auto frame = memory_.pointer(at + layout_.frame_of_thread);
      if (layout_.through_cframe && frame != 0)
        frame = memory_.pointer(frame + layout_.frame_of_cframe);
      all.push_back({memory_.value<pid_t>(at + layout_.native_thread_id), frames(frame)});
    }
    return all;
  }

 private:
  // The thread may run meanwhile: what it has changed ends the stack.
  std::vector<PythonFrame> frames(Address at) const {
    std::vector<PythonFrame> all;
    for (std::size_t count = 0; at != 0 && count < kMostFrames; ++count) try {
        if (auto frame = frame_at(at); !frame.file.empty()) all.push_back(std::move(frame));
        at = memory_.pointer(at + layout_.caller);
      } catch (const std::runtime_error&) {
        break;
      }
    return all;
  }

  // A frame without a file is not one of a Python function.
  PythonFrame frame_at(Address at) const try {
    const auto code = memory_.pointer(at + layout_.code) & ~kTag;
    PythonFrame frame{.file = text(memory_.pointer(code + layout_.file)),
                      .line = memory_.value<std::int32_t>(code + layout_.first_line),
                      .function = text(memory_.pointer(code + layout_.name))};
    const auto table = memory_.pointer(code + layout_.line_table);
    const auto size = memory_.value<std::int64_t>(table + kBytesLength);
    const auto instruction = static_cast<std::int64_t>(
        (memory_.pointer(at + layout_.instruction) & ~Address{1}) - (code + layout_.bytecode));
    if (size > 0 && size <= kLongestTable)
      frame.line =
          line_of_instruction(memory_.bytes(table + kBytes, static_cast<std::size_t>(size)),
                              frame.line, instruction / 2)
              .value_or(frame.line);
    return frame;
  } catch (const std::runtime_error&) {
    return {};
  }

  // A str in one of CPython's four forms. Characters beyond ASCII become '?'.
  std::string text(Address at) const {
    const auto length = memory_.value<std::int64_t>(at + kTextLength);
    if (length < 0 || length > kLongestText) throw std::runtime_error("not a text");
    const auto state = memory_.value<std::uint32_t>(at + kTextState);
    const auto kind = (state >> kKindShift) & 7u;
    const bool ascii = state >> (kKindShift + 4) & 1u;
    if (kind != 1 && kind != 2 && kind != 4) throw std::runtime_error("not a text");
    // The part of the object that only other texts have: a copy in UTF-8 and its length, and before
    // Python 3.12 another length.
    const std::size_t more = layout_.text == 40 ? 16 : 24;
    const auto raw = memory_.bytes(at + layout_.text + (ascii ? 0 : more),
                                   static_cast<std::size_t>(length) * kind);
    std::string out;
    for (std::size_t i = 0; i < raw.size(); i += kind) {
      bool plain = static_cast<unsigned char>(raw[i]) < 128;
      for (std::size_t j = 1; j < kind; ++j) plain &= raw[i + j] == 0;
      out += plain ? raw[i] : '?';
    }
    return out;
  }

  static constexpr unsigned kKindShift = 2;

  const ProcessMemory& memory_;
  const PythonLayout& layout_;
};

}  // namespace

PythonStacks read_python_stacks(pid_t pid) try {
  const auto symbols = find_symbols(pid, "libpython", {"_PyRuntime"});
  if (symbols.empty()) return {};
  const auto version = find_symbols(pid, "libpython", {"Py_Version"});
  if (version.empty()) return {{}, "Python before 3.11 is not supported"};
  const ProcessMemory memory(pid);
  const auto layout = python_layout(pid, memory, symbols[0], version[0]);
  return {Interpreter(memory, layout).threads(), {}};
} catch (const std::exception& failed) {
  return {{}, failed.what()};
}

}  // namespace mgpu::launcher
