// The worker shares libstdc++ and libgcc_s with LibTorch, so it cannot link them statically. It
// imports nothing from them that is newer than gcc 11, whose libraries systems with glibc 2.34
// have. gcc 12 gave condition_variable::wait another version without changing what it does: the
// linker makes calls of it calls of __wrap_..., and this one is of the old version. (What gcc 12
// added to libgcc_s, the conversions of fp16, comes from libgcc.a.)
extern "C" {

void mgpu_wait_of_gcc_11(void* variable, void* lock);
asm(".symver mgpu_wait_of_gcc_11,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

__attribute__((visibility("hidden"))) void
__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* variable, void* lock) {
  mgpu_wait_of_gcc_11(variable, lock);
}
}
