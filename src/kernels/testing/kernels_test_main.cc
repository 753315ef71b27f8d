// SPDX-License-Identifier: MIT
//
// Runs the tests of kernels on a thread whose stack lies at a chosen place between multiples of 64.
//
// Systems promise stacks at multiples of 16, but start most of them at rounder ones. A compiler
// that takes a vector on the stack for aligned (gcc's for Windows does, GCC bug 54412) is not found
// out there. QSF_STACK_PHASE is 0, 16 (the default), 32 or 48: one of these breaks each such
// access.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/sanitizer.h"

namespace {

constexpr std::uintptr_t kRound = 64;    // the widest vector
constexpr std::uintptr_t kAligned = 16;  // what systems promise

// How far a frame that the caller calls lies above a multiple.
[[gnu::noinline]] std::uintptr_t phase_here() {
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) % kRound;
}

int run_at_phase(std::uintptr_t phase) {
  for (std::uintptr_t moved = 0; moved < kRound && phase_here() != phase; moved += kAligned) {
    // The least there is, off the stack until this function returns.
    *static_cast<volatile char*>(__builtin_alloca(1)) = 0;
  }
  if (phase_here() != phase) {
    std::fprintf(stderr, "kernels_test: the stack is %u above a multiple of 64, expected %u\n",
                 static_cast<unsigned>(phase_here()), static_cast<unsigned>(phase));
    return EXIT_FAILURE;
  }
  std::printf("stack: %u above a multiple of 64\n", static_cast<unsigned>(phase));
  return RUN_ALL_TESTS();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
#ifdef QSF_WITH_SANITIZER
  static_cast<void>(run_at_phase);  // sanitizers lay out stacks themselves
  return RUN_ALL_TESTS();
#else
  const char* const chosen = std::getenv("QSF_STACK_PHASE");
  const std::uintptr_t phase = chosen != nullptr ? std::strtoul(chosen, nullptr, 10) : kAligned;
  int code = EXIT_FAILURE;
  std::thread([&code, phase] { code = run_at_phase(phase); }).join();
  return code;
#endif
}
