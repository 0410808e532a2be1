#include "launcher/lifecycle/failure_kind.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

TEST_CASE("every kind of failure has a name of its own that reads back as the kind",
          "[failure_kind]") {
  const auto names = failure_kind_names();
  for (const auto name : names) {
    CAPTURE(name);
    CHECK(name_of(kind_named(name)) == name);
  }
  CHECK(names.size() == static_cast<size_t>(FailureKind::exit_status));
}

TEST_CASE("an unknown name of a kind stands for none", "[failure_kind]") {
  CHECK(kind_named("") == FailureKind::none);
  CHECK(kind_named("gpu") == FailureKind::none);
  CHECK(name_of(FailureKind::none) == "none");
}

// Scripts and agents of other versions read these names.
TEST_CASE("the names of kinds do not change", "[failure_kind]") {
  for (const char* name :
       {"exec_failure", "usage", "import_error", "syntax_error", "python_exception", "host_oom",
        "host_oom_guess", "gpu_oom", "gpu_error", "signal", "exit_status"})
    CHECK(kind_named(name) != FailureKind::none);
}
