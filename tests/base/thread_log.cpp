// Preloaded into a test program, tells on standard output when it starts a thread: tools/tests_with_threads.py.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) {
  using Create = decltype(&pthread_create);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  constexpr char kLine[] = "\n@thread\n";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, kLine, sizeof(kLine) - 1);
  return real(thread, attributes, start, argument);
}
