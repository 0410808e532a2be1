#pragma once

#include <cstddef>

#include "launcher/hang_evidence/process_memory.hpp"

namespace mgpu::launcher {

// Offsets within the structures of a CPython interpreter.
struct PythonLayout {
  Address first_thread = 0;  // its address in the process
  std::size_t next_thread = 8, native_thread_id = 0;
  // From a thread to its innermost frame: a pointer to the frame, or to a structure with a pointer.
  std::size_t frame_of_thread = 0;
  bool through_cframe = false;
  std::size_t frame_of_cframe = 0;
  std::size_t caller = 0, code = 0, instruction = 0;                             // of a frame
  std::size_t file = 0, name = 0, first_line = 0, line_table = 0, bytecode = 0;  // of a code object
  std::size_t text = 40;  // of the characters in a str that has ASCII characters only
};

// The layout of the interpreter that the process runs, from the addresses of _PyRuntime and
// Py_Version. Throws std::runtime_error if the version is not supported.
PythonLayout python_layout(pid_t pid, const ProcessMemory& memory, Address runtime,
                           Address version);

}  // namespace mgpu::launcher
