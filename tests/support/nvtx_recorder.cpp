// A library that NVTX loads instead of a profiler, if NVTX_INJECTION64_PATH names it. For every
// range it writes a line to the file $NVTX_RECORD.<process id>: the names of the open ranges of the
// thread, outermost first, joined by " > ".
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

thread_local std::vector<std::string> open_ranges;

FILE* record() {
  static FILE* const file = [] {
    const char* stem = getenv("NVTX_RECORD");
    if (stem == nullptr) return static_cast<FILE*>(nullptr);
    FILE* opened = fopen((std::string(stem) + "." + std::to_string(getpid())).c_str(), "ae");
    if (opened != nullptr) setvbuf(opened, nullptr, _IOLBF, 0);  // the process may end by _Exit
    return opened;
  }();
  return file;
}

int push(const char* name) {
  open_ranges.emplace_back(name);
  std::string line;
  for (const auto& range : open_ranges) line += (line.empty() ? "" : " > ") + range;
  if (record() != nullptr) fprintf(record(), "%s\n", line.c_str());
  return static_cast<int>(open_ranges.size()) - 1;
}

int pop() {
  if (!open_ranges.empty()) open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

template <class Function>
void replace(const NvtxFunctionTable table, unsigned int id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  replace(table, NVTX_CBID_CORE_RangePushA, push);
  replace(table, NVTX_CBID_CORE_RangePop, pop);
  return 1;
}
