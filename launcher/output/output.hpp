#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/output/file_thread.hpp"
#include "launcher/output/sink.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

class RankStream;

// Distributes the output of the ranks: to our stdout and stderr in whole lines, to log files, and
// the end of each rank's stderr to memory for the failure report. A slow reader, or a slow file
// system, blocks the ranks, whose pipes fill up, but never this process.
class Output {
 public:
  Output(boost::asio::io_context& io, const Options& options, int ranks);
  ~Output();

  // The write ends of the pipes or terminals of a rank; the caller closes them once it has started.
  struct ChildEnds {
    rendezvous::UniqueFd out, err;
  };
  // Opens the streams of one rank for one attempt. `prefix` is put before its lines where the
  // options require it; `log_dir` is the rank's own folder, empty: none. `appends`: its log files
  // are continued.
  ChildEnds open_rank(int local_rank, const std::string& prefix, const std::string& log_dir,
                      bool appends = false);

  // From now on open_rank() passes on the output of a rank without this line, which the rank prints
  // once on each stream.
  void hide_mark(std::string mark) { mark_ = std::move(mark); }
  bool saw_mark(int local_rank) const;

  // Whether a rank that writes has to wait, because the console or its log file is full.
  bool full() const;
  // How many bytes of the rank's current process were read.
  std::uint64_t bytes_from(int local_rank) const;
  // Forgets the streams of the previous attempt.
  void begin_attempt();
  // Reads what the rank left in its pipes, even if the console is full.
  void drain(int local_rank);
  // Ends the streams of the attempt: completes unfinished lines and closes files.
  void end_attempt();
  // The last lines that the rank wrote to stderr (at most 16 KiB), also after end_attempt.
  std::string stderr_tail(int local_rank) const;
  // Writes the last 64 KiB of each stream that has no log file to the folder of a failed rank.
  void save_tails(int local_rank, const std::string& log_dir);

  // Prints a line of mgpu-run on stderr, after everything that the ranks wrote before.
  void print_line(std::string_view line);
  bool flushed() const;
  // Called once everything is written. Files that have not been written after a minute are given
  // up, with a message.
  void when_flushed(std::function<void()> done);
  // Whether a write to our stdout failed and the rest was discarded.
  bool lost() const { return lost_; }
  // Passes a new window size on to the ranks' terminals.
  void resize_terminals();

  // Reports, once, that a log file could not be written; the job continues without it.
  void log_failed(const std::string& path, int error);
  Sink& console(bool err) { return err && err_ ? *err_ : *out_; }
  // Does the file operations in the log folder.
  FileThread& files() { return files_; }

 private:
  friend class RankStream;
  bool is_shown(int local_rank, unsigned stream) const;
  void make_progress();
  void give_up_files();
  void schedule_partial_flush();
  // Soon after a flood of output the memory that it needed is given back.
  void bytes_read(std::size_t bytes);
  void release_memory();
  // A stream has passed a mark: if that was the second one of its rank, no other will come.
  void mark_seen(const RankStream* who);
  void flush_partial_lines();
  // Called before a stream's lines are written: ends a line that another stream left open.
  void begin_output(Sink& sink, const RankStream* who, bool line_left_open);
  void stream_ended(const RankStream* who);

  boost::asio::io_context& io_;
  const Options& options_;
  int ranks_;
  std::string mark_;
  FileThread files_;
  std::unique_ptr<Sink> out_, err_;                   // err_ is null when both are the same file
  std::vector<std::shared_ptr<RankStream>> streams_;  // stdout and stderr of each rank in turn
  boost::asio::steady_timer partial_timer_, give_up_timer_, release_timer_;
  bool partial_armed_ = false;
  bool release_armed_ = false;
  std::size_t read_since_release_ = 0;
  const RankStream* open_line_ = nullptr;
  bool warned_of_logs_ = false;
  bool lost_ = false;
  std::function<void()> when_flushed_;
  bool files_given_up_ = false;
};

}  // namespace mgpu::launcher
