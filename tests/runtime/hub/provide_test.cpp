#include "runtime/hub/provide.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <optional>
#include <thread>

#include "rendezvous/base/unique_fd.hpp"
#include "runtime/hub/download_lock.hpp"
#include "runtime/hub/program.hpp"
#include "runtime/hub/running_download.hpp"
#include "tests/runtime/hub/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::hub;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const std::string kCommit(40, 'a');

// A cache, and a program hf that is a shell script.
struct Place {
  TempDir dir{TempDir::in_memory()};
  ScopedVariable cache{"HF_HUB_CACHE", dir.root() / "hub"};
  ScopedVariable path{"PATH", (dir.root() / "bin").string() + ":/usr/bin:/bin"};
  ScopedVariable endpoint{"HF_ENDPOINT", "http://h"};
  fs::path repository = dir.root() / "hub/models--o--n";
  fs::path snapshot = repository / "snapshots" / kCommit;
  fs::path lock = dir.root() / "hub/.locks/models--o--n/mgpu-train.lock";
  Repository model{.name = "o/n"};

  void put_model() const {
    put(repository / "refs/main", kCommit);
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
      put(snapshot / name, "{}");
  }
  void program(const std::string& body) const {
    put(dir.root() / "bin/hf",
        "#!/bin/sh\ncd '" + dir.root().string() + "'\necho run >> runs\n" + body + "\n");
    fs::permissions(dir.root() / "bin/hf", fs::perms::all);
  }
  // A program that downloads the model.
  std::string succeeds() const {
    return "mkdir -p hub/models--o--n/refs hub/models--o--n/snapshots/" + kCommit + "\nprintf " +
           kCommit + " > hub/models--o--n/refs/main\ncd hub/models--o--n/snapshots/" + kCommit +
           "\necho {} > config.json; echo {} > tokenizer.json; echo x > model.safetensors";
  }
  std::size_t runs() const { return text_of(dir.root() / "runs").size() / 4; }
};

ProvideOptions quickly() {
  ProvideOptions options;
  options.waits = {1ms, 1ms};
  return options;
}

std::string error_of(const Repository& repository, const ProvideOptions& options) {
  try {
    provide(repository, options);
  } catch (const HubError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what is in the cache needs no program", "[hub]") {
  const Place place;
  place.put_model();
  ProvideOptions options;
  options.offline = GENERATE(false, true);
  CHECK(provide(place.model, options) == place.snapshot);
  CHECK_FALSE(fs::exists(place.lock));
}

TEST_CASE("without hf the message has the command that installs it", "[hub]") {
  const Place place;
  const ScopedVariable none("PATH", (place.dir.root() / "bin").string());
  CHECK(error_of(place.model, {}) ==
        "o/n is neither a local path nor in the cache " + place.repository.string() +
            "; to download it, install hf: pip install huggingface_hub");
  CHECK_THAT(error_of({.site = Site::modelscope, .name = "o/n"}, {}),
             Contains("install modelscope: pip install modelscope"));
}

TEST_CASE("offline nothing is run, and the message has the command for elsewhere", "[hub]") {
  const Place place;
  place.program("exit 0");
  ProvideOptions options;
  options.offline = true;
  CHECK_THAT(error_of(place.model, options), Contains("offline is set, so nothing is downloaded") &&
                                                 Contains("run: hf download o/n"));
  place.put_model();
  fs::remove(place.snapshot / "tokenizer.json");
  CHECK_THAT(error_of(place.model, options),
             Contains("the download of o/n is incomplete, tokenizer.json is missing"));
  CHECK(place.runs() == 0);
}

TEST_CASE("a model is downloaded once", "[hub]") {
  const Place place;
  place.program("echo \"$@\" > arguments\necho \"$HF_HUB_CACHE\" > cache\n" + place.succeeds());
  CHECK(provide(place.model, quickly()) == place.snapshot);
  CHECK(provide(place.model, quickly()) == place.snapshot);
  CHECK(place.runs() == 1);
  CHECK_THAT(text_of(place.dir.root() / "arguments"), Contains("download o/n config.json") &&
                                                          Contains("model*.safetensors") &&
                                                          Contains("--revision main"));
  CHECK(text_of(place.dir.root() / "cache") == (place.dir.root() / "hub").string() + "\n");
}

TEST_CASE("the older huggingface-cli is used where there is no hf", "[hub]") {
  const Place place;
  place.program(place.succeeds());
  fs::rename(place.dir.root() / "bin/hf", place.dir.root() / "bin/huggingface-cli");
  const ScopedVariable path("PATH", (place.dir.root() / "bin").string() + ":/bin");
  CHECK(provide(place.model, quickly()) == place.snapshot);
  CHECK(place.runs() == 1);
}

TEST_CASE("a download that was interrupted is continued although no needed file is missing",
          "[hub]") {
  const Place place;
  place.put_model();
  put(place.lock, "process 1 on elsewhere\n");
  place.program("exit 0");
  CHECK_FALSE(is_provided(place.model));
  CHECK(provide(place.model, quickly()) == place.snapshot);
  CHECK(place.runs() == 1);
  CHECK(is_provided(place.model));

  SECTION("where no program can continue it, the needed files are enough") {
    put(place.lock, "process 1 on elsewhere\n");
    ProvideOptions options;
    options.offline = true;
    CHECK(provide(place.model, options) == place.snapshot);
  }
}

TEST_CASE("a failure that may pass is tried again, with a line each time", "[hub]") {
  const Place place;
  std::vector<std::string> lines;
  auto options = quickly();
  options.say = [&](const std::string& line) { lines.push_back(line); };
  SECTION("and then succeeds") {
    place.program("test $(wc -l < runs) -gt 2 || { echo 429 Too Many Requests; exit 1; }\n" +
                  place.succeeds());
    CHECK(provide(place.model, options) == place.snapshot);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0] == "downloading model o/n from http://h to " + place.repository.string());
    CHECK_THAT(lines[2], Contains("(429)") && Contains("trying again in 1 s"));
    CHECK(lines[3] == "model o/n is complete");
  }
  SECTION("until it is clear that it does not pass") {
    place.program("echo 429 Too Many Requests; exit 1");
    CHECK_THAT(error_of(place.model, options), Contains("(429)"));
    CHECK(place.runs() == 3);
    CHECK_FALSE(is_provided(place.model));
  }
  SECTION("but not any other failure") {
    place.program("echo \"Model 'o/n' not found.\"; exit 1");
    CHECK_THAT(error_of(place.model, options), Contains("no model of this name"));
    CHECK(place.runs() == 1);
  }
}

