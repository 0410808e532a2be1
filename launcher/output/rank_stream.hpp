#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/output/file_thread.hpp"
#include "launcher/output/line_splitter.hpp"
#include "launcher/output/output.hpp"
#include "launcher/output/tail_buffer.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// One stream of one rank: reads a pipe or terminal, splits it into lines and passes them on.
class RankStream : public std::enable_shared_from_this<RankStream> {
 public:
  struct Route {
    Sink* console = nullptr;    // null: not shown
    std::string prefix;         // empty: lines as they are
    std::string log_path;       // empty: no file
    std::string filtered_path;  // lines with one of `needles` also go here
    std::vector<std::string> needles;
    bool appends = false;  // to the file at log_path
    std::string mark;      // a line that is not passed on; see marks()
    bool raw = false;      // single rank: bytes are passed through unchanged
  };

  RankStream(Output& output, boost::asio::io_context& io, Route route);
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  // The end that the rank writes to; taken once.
  rendezvous::UniqueFd take_child_end() { return std::move(child_end_); }

  void start_reading();
  bool full() const;  // whether its lines have to wait
  void resume();      // what was full has room again
  void drain();       // reads everything available, even if the console or a file is full
  void finish();      // the stream has ended
  bool has_partial() const { return splitter_.has_partial(); }
  void flush_partial();  // shows an unfinished line, such as a prompt
  void resize();
  // The last bytes of the stream, at most `most`; also after finish(). 64 KiB are kept.
  std::string tail(std::size_t most) const { return tail_.last(most); }
  // Gives back the memory of empty buffers. False: bytes wait in one of them.
  bool release_memory();
  std::uint64_t bytes() const { return bytes_; }  // read so far
  // How often the mark was seen. Twice: also that of the other stream, which something has merged.
  int marks() const { return marks_; }
  void expect_no_mark();  // passes on what may be the beginning of one
  bool has_log() const { return !route_.log_path.empty(); }

 private:
  bool read_once();  // false when there is nothing (more) to read
  void pass_on(std::string_view bytes);
  std::string without_mark(std::string_view bytes);
  bool skip_mark();
  void to_console(std::string_view lines, bool whole);
  void filter(std::string_view lines);
  void open_pipe();
  bool open_terminal();

  Output& output_;
  Route route_;
  boost::asio::posix::stream_descriptor source_;
  rendezvous::UniqueFd child_end_;
  std::unique_ptr<QueuedFile> log_, filtered_;
  LineSplitter splitter_;
  TailBuffer tail_{64 << 10};
  std::uint64_t bytes_ = 0;
  std::string held_;  // may be the beginning of the mark
  int marks_ = 0;
  bool in_mark_line_ = false;  // after the mark: its line break is not passed on either
  bool waiting_ = false;
  bool ended_ = false;
};

}  // namespace mgpu::launcher
