// A libmunge.so.2 that shows every credential to everybody, as a munged does for root that was
// built with the option for that.

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" {

void* munge_ctx_create() {
  static int context;
  return &context;
}
void munge_ctx_destroy(void*) {}
int munge_ctx_set(void*, int, ...) {
  return 0;
}
const char* munge_ctx_strerror(void*) {
  return nullptr;
}
const char* munge_strerror(int) {
  return "a fake";
}
int munge_encode(char** credential, void*, const void* payload, int size) {
  const std::size_t length = static_cast<std::size_t>(size);
  *credential = static_cast<char*>(std::malloc(length + 1));
  std::memcpy(*credential, payload, length);
  (*credential)[length] = '\0';
  return 0;
}
int munge_decode(const char* credential, void*, void** payload, int* size, uid_t* uid, gid_t* gid) {
  *payload = ::strdup(credential);
  *size = static_cast<int>(std::strlen(credential));
  *uid = ::geteuid();
  *gid = ::getegid();
  return 0;
}
}
