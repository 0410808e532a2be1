#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/serial_thread.hpp"

namespace mgpu::launcher {

// Where `mgpu-run status` can query a multi-node job. Stored for this user's later commands on this
// machine, in a folder that only the user can read.
struct JobAddress {
  std::string host;
  int port = 0;
  std::optional<std::string> secret = {};  // empty: none is needed; nullopt: not known
};

// The folder of the notes: $XDG_RUNTIME_DIR/mgpu-run, else /tmp/mgpu-run-UID. If that is not one
// that only this user can access (another user may have created it), a folder in ~/.cache.
struct RegistryFolder {
  std::string path;     // empty: there is none, and nothing is noted
  std::string problem;  // of the first one, for a message; empty: none
};
RegistryFolder registry_folder();

// Best effort, errors are ignored: a job does not fail because its note cannot be written.
void note_job(const std::string& job, const JobAddress& address);
void forget_job(const std::string& job);

std::optional<JobAddress> find_job(const std::string& job);
// The ids of all noted jobs.
std::vector<std::string> noted_jobs();

// The status of a single-node job, which has no leader that could be queried. The note is of this
// process; it counts as long as the process lives.
void note_status(const std::string& job, const std::string& status);
void forget_status(const std::string& job);
// The statuses of the single-node jobs with this id, of all of them if it is empty.
std::vector<std::string> find_statuses(const std::string& job);

// Changes notes in a thread, in order: the file system of the notes may not respond.
class NoteThread {
 public:
  NoteThread() = default;
  NoteThread(const NoteThread&) = delete;
  NoteThread& operator=(const NoteThread&) = delete;
  ~NoteThread() { settle(); }

  // The change must own what it uses.
  void run(std::function<void()> change) { thread_.run(std::move(change)); }
  bool idle() const { return thread_.idle(); }
  // Waits a moment for changes that are under way.
  void settle() const;

 private:
  rendezvous::SerialThread thread_;
};

// A file that a leader updates while it leads and removes when its job ends. One that is left by a
// leader that crashed shows when it was last alive, and the size of its round, whose nodes may
// still run.
struct LeaderTrace {
  int nodes = 0;
  std::chrono::nanoseconds lease_and_grace{0};  // see Coordinator
  std::chrono::nanoseconds age{0};
};

void trace_leader(const std::string& job, int port, int nodes,
                  std::chrono::nanoseconds lease_and_grace);
void erase_leader(const std::string& job, int port);
std::optional<LeaderTrace> find_leader(const std::string& job, int port);

}  // namespace mgpu::launcher
