#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mgpu::comm {

// Remembers the latest collectives of this process, for the case that the job hangs: in which one
// this rank is. All ranks make the same calls in the same order, so the numbers can be compared.
// May be used by several threads; a call takes less than a microsecond.
class CollectiveLog {
 public:
  struct Entry {
    std::int64_t sequence = 0;  // from 1
    std::string name;
    std::int64_t elements = 0;  // of its tensor
    bool finished = false;
  };

  CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;
  ~CollectiveLog();

  // Returns the number of the collective.
  std::int64_t started(const char* name, std::int64_t elements);
  void finished(std::int64_t sequence);
  // Forgets everything and counts from 1 again: the ranks have connected again, one of them is new.
  void restart();

  // The first one that has not finished; if all have, the last one. Nullopt: none was started.
  std::optional<Entry> current() const;

 private:
  struct State;
  State* state_;
};

// The log of this process. It is never destroyed, because threads use it until the end.
CollectiveLog& collectives();

}  // namespace mgpu::comm
