#include "runtime/hub/failure.hpp"

#include "tests/runtime/hub/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::hub;
using Catch::Matchers::Contains;
using mgpu::tests::ScopedVariable;

namespace {

// What hf 1.33 prints.
constexpr const char* kGated =
    "Error: Access denied. This repository requires approval.\nHint: set HF_DEBUG=1 as "
    "environment variable for full traceback.\n";
constexpr const char* kUnauthorized =
    "Error: Client error '401 Unauthorized' for url 'http://h/api/models/o/n/revision/main'\n"
    "For more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/401\n\n"
    "Invalid username or password.\nHint: set HF_DEBUG=1\n";
constexpr const char* kNotFound =
    "Error: Model 'o/n' not found.\nIf the repo is private, make sure you are authenticated and "
    "your token has the required permissions.\n";
constexpr const char* kLimited =
    "Error: Local entry not found. 429 Too Many Requests for url: http://h/api/models/o/n.\n";
constexpr const char* kFault =
    "Error: Local entry not found. Server error '503 Service Unavailable' for url 'http://h'\n";
constexpr const char* kRefused = "Error: Local entry not found. [Errno 111] Connection refused\n";
constexpr const char* kPart =
    "Traceback (most recent call last):\n  File \"x\", line 1, in <module>\n    main()\nOSError: "
    "Consistency check failed: file should be of size 3000000 but has size 1500000 "
    "((…)404401429/model.safetensors).\nThis is usually due to network issues.\n";
constexpr const char* kFull =
    "Error while downloading from http://h: peer closed connection without sending complete "
    "message body\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on "
    "device\n";
// What huggingface-cli printed before.
constexpr const char* kOldGated =
    "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-429;404)\n\n"
    "Cannot access gated repo for url https://huggingface.co/o/n.\nAccess to model o/n is "
    "restricted and you are not in the authorized list.\n";
// What modelscope 1.40 prints.
constexpr const char* kDenied =
    "error: [E3002] [403] access denied | code=1\n  Request: GET http://h/api/v1/models/o/n\n"
    "Suggestion: Permission denied. Please verify your access rights.\n";
constexpr const char* kAbsent =
    "error: [E3020] [404] not found | code=10010205001\nSuggestion: The requested resource does "
    "not "
    "exist, or it is private and requires authentication. Use `ms login` or pass --token.\n";
constexpr const char* kServer =
    "| WARNING | modelscope_hub.legacy_api | listing failed (ServerError), retry in 4s (3/4)\n"
    "error: [E1002] [502] HTTP 502\nSuggestion: Server is currently unavailable. Please retry "
    "later.\n";
constexpr const char* kHalf =
    "error: [E1003] 1 of 1 file(s) failed to download from o/n@master\n  - x: [E2020] Server "
    "announced 4 bytes for x but the repository lists 9 bytes; the remote object is empty, "
    "truncated or out of date\n";

}  // namespace

TEST_CASE("each failure of a download has one line that states what to do", "[hub]") {
  struct Case {
    std::string output, what;
    bool passing;
  };
  const auto [output, what, passing] = GENERATE(values<Case>({
      {kGated, "request access at http://h/o/n, then run hf auth login, or set HF_TOKEN", false},
      {kOldGated, "request access at http://h/o/n", false},
      {kUnauthorized, "http://h has no model of this name that you may read", false},
      {kNotFound, "check the name, or for a private one run hf auth login", false},
      {kLimited, "limits the number of requests (429); wait a few minutes", true},
      {kFault, "has a fault (Error: Local entry not found. Server error '503", true},
      {kRefused, "cannot be reached (Error: Local entry not found. [Errno 111] Connection", true},
      {kPart, "has sent only a part of a file; start again to continue", true},
      {kFull, "No space left on device: make space on the disk of", false},
      {"Error: Revision not found in model 'o/n'.\n", "it has no revision v2", false},
      {"PermissionError: [Errno 13] Permission denied: '/x/blobs'\n", "cannot be written", false},
      {"OSError: Invalid user token.\n", "does not accept the token", false},
      {"Warning: x\nsomething else\n", "hf failed: something else; to see more: hf download o/n",
       false},
      {"", "hf failed; to see more: hf download o/n --revision v2", false},
  }));
  const ScopedVariable endpoint("HF_ENDPOINT", "http://h");
  const auto error = failure_of({.name = "o/n", .revision = "v2"}, output);
  CHECK_THAT(error.what(), Contains("cannot download model o/n: ") && Contains(what));
  CHECK(error.passing() == passing);
  CHECK(std::string(error.what()).find('\n') == std::string::npos);
}

TEST_CASE("a failure names the kind of repository, and the commands of its hub", "[hub]") {
  const ScopedVariable endpoint("HF_ENDPOINT", "http://h");
  CHECK_THAT(failure_of({.part = Part::rows, .name = "o/n"}, kGated).what(),
             Contains("dataset o/n") && Contains("http://h/datasets/o/n"));
  CHECK_THAT(failure_of({.site = Site::modelscope, .name = "o/n"}, kNotFound).what(),
             Contains("run modelscope login"));
}

TEST_CASE("what a program prints cannot control the terminal", "[hub]") {
  CHECK_THAT(failure_of({.name = "o/n"}, "\x1b[31mError: \x1b]0;x\x07 odd\n").what(),
             !Contains("\x1b") && Contains("odd"));
}

TEST_CASE("failures of ModelScope's program are explained too", "[hub]") {
  struct Case {
    std::string output, what;
    bool passing;
  };
  const auto [output, what, passing] = GENERATE(values<Case>({
      {kDenied, "request access at http://h/o/n, then run modelscope login", false},
      {kAbsent, "http://h has no model of this name that you may read", false},
      {"Suggestion: Authentication failed. Please verify your token is valid.\n",
       "does not accept the token; run modelscope login", false},
      {"Suggestion: Rate limit exceeded. Please reduce request frequency and retry.\n",
       "limits the number of requests (429)", true},
      {kServer, "has a fault (error: [E1002] [502] HTTP 502); start again later", true},
      {kHalf, "has sent only a part of a file", true},
  }));
  const ScopedVariable endpoint("MODELSCOPE_ENDPOINT", "http://h");
  const auto error = failure_of({.site = Site::modelscope, .name = "o/n"}, output);
  CHECK_THAT(error.what(), Contains("cannot download model o/n: ") && Contains(what));
  CHECK(error.passing() == passing);
}