TEST_CASE("a download has limits of time", "[hub]") {
  const Place place;
  place.program("exec sleep 1000");
  SECTION("of the whole") {
    auto options = quickly();
    options.limit = 50ms;
    CHECK_THAT(error_of(place.model, options), Contains("it took longer than 1 s"));
    CHECK(place.runs() == 1);
  }
  SECTION("without a new byte") {
    auto options = quickly();
    options.waits.clear();
    options.idle_limit = 50ms;
    CHECK_THAT(error_of(place.model, options), Contains("has sent nothing new for 1 min"));
  }
}

TEST_CASE("a program that dies leaves no partial files", "[hub]") {
  const Place place;
  const auto blobs = place.repository / "blobs";
  place.program(
      "mkdir -p hub/models--o--n/blobs\necho x > hub/models--o--n/blobs/"
      "cc.0123abcd.incomplete\necho x > hub/models--o--n/blobs/dd\nkill -9 $$");
  CHECK_THAT(error_of(place.model, quickly()), Contains("hf was killed by signal 9"));
  CHECK_FALSE(fs::exists(blobs / "cc.0123abcd.incomplete"));
  CHECK(fs::exists(blobs / "dd"));
}

TEST_CASE("a model that does not fit onto the disk is not downloaded", "[hub]") {
  const Place place;
  place.program(
      "mkdir -p hub/models--o--n/trees hub/models--o--n/refs hub/models--o--n/blobs\n"
      "printf " +
      kCommit +
      " > hub/models--o--n/refs/main\n"
      "echo '{\"files\": {\"model.safetensors\": {\"size\": 900000000000000000}, "
      "\"other.bin\": {\"size\": 1}}}' > hub/models--o--n/trees/" +
      kCommit + ".json\nexec sleep 1000");
  CHECK_THAT(error_of(place.model, quickly()),
             Contains("No space left on device: it needs 900000000.0 GB, but the disk of"));
}

TEST_CASE("a repository without the needed files is reported as such", "[hub]") {
  const Place place;
  place.program(place.succeeds() + "; rm model.safetensors");
  CHECK_THAT(error_of(place.model, quickly()),
             Contains("it has no model.safetensors; only models in Hugging Face layout"));
}

TEST_CASE("two processes that share a cache download one after another", "[hub]") {
  const Place place;
  place.program(place.succeeds());
  put(place.lock, "process 7 on elsewhere\n");
  std::optional<mgpu::rendezvous::UniqueFd> other(
      mgpu::rendezvous::UniqueFd(::open(place.lock.c_str(), O_RDWR | O_CLOEXEC)));
  REQUIRE(::flock(other->get(), LOCK_EX | LOCK_NB) == 0);
  SECTION("the second one finds what the first one has downloaded") {
    auto options = quickly();
    std::vector<std::string> lines;
    options.say = [&](const std::string& line) {
      lines.push_back(line);
      place.put_model();
      put(place.lock, "");
      other.reset();
    };
    CHECK(provide(place.model, options) == place.snapshot);
    CHECK(lines == std::vector<std::string>{
                       "waiting for process 7 on elsewhere, which downloads model o/n"});
    CHECK(place.runs() == 0);
  }
  SECTION("and does not wait longer than it may") {
    auto options = quickly();
    options.limit = 10ms;
    CHECK_THAT(error_of(place.model, options), Contains("process 7 on elsewhere is downloading"));
  }
  SECTION("and needs no more than the files that are there when its time is over") {
    auto options = quickly();
    options.limit = 1200ms;
    options.say = [&](const std::string&) { place.put_model(); };
    CHECK(provide(place.model, options) == place.snapshot);
  }
}

TEST_CASE("a line of progress has the bytes so far, the total and the speed", "[hub]") {
  const Place place;
  place.program(
      "mkdir -p hub/models--o--n/trees hub/models--o--n/refs hub/models--o--n/blobs\n"
      "printf " +
      kCommit +
      " > hub/models--o--n/refs/main\n"
      "echo '{\"files\": {\"model.safetensors\": {\"size\": 4000000}, \"other.bin\": "
      "{\"size\": 7000000}}}' > hub/models--o--n/trees/" +
      kCommit +
      ".json\nhead -c 2000000 /dev/zero > hub/models--o--n/blobs/x.0123abcd.incomplete\n"
      "until test -e told; do sleep 0.05; done");
  DownloadLimits limits;
  limits.report = 1ms;
  std::string line;
  const auto end =
      run_download(place.model, *find_program(place.model), limits, [&](const std::string& text) {
        if (text.find(" of ") == text.npos) return;
        line = text;
        put(place.dir.root() / "told", "");
      });
  CHECK(end.why == DownloadEnd::Why::exited);
  CHECK_THAT(line, Contains("downloading o/n: 2.0 MB of 4.0 MB, ") && Contains("MB/s, 0 min left"));
}
