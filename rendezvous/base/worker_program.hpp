#pragma once

#include <string>

namespace mgpu::rendezvous {

// The worker of the mgpu-train in `folder`: the program that links LibTorch. Both have the same
// file name. It is in ../libexec/mgpu (a build or an installation from source), in ../mgpu_train
// (pip install --target), or in a Python's site-packages below ../lib; if several Pythons have one,
// that of this version, else of the newest Python. Empty: there is none.
std::string worker_program(const std::string& folder, const std::string& version);

}  // namespace mgpu::rendezvous
