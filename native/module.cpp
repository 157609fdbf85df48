// The native half of the package.  For now it only says what the processor can do, so that
// `gossamer info` can report it and a build without a compiler is seen as such; the kernels join
// this module one file per operator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

namespace nb = nanobind;

static std::vector<std::string> cpu_features() {
    std::vector<std::string> found;
#if defined(__x86_64__) && defined(__GNUC__)
    // These also ask whether the operating system saves the registers (libgcc and compiler-rt read XCR0).
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
    if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
    if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
    if (__builtin_cpu_supports("avx512bw")) found.emplace_back("avx512bw");
    if (__builtin_cpu_supports("avx512vl")) found.emplace_back("avx512vl");
    if (__builtin_cpu_supports("avx512dq")) found.emplace_back("avx512dq");
    if (__builtin_cpu_supports("avx512vnni")) found.emplace_back("avx512vnni");
    if (__builtin_cpu_supports("avx512bf16")) found.emplace_back("avx512bf16");
#elif defined(__aarch64__)
    found.emplace_back("neon");
#endif
    return found;
}

NB_MODULE(_native, m) {
    m.doc() = "Native kernels of gossamer.";
    m.def("cpu_features", &cpu_features, "Instruction sets of this processor that kernels may use.");
}
