#pragma once

#include <array>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// Keeps a few descriptors for work that has to be possible when all others are in use, as by
// connections to the store: finding and killing processes.
class SpareDescriptors {
 public:
  SpareDescriptors() { keep(); }

  // While a Loan exists, the descriptors are free.
  class Loan {
   public:
    explicit Loan(SpareDescriptors& from) : from_(from) { from_.release(); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { from_.keep(); }

   private:
    SpareDescriptors& from_;
  };

 private:
  void keep();
  void release();

  std::array<rendezvous::UniqueFd, 4> kept_;  // some are empty if there were too few
};

}  // namespace mgpu::launcher
