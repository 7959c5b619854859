#include "serve/work/answer.h"

#include <exception>
#include <utility>

#include "kvtide/error.h"

namespace kvtide::serve {

void tell_failure(AnswerListener& listener, const Error& error) noexcept {
  try {
    listener.failed(error);
  } catch (const std::exception&) {
  }
}

void tell_end(AnswerListener& listener, const AnswerFigures& figures) noexcept {
  try {
    listener.done(figures);
  } catch (const Error& error) {
    tell_failure(listener, error);
  } catch (const std::exception&) {
    tell_failure(listener, Error(ErrorCode::out_of_memory, "out of memory"));
  }
}

}  // namespace kvtide::serve
