#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "launcher/lifecycle/failure_kind.hpp"

namespace mgpu::launcher {

// One entry of the table of known failures: the words by which it is recognized, and what they
// mean. Entries are in order of priority: a root cause comes before the consequences that other
// ranks see, and a specific message before a general one.
struct Signature {
  // Where the words must be.
  enum class Where {
    message,    // in the last exception's message, or in the output of a program without exceptions
    exception,  // in the last exception's message
    type,       // the exception's name begins with them
    callstack,  // in the traceback of the last exception
    output,     // in the output of a program without exceptions
  };

  std::string_view name;  // for reports, such as "nccl_remote"
  FailureKind kind = FailureKind::none;
  Where where = Where::message;
  std::string_view words;
  std::string_view also = {};  // other words that must be in the same text; empty: none
  bool cascade = false;        // another rank failed first, or does not answer
  // Only this reading of the text is possible, so the failure repeats at every start.
  bool certain = false;
};

std::span<const Signature> signatures();

// The entry that decided, and the line with its words.
struct SignatureMatch {
  const Signature* signature;
  std::string_view line;
};

// For a rank that failed with an exception: `message` is that of the last one, with the lines that
// belong to it. Nullopt: no entry matches.
std::optional<SignatureMatch> match_exception(std::string_view message, std::string_view callstack);
// For a rank that failed without an exception: `output` is the end of its stderr.
std::optional<SignatureMatch> match_output(std::string_view output);

// The line of `text` with a message about exhausted GPU memory that led to the last exception,
// which begins at `exception`; empty: none. Memory that ran out before, and from which the program
// recovered, is not in the chain of exceptions that ends with the last one.
std::string_view gpu_oom_before(std::string_view text, std::size_t exception);

}  // namespace mgpu::launcher
