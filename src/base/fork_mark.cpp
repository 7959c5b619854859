#include "base/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/pages.h"

namespace kvtide {

ForkMark::ForkMark() : process_(::getpid()) {
#ifdef MADV_WIPEONFORK
  Buffer page(kPage, Buffer::Pages::small);
  if (::madvise(page.data(), kPage, MADV_WIPEONFORK) != 0) return;
  *page.as<volatile unsigned char>() = 1;
  page_ = std::move(page);
#endif
}

bool ForkMark::in_child() const {
  if (page_.size() == 0) return ::getpid() != process_;
  return *page_.as<volatile unsigned char>() == 0;
}

}  // namespace kvtide
