#include "launcher/lifecycle/failure_kind.hpp"

#include "launcher/lifecycle/failure_policy.hpp"

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

TEST_CASE("every policy has a name that reads back as the policy", "[failure_kind]") {
  for (const auto name : policy_names()) CHECK(name_of(*policy_named(name)) == name);
  CHECK(policy_names().size() == 5);
  CHECK_FALSE(policy_named("retry"));
}

TEST_CASE("the default policy of a kind is the one that can help", "[failure_kind]") {
  using enum FailurePolicy;
  using Kind = FailureKind;
  for (const auto kind : {Kind::gpu_error, Kind::host_oom, Kind::exec_failure})
    CHECK(default_policy(kind) == exclude_node);
  for (const auto kind : {Kind::usage, Kind::import_error, Kind::syntax_error})
    CHECK(default_policy(kind) == give_up);
  for (const auto kind : {Kind::data_error, Kind::nan})
    CHECK(default_policy(kind) == give_up_if_repeated);
  CHECK(default_policy(Kind::gpu_oom) == restart_changed);
  for (const auto kind : {Kind::host_oom_guess, Kind::disk_full, Kind::cuda_error, Kind::nccl_error,
                          Kind::peer_failure, Kind::hang, Kind::lost_node, Kind::preempted,
                          Kind::killed, Kind::signal, Kind::python_exception, Kind::exit_status})
    CHECK(default_policy(kind) == restart);

  FailurePolicies policies{{{Kind::nan, give_up}}};
  CHECK(policies.of(Kind::nan) == give_up);
  CHECK(policies.of(Kind::gpu_oom) == restart_changed);
}

TEST_CASE("only a rank that was killed or has crashed can be replaced in place", "[failure_kind]") {
  using Kind = FailureKind;
  for (const auto name : failure_kind_names()) {
    const auto kind = kind_named(name);
    CHECK(permits_replacement(kind) ==
          (kind == Kind::killed || kind == Kind::signal || kind == Kind::host_oom_guess));
  }
}
